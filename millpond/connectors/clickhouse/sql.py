"""Writes SQL for ClickHouse: each value is sent separately from the statement, as text with its type; the server binds
them.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from clickhouse_connect import dbapi
from clickhouse_connect.cc_sqlalchemy.dialect import ClickHouseDialect
from clickhouse_connect.cc_sqlalchemy.sql.compiler import ChStatementCompiler
from sqlalchemy.dialects import registry

DRIVER = "millpond.clickhouse"
"""The name of the dialect for SQLAlchemy."""


class Compiler(ChStatementCompiler):
    """Compiles parameters. The driver's compiler takes the type of a value from SQLAlchemy, by which decimals and times
    lose digits.
    """

    def bindparam_string(self, name: str, *_: Any, **__: Any) -> str:
        value = self.binds[name].value
        if value is None:
            return "NULL"
        sent = f"v{list(self.binds).index(name)}"
        self.escaped_bind_names = self.escaped_bind_names.union({name: sent})
        return f"{{{sent}:{type_of(value)}}}"

    @property
    def _bind_processors(self) -> MutableMapping[str, Any]:
        return dict.fromkeys(self.binds, text_of)

    def visit_max_func(self, function: Any, **more: Any) -> str:
        """Renders MAX, which is NULL without rows, as elsewhere."""
        return f"maxOrNull{self.function_argspec(function, **more)}"

    def visit_min_func(self, function: Any, **more: Any) -> str:
        return f"minOrNull{self.function_argspec(function, **more)}"


class Dialect(ClickHouseDialect):
    statement_compiler = Compiler
    supports_statement_cache = False

    @classmethod
    def import_dbapi(cls) -> Any:
        return dbapi

    def __init__(self, **more: Any):
        super().__init__(server_side_params=True, **more)


registry.register(DRIVER, __name__, "Dialect")


def type_of(value: Any) -> str:
    """Returns the ClickHouse type that represents a value exactly."""
    match value:
        case bool():
            return "Bool"
        case int():
            return "Int64" if -(2**63) <= value < 2**63 else "UInt64" if 0 <= value < 2**64 else "Int256"
        case float():
            return "Float64"
        case Decimal():
            return f"Decimal(76, {max(-int(value.as_tuple().exponent), 0)})"
        case datetime():
            return "DateTime64(6, 'UTC')"
        case date():
            return "Date32"
        case _:
            return "String"


def text_of(value: Any) -> Any:
    """Returns a value as it is sent; texts and bytes are escaped by the driver. A time without a zone is UTC."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value) if math.isfinite(value) else str(value)
        case Decimal():
            return f"{value:f}"
        case datetime():
            utc = value.astimezone(UTC) if value.tzinfo is not None else value
            return f"{utc:%Y-%m-%d %H:%M:%S.%f}"
        case date():
            return value.isoformat()
        case _:
            return value


def sent(statement: sa.ClauseElement, dialect: sa.Dialect) -> tuple[str, dict[str, Any]]:
    """Returns a statement as it is sent, and its values by their names."""
    compiled: Any = statement.compile(dialect=dialect)
    names = compiled.escaped_bind_names
    values = compiled.construct_params(escape_names=False)
    return str(compiled), {names[k]: text_of(v) for k, v in values.items() if k in names}
