"""Aggregates over a few values, with Spark's types and rounding. What overflows raises Unfit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import reduce
from typing import Any

import pyarrow as pa

from millpond.records.values import Unfit

Aggregate = Callable[[Sequence[Any]], Any]
EXACT = Context(prec=80, rounding=ROUND_HALF_UP)
_LONG = 1 << 63


def aggregate_of(name: str, dtype: pa.DataType | None) -> Aggregate:
    """The function from the values of a column that are not NULL to their aggregate."""
    if name == "count":
        return len
    t = pa.types
    if name in ("min", "max"):
        return (_min if name == "min" else _max) if not t.is_floating(dtype) else _float_extreme(name)
    if t.is_decimal(dtype):
        return _decimal_sum(dtype) if name == "sum" else _decimal_average(dtype)
    if name == "avg":
        return lambda values: _add(values) / len(values) if values else None
    return _long_sum if t.is_integer(dtype) else lambda values: _add(values) if values else None


def _min(values: Sequence[Any]) -> Any:
    return min(values) if values else None


def _max(values: Sequence[Any]) -> Any:
    return max(values) if values else None


def _float_extreme(name: str) -> Aggregate:
    pick = _min if name == "min" else _max

    def function(values: Sequence[float]) -> float | None:
        if any(v != v for v in values):
            raise Unfit("NaN has an order of its own")
        found: float | None = pick(values)
        return found

    return function


def _long_sum(values: Sequence[int]) -> int | None:
    total = sum(values)
    if not -_LONG <= total < _LONG:
        raise Unfit("the sum is out of range")
    return total if values else None


def _add(values: Sequence[float]) -> float:
    """One by one: Python's own sum corrects its rounding, and nobody else's does."""
    total = 0.0
    for value in values:
        total += value
    return total


def _decimal_sum(dtype: pa.Decimal128Type) -> Aggregate:
    limit = Decimal(10) ** (min(38, dtype.precision + 10) - dtype.scale)

    def function(values: Sequence[Decimal]) -> Decimal | None:
        if not values:
            return None
        total = reduce(EXACT.add, values)
        if abs(total) >= limit:
            raise Unfit("the sum is out of range")
        return total

    return function


def _decimal_average(dtype: pa.Decimal128Type) -> Aggregate:
    digits = dtype.precision - dtype.scale
    unit = Decimal(1).scaleb(-min(dtype.scale + 4, max(38 - digits, min(dtype.scale + 4, 6))))

    def function(values: Sequence[Decimal]) -> Decimal | None:
        if not values:
            return None
        return EXACT.divide(reduce(EXACT.add, values), Decimal(len(values))).quantize(unit, context=EXACT)

    return function
