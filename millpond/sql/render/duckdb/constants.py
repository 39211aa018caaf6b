"""Finds arithmetic whose result always fits its type, so that it cannot raise."""

from __future__ import annotations

import re

import pyarrow as pa
from sqlglot import exp

from millpond.sql.typing import type_of
from millpond.sql.typing.coercion import DATE, is_decimal, is_integer
from millpond.sql.typing.operators import decimal_operand

_DATE = re.compile(r"(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])")
"""Dates that exist in every year."""
_UNITS = {"YEAR", "YEARS", "MONTH", "MONTHS", "WEEK", "WEEKS", "DAY", "DAYS"}
_FAR = 10_000
"""Units by which a date of four digits stays in the range of all engines."""


def is_safe_constant(node: exp.Expr) -> bool:
    """Returns whether it is a date that is written out, or such a date plus or minus an interval; or integers that are
    added, subtracted or multiplied, and whose result fits.
    """
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
        return _is_date(node.this) and _is_interval(node.expression)
    if _is_date(node):
        return True
    value, dtype = _integer(node), type_of(node) if isinstance(node, exp.Add | exp.Sub | exp.Mul) else None
    return value is not None and dtype is not None and _is_in_range(value, dtype)


def fits(node: exp.Expr) -> bool:
    """Returns whether it adds, subtracts or multiplies decimals or integers with a decimal result that has all digits
    that there can be.
    """
    if not isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return False
    result = type_of(node)
    if result is None or not is_decimal(result):
        return False
    sides = [_operand(side) for side in (node.this, node.expression)]
    a, b = sides
    if a is None or b is None:
        return False
    if isinstance(node, exp.Mul):
        scale, precision = a.scale + b.scale, a.precision + b.precision + 1
    else:
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    return bool(result.scale == scale and result.precision == precision)


def _operand(node: exp.Expr) -> pa.DataType | None:
    source = type_of(node)
    if source is None or not (is_decimal(source) or is_integer(source)):
        return None
    found = decimal_operand(node, source)
    return found if found is not None and is_decimal(found) else None


def _is_date(node: exp.Expr) -> bool:
    return (
        isinstance(node, exp.Cast)
        and type_of(node) == DATE
        and isinstance(node.this, exp.Literal)
        and node.this.is_string
        and _DATE.fullmatch(node.this.this) is not None
    )


def _is_interval(node: exp.Interval) -> bool:
    number = node.this
    return (
        isinstance(number, exp.Literal)
        and re.fullmatch(r"\d{1,5}", number.this) is not None
        and int(number.this) < _FAR
        and str(node.args.get("unit")).upper() in _UNITS
    )


def _integer(node: exp.Expr) -> int | None:
    """Returns the value of integers that are written out; None for everything else, and for what overflows."""
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(node, exp.Literal):
        return int(node.this) if not node.is_string and node.this.isdigit() else None
    if not isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return None
    a, b = _integer(node.this), _integer(node.expression)
    dtype = type_of(node)
    if a is None or b is None or dtype is None:
        return None
    value = a + b if isinstance(node, exp.Add) else a - b if isinstance(node, exp.Sub) else a * b
    return value if _is_in_range(value, dtype) else None


def _is_in_range(value: int, dtype: pa.DataType) -> bool:
    if not is_integer(dtype):
        return False
    most = 1 << (int(dtype.bit_width) - 1)
    return -most <= value < most
