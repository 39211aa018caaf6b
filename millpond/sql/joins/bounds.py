"""Finds time bounds: how far apart in time two matching rows can be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

import pyarrow as pa
from sqlglot import exp

from millpond.sql.conjuncts import bare
from millpond.sql.typing import type_of
from millpond.sql.typing.literals import unit_name

_LESS = (exp.LT, exp.LTE)
_MORE = (exp.GT, exp.GTE)
_DIGITS = 18
"""The maximum count of units; more is not a valid time."""
_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}


@dataclass(frozen=True, slots=True)
class Bound:
    """Says that the time ``right`` is at least ``low`` and at most ``high`` microseconds after the time ``left``."""

    left: str
    right: str
    low: int | None = None
    high: int | None = None

    def narrowed(self, low: int | None, high: int | None) -> Bound:
        lows = [x for x in (self.low, low) if x is not None]
        highs = [x for x in (self.high, high) if x is not None]
        return replace(self, low=max(lows, default=None), high=min(highs, default=None))

    @property
    def ends(self) -> int:
        return (self.low is not None) + (self.high is not None)


@dataclass(frozen=True, slots=True)
class _Time:
    """Represents a column of times and what is added to it."""

    alias: str
    column: str
    plus: int
    type: pa.DataType


def find_bounds(conditions: Iterable[exp.Expr], left: str, right: str) -> list[Bound]:
    """Returns the bounds that the conditions set between times of two inputs, the narrowest first."""
    found: dict[tuple[str, str], Bound] = {}
    for a, b in _ordered(conditions):
        if a.type != b.type or {a.alias, b.alias} != {left.lower(), right.lower()}:
            continue
        if a.alias == left.lower():
            columns, low, high = (a.column, b.column), a.plus - b.plus, None
        else:
            columns, low, high = (b.column, a.column), None, b.plus - a.plus
        key = (columns[0].lower(), columns[1].lower())
        found[key] = found.get(key, Bound(*columns)).narrowed(low, high)
    return sorted(found.values(), key=lambda bound: -bound.ends)


def _ordered(conditions: Iterable[exp.Expr]) -> Iterator[tuple[_Time, _Time]]:
    """Yields pairs of times of which the first is not after the second."""
    for condition in conditions:
        if isinstance(condition, exp.Between) and not condition.args.get("symmetric"):
            yield from _less(condition.args["low"], condition.this)
            yield from _less(condition.this, condition.args["high"])
        elif isinstance(condition, _LESS):
            yield from _less(condition.this, condition.expression)
        elif isinstance(condition, _MORE):
            yield from _less(condition.expression, condition.this)
        elif isinstance(condition, exp.EQ):
            yield from _less(condition.this, condition.expression)
            yield from _less(condition.expression, condition.this)


def _less(a: exp.Expr, b: exp.Expr) -> Iterator[tuple[_Time, _Time]]:
    one, other = _time(a), _time(b)
    if one is not None and other is not None:
        yield one, other
        return
    # a - b < interval
    for node, length, first in ((bare(a), _micros(b), True), (bare(b), _micros(a), False)):
        if isinstance(node, exp.Sub) and length is not None:
            x, y = _time(node.this), _time(node.expression)
            if x is not None and y is not None:
                moved = replace(y, plus=y.plus + length)
                yield (x, moved) if first else (moved, x)


def _time(node: exp.Expr) -> _Time | None:
    node = bare(node)
    if isinstance(node, exp.Column):
        dtype = type_of(node)
        if dtype is None or not pa.types.is_timestamp(dtype):
            return None
        return _Time(node.table.lower(), node.name, 0, dtype)
    if isinstance(node, exp.Add | exp.Sub):
        base, length = _time(node.this), _micros(node.expression)
        if base is None and isinstance(node, exp.Add):
            base, length = _time(node.expression), _micros(node.this)
        if base is not None and length is not None:
            return replace(base, plus=base.plus + (length if isinstance(node, exp.Add) else -length))
    return None


def _micros(node: exp.Expr) -> int | None:
    """Returns the length of an interval literal; months have none."""
    node = bare(node)
    if isinstance(node, exp.Neg):
        length = _micros(node.this)
        return None if length is None else -length
    if isinstance(node, exp.Add | exp.Sub):
        a, b = _micros(node.this), _micros(node.expression)
        if a is None or b is None:
            return None
        return a + b if isinstance(node, exp.Add) else a - b
    unit = node.args.get("unit") if isinstance(node, exp.Interval) else None
    if not isinstance(unit, exp.Var) or not isinstance(node.this, exp.Literal):
        return None
    length_of_unit = _UNITS.get(unit_name(unit))
    try:
        count = Decimal(node.this.name.strip())
    except InvalidOperation:
        return None
    if length_of_unit is None or not count.is_finite() or count.adjusted() > _DIGITS:
        return None
    return int(count * length_of_unit)
