"""Keeps aggregates of groups whose values come and go: what is added can be taken back, exactly.

The rows of the table of functions name these. Values are integers, decimals, texts, dates, times and Booleans: those
that compare exactly; and floating point numbers, whose exact sum is kept and rounded once. A result that is out of
range raises Unfit, as in ``aggregates.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from math import inf, isfinite
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from millpond.records.aggregates import EXACT, averaged, summed
from millpond.records.tuples import NAN
from millpond.records.values import Unfit

_UNITS = 1 << 1074
"""Every finite DOUBLE is a whole number of these parts of 1."""


class Retraction(Protocol):
    """Computes one aggregate from a state, which ``start`` makes for each group."""

    keeps_values: bool
    """Whether the state has each different value; otherwise it has their count and their sum."""

    def start(self) -> Any: ...

    def add(self, state: Any, value: Any, times: int) -> None:
        """Adds a value so many times, or takes it back a negative number of times. NULL counts for nothing."""

    def read(self, state: Any) -> Any:
        """Returns the value of the aggregate."""

    def values(self, state: Any) -> dict[Any, int]:
        """Returns the different values of a state, with how often each occurs; empty if it does not keep them."""


@runtime_checkable
class Summed(Retraction, Protocol):
    """Computes an aggregate whose state a query can compute, without its values one by one."""

    def load(self, state: Any, count: int, total: Any, size: Any) -> None:
        """Sets the count of all values, their sum, and the sum of their sizes without a sign."""


class _Sums:
    """Keeps a count and a sum."""

    keeps_values = False

    def __init__(self, read: Callable[[int, Any], Any]):
        self._read = read

    def start(self) -> list[Any]:
        return [0, 0]

    def add(self, state: list[Any], value: Any, times: int) -> None:
        if value is not None:
            state[0] += times
            if type(value) is Decimal:
                state[1] = EXACT.add(state[1], EXACT.multiply(value, times))
            else:
                state[1] += value * times

    def load(self, state: list[Any], count: int, total: Any, size: Any) -> None:
        state[:] = [count, 0 if total is None else total]

    def read(self, state: list[Any]) -> Any:
        return self._read(*state)

    def values(self, state: Any) -> dict[Any, int]:
        return {}


class _Average:
    """Keeps a count, a sum, and the sum of the sizes of the values: while that has no more digits than a DOUBLE, no sum
    of some of the values is rounded, in whatever order they are added.
    """

    keeps_values = False

    def start(self) -> list[int]:
        return [0, 0, 0]

    def add(self, state: list[int], value: int | None, times: int) -> None:
        if value is not None:
            state[0] += times
            state[1] += value * times
            state[2] += abs(value) * times

    def load(self, state: list[int], count: int, total: Any, size: Any) -> None:
        state[:] = [count, int(total or 0), int(size or 0)]

    def read(self, state: list[int]) -> float | None:
        count, total, size = state
        if size >= 1 << 53:
            raise Unfit("the sum has more digits than a DOUBLE")
        return total / count if count else None

    def values(self, state: Any) -> dict[Any, int]:
        return {}


class _FloatSums:
    """Keeps the exact sum of floating point numbers: an integer, in units of the least of them. NaN and infinities are
    counted apart.
    """

    keeps_values = False

    def __init__(self, *, mean: bool):
        self._mean = mean

    def start(self) -> list[int]:
        return [0, 0, 0, 0, 0]

    def add(self, state: list[int], value: float | None, times: int) -> None:
        if value is None:
            return
        state[0] += times
        if isfinite(value):
            above, below = value.as_integer_ratio()
            exact = times * above * (_UNITS // below)
            state[1] += exact
        else:
            state[2 if value != value else 3 if value > 0 else 4] += times

    def read(self, state: list[int]) -> float | None:
        count, total, not_numbers, above, below = state
        if not count:
            return None
        if not_numbers or (above and below):
            return NAN
        if above or below:
            return inf if above else -inf
        try:
            return total / _UNITS / (count if self._mean else 1)
        except OverflowError:
            raise Unfit("the sum is out of range") from None

    def values(self, state: Any) -> dict[Any, int]:
        return {}


class _Count:
    """Keeps a count."""

    keeps_values = False

    def start(self) -> list[int]:
        return [0]

    def add(self, state: list[int], value: Any, times: int) -> None:
        if value is not None:
            state[0] += times

    def load(self, state: list[int], count: int, total: Any, size: Any) -> None:
        state[0] = count

    def read(self, state: list[int]) -> int:
        return state[0]

    def values(self, state: Any) -> dict[Any, int]:
        return {}


class _Values:
    """Keeps each different value, with how often it occurs."""

    keeps_values = True

    def start(self) -> dict[Any, int]:
        return {}

    def add(self, state: dict[Any, int], value: Any, times: int) -> None:
        if value is None:
            return
        left = state.get(value, 0) + times
        if left:
            state[value] = left
        else:
            del state[value]

    def read(self, state: dict[Any, int]) -> Any:
        return len(state)

    def values(self, state: Any) -> dict[Any, int]:
        found: dict[Any, int] = state
        return found


class _EachOnce(_Values):
    """Keeps each different value, with how often it occurs; and an aggregate in which it counts once."""

    def __init__(self, once: Retraction):
        self._once = once

    def start(self) -> Any:
        return [{}, self._once.start()]

    def add(self, state: Any, value: Any, times: int) -> None:
        if value is None:
            return
        values, once = state
        before = value in values
        super().add(values, value, times)
        if (value in values) is not before:
            self._once.add(once, value, -1 if before else 1)

    def read(self, state: Any) -> Any:
        return self._once.read(state[1])

    def values(self, state: Any) -> dict[Any, int]:
        found: dict[Any, int] = state[0]
        return found


class _Extreme(_Values):
    """Keeps each different value; and the least or greatest, until it is taken back."""

    def __init__(self, pick: Callable[..., Any]):
        self._pick = pick

    def start(self) -> Any:
        return [{}, None]

    def add(self, state: Any, value: Any, times: int) -> None:
        if value is None:
            return
        super().add(state[0], value, times)
        known = state[1]
        if known is not None:
            if value in state[0]:
                state[1] = self._pick(known, value)
            elif value == known or value is known:
                state[1] = None

    def read(self, state: Any) -> Any:
        values, known = state
        if known is None and values:
            state[1] = known = self._pick(values)
        return known

    def values(self, state: Any) -> dict[Any, int]:
        found: dict[Any, int] = state[0]
        return found


def floats_back(function: str, *, distinct: bool) -> Retraction | None:
    """Returns how an aggregate of floating point numbers is kept; None if it is not."""
    if function in ("sum", "avg"):
        return None if distinct else _FloatSums(mean=function == "avg")
    if function in ("min", "max"):
        pick = min if function == "min" else max
        return _Extreme(lambda *values: pick(*values, key=_with_nan))
    return count_back(pa.float64(), distinct=distinct) if function == "count" else None


def _with_nan(value: float) -> tuple[bool, float]:
    """Returns what floating point numbers are sorted by: NaN is greater than all others."""
    return (True, 0.0) if value != value else (False, value)


def count_back(dtype: pa.DataType | None, *, distinct: bool) -> Retraction | None:
    return _Values() if distinct else _Count()


def least_back(dtype: pa.DataType | None, *, distinct: bool) -> Retraction | None:
    return _Extreme(min)


def greatest_back(dtype: pa.DataType | None, *, distinct: bool) -> Retraction | None:
    return _Extreme(max)


def sum_back(dtype: pa.DataType | None, *, distinct: bool) -> Retraction | None:
    if not _exact(dtype):
        return None
    check = summed(dtype)
    sums = _Sums(lambda count, total: check([total]) if count else None)
    return _EachOnce(sums) if distinct else sums


def average_back(dtype: pa.DataType | None, *, distinct: bool) -> Retraction | None:
    if not _exact(dtype):
        return None
    mean: Retraction = _Sums(_decimal_average(dtype)) if pa.types.is_decimal(dtype) else _Average()
    return _EachOnce(mean) if distinct else mean


def _exact(dtype: pa.DataType | None) -> bool:
    return dtype is not None and (pa.types.is_integer(dtype) or pa.types.is_decimal128(dtype))


def _decimal_average(dtype: pa.Decimal128Type) -> Callable[[int, Any], Any]:
    # The mean of one value has the digits that the mean of all has.
    unit = averaged(dtype)([Decimal(0)])
    limit = Decimal(10) ** (min(38, dtype.precision + 4) - min(38, dtype.scale + 4))
    check = summed(dtype)

    def read(count: int, total: Any) -> Any:
        if not count:
            return None
        found = EXACT.divide(check([Decimal(total)]), Decimal(count)).quantize(unit, context=EXACT)
        if abs(found) >= limit:
            raise Unfit("the mean is out of range")
        return found

    return read
