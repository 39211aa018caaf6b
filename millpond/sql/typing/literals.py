"""Types literals: numbers, strings, intervals, and the type names after CAST … AS."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.sql.typing import decimals
from millpond.sql.typing.coercion import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    FLOAT,
    INT,
    NULL,
    STRING,
    list_of,
)
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ

T = exp.DataType.Type

_NAMED: dict[exp.DType, pa.DataType] = {
    T.BOOLEAN: BOOLEAN,
    T.TINYINT: pa.int8(),
    T.SMALLINT: pa.int16(),
    T.INT: INT,
    T.BIGINT: BIGINT,
    T.FLOAT: FLOAT,
    T.DOUBLE: DOUBLE,
    T.TEXT: STRING,
    T.VARCHAR: STRING,
    T.CHAR: STRING,
    T.BINARY: BINARY,
    T.VARBINARY: BINARY,
    T.DATE: DATE,
    T.TIMESTAMP: TIMESTAMP,
    T.TIMESTAMPTZ: TIMESTAMP,
    T.TIMESTAMPLTZ: TIMESTAMP,
    T.TIMESTAMPNTZ: TIMESTAMP_NTZ,
    T.NULL: NULL,
}

YEAR_MONTH_UNITS = frozenset({"YEAR", "QUARTER", "MONTH"})
DAY_UNITS = frozenset({"DAY", "WEEK"})
TIME_UNITS = frozenset({"HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"})


def named_type(node: exp.Expr) -> pa.DataType | None:
    """Returns the type for a type name."""
    if not isinstance(node, exp.DataType):
        return None
    if node.this in (T.DECIMAL, T.DECIMAL32, T.DECIMAL64, T.DECIMAL128):
        numbers = [int(p.name) for p in node.expressions] or [10]
        return pa.decimal128(numbers[0], numbers[1] if len(numbers) > 1 else 0)
    if (node.this in (T.VARCHAR, T.CHAR) and node.expressions) or node.args.get("collate"):
        return None  # Spark cuts, pads or compares such texts in its own way
    inner = [_inner(e) for e in node.expressions]
    if any(t is None for _, t in inner):
        return None
    if node.this in (T.ARRAY, T.LIST) and len(inner) == 1:
        return list_of(inner[0][1])
    if node.this == T.MAP and len(inner) == 2:
        return pa.map_(inner[0][1], inner[1][1])
    if node.this == T.STRUCT and inner:
        return pa.struct([pa.field(name, t) for name, t in inner])
    return _NAMED.get(node.this)


def _inner(node: exp.Expr) -> tuple[str, pa.DataType | None]:
    if isinstance(node, exp.ColumnDef):
        return node.name, None if node.args.get("constraints") else named_type(node.args["kind"])
    return "", named_type(node)


def literal_type(node: exp.Literal) -> pa.DataType:
    return STRING if node.is_string else number_type(str(node.this))


def number_type(text: str) -> pa.DataType:
    """Returns INT, BIGINT or DECIMAL by size; DECIMAL with a point; DOUBLE with an exponent. Accepts a sign."""
    if "e" in text.lower():
        return DOUBLE
    if "." not in text:
        value = int(text)
        if -(2**31) <= value < 2**31:
            return INT
        if -(2**63) <= value < 2**63:
            return BIGINT
    return decimals.of_literal(text.lstrip("-"))


def interval_units(node: exp.Expr) -> frozenset[str] | None:
    """Returns the units of an INTERVAL literal, or of a sum of them; None for anything else."""
    if isinstance(node, exp.Paren | exp.Neg):
        return interval_units(node.this)
    if isinstance(node, exp.Add | exp.Sub):
        left, right = interval_units(node.this), interval_units(node.expression)
        return None if left is None or right is None else left | right
    if not isinstance(node, exp.Interval):
        return None
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return frozenset({unit_name(unit.this), unit_name(unit.expression)})
    return frozenset({unit_name(unit)}) if unit is not None else None


def unit_name(unit: exp.Expr) -> str:
    """Returns ``DAY`` for day, Days, DAYS."""
    name = unit.name.upper()
    return name[:-1] if name.endswith("S") else name


def interval_type(node: exp.Expr) -> pa.DataType | None:
    """Returns INTERVAL DAY TO SECOND for an interval of days or less; intervals of months have no Arrow type."""
    units = interval_units(node)
    return DURATION if units is not None and units <= DAY_UNITS | TIME_UNITS else None
