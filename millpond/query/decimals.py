"""Computes with decimals of up to 38 digits whose exact results have more, as Spark does and DuckDB cannot.

Spark multiplies to 38 digits, divides to 38 digits after the point, and then rounds to the scale of the result, each
time half up. Here whole columns are computed with integers of any length. (Arrow's decimals of 256 bits would be twice
as fast, but round some long ones wrongly; DuckDB's own casts between scales are slower.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.types import whole

Column: TypeAlias = pa.Array | pa.ChunkedArray
Integers: TypeAlias = npt.NDArray[np.object_]
_NAME = re.compile(r"\bdecimal_(add|subtract|multiply|divide)((?:_\d+){6})\b")
_DIGITS = 38
_MASK = (1 << 64) - 1


def functions_in(sql: str) -> Iterator[tuple[str, Callable[..., pa.Array], list[pa.DataType], pa.DataType]]:
    """Yields the functions that rendered SQL calls: name, what it does, the types of its arguments and its result."""
    for name, operation, numbers in {(m[0], m[1], m[2]) for m in _NAME.finditer(sql)}:
        n = [int(number) for number in numbers.split("_")[1:]]
        a, b, result = (pa.decimal128(n[i], n[i + 1]) for i in (0, 2, 4))
        yield name, _function(operation, a.scale, b.scale, result), [a, b], result


def _function(operation: str, a: int, b: int, result: pa.DataType) -> Callable[..., pa.Array]:
    compute, word = _OPERATIONS[operation]

    def over(left: Column, right: Column) -> pa.Array:
        both = [whole(c) if isinstance(c, pa.ChunkedArray) else c for c in (left, right)]
        there = pc.and_(both[0].is_valid(), both[1].is_valid())
        every = bool(pc.all(there).as_py())
        n, m = (_integers(c if every else c.filter(there)) for c in both)
        try:
            found = _decimals(compute(n, a, m, b, result.scale), result)
        except OverflowError:
            raise ValueError(f"Overflow in {word}") from None
        if every:
            return found
        place = pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1)
        return found.take(pc.if_else(there, place, None))

    return over


def _add(n: Integers, a: int, m: Integers, b: int, scale: int) -> Integers:
    n, m = (n, m * 10 ** (a - b)) if a >= b else (n * 10 ** (b - a), m)
    return _rounded(n + m, 10 ** (max(a, b) - scale))


def _subtract(n: Integers, a: int, m: Integers, b: int, scale: int) -> Integers:
    return _add(n, a, -m, b, scale)


def _multiply(n: Integers, a: int, m: Integers, b: int, scale: int) -> Integers:
    exact, unit = n * m, 10 ** (a + b - scale)
    found = _rounded(exact, unit)
    # Rounding to 38 digits first makes a difference only for what is less than half, and almost.
    short = np.abs(2 * np.abs(exact - found * unit) - unit)
    close = (short > 0) & (short * 10**7 < unit)
    for place in np.flatnonzero(close):
        found[place] = _half_up(_to_38_digits(int(exact[place])), unit)
    return found


def _to_38_digits(number: int) -> int:
    unit = int("1" + "0" * max(len(str(abs(number))) - _DIGITS, 0))
    return _half_up(number, unit) * unit


def _divide(n: Integers, a: int, m: Integers, b: int, scale: int) -> Integers:
    if not m.all():
        raise ValueError("Division by zero")
    shift = _DIGITS + b - a
    n, m = (n * 10**shift, m) if shift >= 0 else (n, m * 10**-shift)
    quotient = _rounded(np.where(m < 0, -n, n), np.abs(m))
    return _rounded(quotient, 10 ** (_DIGITS - scale))


_OPERATIONS: dict[str, tuple[Callable[[Integers, int, Integers, int, int], Integers], str]] = {
    "add": (_add, "addition"),
    "subtract": (_subtract, "subtraction"),
    "multiply": (_multiply, "multiplication"),
    "divide": (_divide, "division"),
}


def _half_up(n: int, d: int) -> int:
    """Returns the quotient by a positive number, rounded to a whole number, halves away from zero."""
    size = (2 * abs(n) + d) // (2 * d)
    return -size if n < 0 else size


def _rounded(n: Integers, d: Any) -> Integers:
    """Rounds a column like ``_half_up``."""
    size: Integers = (2 * np.abs(n) + d) // (2 * d)
    return np.where(n < 0, -size, size)


def _integers(column: pa.Array) -> Integers:
    """Returns the digits of decimals without NULL, without their point."""
    words = np.frombuffer(column.buffers()[1] or b"", np.int64)[2 * column.offset :][: 2 * len(column)]
    high, low = words[1::2], words[::2].view(np.uint64)
    found: Integers = high.astype(object) * (1 << 64) + low.astype(object)
    return found


def _decimals(numbers: Integers, dtype: pa.DataType) -> pa.Array:
    """Returns integers as decimals. Raises OverflowError for one that has more digits than the type."""
    if len(numbers) and np.abs(numbers).max() >= 10**dtype.precision:
        raise OverflowError
    words = np.empty(2 * len(numbers), np.uint64)
    words[::2] = (numbers & _MASK).astype(np.uint64)
    words[1::2] = ((numbers >> 64) & _MASK).astype(np.uint64)
    return pa.Array.from_buffers(dtype, len(numbers), [None, pa.py_buffer(words)])
