"""Evaluates the DEFAULT of new columns. One that its column cannot have is an error of the statement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from millpond.errors import Error, QueryFailed, SqlError, TypeMismatch
from millpond.query.evaluate import Evaluator
from millpond.sql import statements as st
from millpond.sql.checked import Checked, CheckedTable
from millpond.sql.checked_commands import CheckedAlter
from millpond.sql.defaults import defaults_query
from millpond.types import Column, Schema, type_name, whole

_LARGEST = 3.4028234663852886e38
"""The largest FLOAT."""


def check_defaults(columns: Sequence[st.ColumnDef], schema: Schema, evaluator: Evaluator) -> None:
    """Raises an error, in its place, if a column has a DEFAULT that it cannot have."""
    for column in columns:
        made = schema.find(column.name)
        if column.default is not None and made is not None:
            value_of(column, made, evaluator)


def value_of(column: st.ColumnDef, made: Column, evaluator: Evaluator) -> pa.Array:
    """Returns an array with the one value that a column has by default."""
    what = f'the DEFAULT of column "{column.name}"'
    try:
        # A cast to FLOAT makes a larger number infinite.
        if pa.types.is_float32(made.type) and _too_large(
            _evaluated(replace(made, type=pa.float64()), evaluator)
        ):
            raise TypeMismatch(f"the value is out of the range of {type_name(made.type)}")
        value = _evaluated(made, evaluator)
    except (QueryFailed, TypeMismatch, pa.ArrowException) as error:
        why = error.message if isinstance(error, Error) else str(error)
        raise TypeMismatch(f"{what} cannot be evaluated: {why}", place=column.place) from error
    if not made.nullable and not value[0].is_valid:
        raise SqlError(
            f"{what} is NULL, and the column is declared NOT NULL",
            hint="give it another DEFAULT, or leave out NOT NULL",
            place=column.place,
        )
    return value


def _evaluated(column: Column, evaluator: Evaluator) -> pa.Array:
    query = defaults_query((column,))
    if query is None:
        return pa.nulls(1, column.type)
    return whole(evaluator.answer(query, {}).column(0)).cast(column.type)


def _too_large(value: pa.Array) -> bool:
    number = value[0].as_py()
    return number is not None and math.isfinite(number) and abs(number) > _LARGEST


class _NeedsSparkError(Exception):
    """Is raised instead of starting Spark."""


class DefaultChecks:
    """Evaluates the DEFAULT values of statements that are only checked. One that needs Spark is left for the run."""

    def __init__(self) -> None:
        self._evaluator: Evaluator | None = None

    def check(self, checked: Checked) -> list[Error]:
        """Returns what is wrong with the DEFAULT of a column that a statement declares or changes."""
        s = checked.statement
        try:
            if isinstance(checked, CheckedTable):
                self._check([c for c in checked.statement.columns if c.default], checked.relation.schema)
            elif isinstance(checked, CheckedAlter):
                self._check(defaulted(checked.statement.action, checked.after.schema), checked.after.schema)
        except _NeedsSparkError:
            return []
        except Error as error:
            error.place = error.place or s.place
            return [error]
        return []

    def _check(self, columns: Sequence[st.ColumnDef], schema: Schema) -> None:
        if not columns:
            return
        if self._evaluator is None:
            self._evaluator = Evaluator(_no_spark)
        check_defaults(columns, schema, self._evaluator)

    def close(self) -> None:
        if self._evaluator is not None:
            self._evaluator.close()


def _no_spark(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    raise _NeedsSparkError


def defaulted(action: st.AlterAction, schema: Schema) -> list[st.ColumnDef]:
    """Returns the column to which a statement gives a DEFAULT."""
    match action:
        case st.AddColumn(column, _) if column.default is not None:
            return [column]
        case st.SetDefault(name, value) if value is not None:
            known = schema.find(name)
            if known is not None and known.type is not None:
                return [st.ColumnDef(known.name, known.type, known.nullable, default=value)]
    return []
