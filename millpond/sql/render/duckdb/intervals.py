"""Renders dates and times with intervals."""

from __future__ import annotations

import re

from sqlglot import exp

from millpond.sql.render.duckdb.expression import Expressions
from millpond.sql.render.duckdb.names import Unrenderable, typed
from millpond.sql.typing import type_of
from millpond.sql.typing.coercion import DATE, DURATION, INT, NULL
from millpond.sql.typing.literals import interval_units, unit_name

_UNITS = frozenset(
    {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"}
)
_WHOLE = re.compile(r"\s*[+-]?\d+\s*")
_MICROS = {"SECOND": 1_000_000}


def interval(node: exp.Expr) -> str:
    """Renders an INTERVAL literal, or a sum of them."""
    if isinstance(node, exp.Paren):
        return f"({interval(node.this)})"
    if isinstance(node, exp.Neg):
        return f"(- {interval(node.this)})"
    if isinstance(node, exp.Add | exp.Sub):
        symbol = "+" if isinstance(node, exp.Add) else "-"
        return f"({interval(node.this)} {symbol} {interval(node.expression)})"
    if not isinstance(node, exp.Interval):
        raise Unrenderable("an interval that is not written out")
    unit, amount = node.args.get("unit"), node.this
    negative = isinstance(amount, exp.Neg)
    value = (amount.this if negative else amount).name if amount is not None else ""
    if unit is None or isinstance(unit, exp.IntervalSpan) or unit_name(unit) not in _UNITS:
        raise Unrenderable("an interval of several fields")
    if not _WHOLE.fullmatch(value):
        raise Unrenderable("an interval with a fraction")
    return f"INTERVAL '{'-' if negative else ''}{value.strip()}' {unit_name(unit)}"


def date_arithmetic(r: Expressions, node: exp.Expr) -> str:
    """Renders a date or time plus or minus an interval or a number of days."""
    result, left, right = r.type(node), node.this, node.expression
    if result == DURATION:
        raise Unrenderable("a difference of times as an interval")
    if NULL in (type_of(left), type_of(right)):
        return typed("NULL", result)
    symbol = "+" if isinstance(node, exp.Add) else "-"
    if (
        symbol == "+"
        and (interval_units(left) is not None or r.type(left) != result)
        and r.type(right) == DATE
    ):
        left, right = right, left
    if interval_units(left) is not None:
        left, right = right, left
    if interval_units(right) is not None:
        return typed(f"({r.to(left, result)} {symbol} {interval(right)})", result)
    return f"({r.sql(left)} {symbol} {r.to(right, INT)})"
