"""Computes aggregates over a few non-NULL values, with Spark's types and rounding. Overflow raises Unfit."""

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


def counted(dtype: pa.DataType | None) -> Aggregate:
    return len


def summed(dtype: pa.DataType | None) -> Aggregate:
    """Computes SUM of numbers: integers and decimals exactly, others as DOUBLE."""
    if pa.types.is_decimal(dtype):
        return _decimal_sum(dtype)
    return _long_sum if pa.types.is_integer(dtype) else lambda values: _add(values) if values else None


def averaged(dtype: pa.DataType | None) -> Aggregate:
    """Computes AVG of numbers: a decimal for decimals, else a DOUBLE."""
    if pa.types.is_decimal(dtype):
        return _decimal_average(dtype)
    return lambda values: _add(values) / len(values) if values else None


def least(dtype: pa.DataType | None) -> Aggregate:
    return _float_extreme(_min) if pa.types.is_floating(dtype) else _min


def greatest(dtype: pa.DataType | None) -> Aggregate:
    return _float_extreme(_max) if pa.types.is_floating(dtype) else _max


def _min(values: Sequence[Any]) -> Any:
    return min(values) if values else None


def _max(values: Sequence[Any]) -> Any:
    return max(values) if values else None


def _float_extreme(pick: Aggregate) -> Aggregate:
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
    """Adds one by one: Python's own sum corrects its rounding, and no other engine does."""
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
