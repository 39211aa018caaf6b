"""Keeps variances and percentiles of groups whose values come and go, as ``retraction.py`` keeps sums.

A variance is exact until it is rounded once; it is NULL as in SQL for too few values. A percentile lies between two
values by proportion.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import floor, isfinite, sqrt
from typing import Any

import pyarrow as pa

from millpond.records.ordered_counts import OrderedCounts
from millpond.records.retraction import Retraction
from millpond.records.tuples import NAN
from millpond.records.values import Unfit

_UNITS = 1 << 1074
"""Every finite DOUBLE is a whole number of these parts of 1."""


class Spread:
    """Keeps the count of numbers, as DOUBLE has them, and the exact sums of them and of their squares: whole numbers,
    or in units of the least of them. NaN and infinities are left to the query.
    """

    keeps_values = False

    def __init__(self, dtype: pa.DataType, less: int, *, root: bool):
        self._whole = pa.types.is_integer(dtype)
        self._less = less
        self._root = root

    def start(self) -> list[int]:
        return [0, 0, 0, 0]

    def add(self, state: list[int], value: Any, times: int) -> None:
        if value is None:
            return
        number = float(value)
        if not isfinite(number):
            state[3] += times
            return
        above, below = number.as_integer_ratio()
        exact = above if self._whole else above * (_UNITS // below)
        state[0] += times
        state[1] += times * exact
        state[2] += times * exact * exact

    def load(self, state: list[int], count: int, total: Any, size: Any) -> None:
        """Sets the count of whole numbers, their sum, and the sum of their squares."""
        state[:] = [count, int(total or 0), int(size or 0), 0]

    def read(self, state: list[int]) -> float | None:
        count, total, squares, others = state
        if others:
            raise Unfit("the variance of infinite values")
        if count <= self._less:
            return None
        unit = 1 if self._whole else _UNITS * _UNITS
        try:
            found = float(Fraction(count * squares - total * total, count * (count - self._less) * unit))
        except OverflowError:
            raise Unfit("the variance is out of range") from None
        return sqrt(found) if self._root else found

    def values(self, state: Any) -> dict[Any, int]:
        return {}


class Quantile:
    """Keeps each different value with how often it occurs, and from the first reading on their order. NaN, which is
    greater than all others, is counted apart.
    """

    keeps_values = True

    def __init__(self, share: float):
        self._share = share

    def start(self) -> Any:
        return [{}, None, 0, 0]

    def add(self, state: Any, value: Any, times: int) -> None:
        if value is None:
            return
        state[2] += times
        if value != value:
            state[3] += times
            return
        counts, order = state[0], state[1]
        before = counts.get(value, 0)
        if before + times:
            counts[value] = before + times
        else:
            del counts[value]
        if order is not None:
            order.changed(value, times, came=not before, went=not before + times)

    def read(self, state: Any) -> float | None:
        if not state[2]:
            return None
        place = (state[2] - 1) * self._share
        below = floor(place)
        rest = place - below
        low = self._at(state, below)
        return low * (1.0 - rest) + self._at(state, below + 1) * rest if rest else low

    def _at(self, state: Any, place: int) -> float:
        if state[1] is None:
            state[1] = OrderedCounts(state[0])
        return NAN if place >= state[2] - state[3] else float(state[1].at(place))

    def values(self, state: Any) -> dict[Any, int]:
        found: dict[Any, int] = state[0]
        return found


def spread_back(less: int, *, root: bool) -> Callable[..., Retraction | None]:
    """Returns what keeps a variance, of a sample with ``less`` of 1, or the root of it."""

    def back(dtype: pa.DataType | None, *, distinct: bool, share: float | None = None) -> Retraction | None:
        return None if distinct or not _is_number(dtype) else Spread(dtype, less, root=root)

    return back


def quantile_back(
    dtype: pa.DataType | None, *, distinct: bool, share: float | None = None
) -> Retraction | None:
    if distinct or share is None or not 0 <= share <= 1 or not _is_number(dtype):
        return None
    return Quantile(share)


def _is_number(dtype: pa.DataType | None) -> bool:
    t = pa.types
    return dtype is not None and (t.is_integer(dtype) or t.is_decimal128(dtype) or t.is_floating(dtype))
