"""Makes Arrow arrays of Python values without pandas.

``pyarrow.array`` is faster, but loads pandas at its first call, which takes longer than 100,000 rows do.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_MOST_BYTES = 2**31 - 1


def array_of(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    """Returns what ``pyarrow.array`` does for values of the Python type that is natural for ``dtype``, or None. Raises
    OverflowError, UnicodeError or pa.ArrowException for one that does not fit."""
    made = None if "pandas" in sys.modules else numpy_array(values, dtype)
    return pa.array(values, dtype) if made is None else made


def numpy_array(values: Sequence[Any], dtype: pa.DataType) -> pa.Array | None:
    """Makes an array of integers, doubles or texts; None if it is of another type, or too large."""
    t = pa.types
    if t.is_float64(dtype):
        if not {*map(type, values)} <= {float, type(None)}:
            return None  # integers that a double cannot hold must be found
        known, valid = _without_nulls(values, 0.0)
        return _made(dtype, len(values), valid, np.array(known, np.float64))
    if t.is_integer(dtype):
        known, valid = _without_nulls(values, 0)
        numbers, most = np.array(known, np.int64), (1 << dtype.bit_width - 1) - 1
        if len(numbers) and not -most - 1 <= int(numbers.min()) <= int(numbers.max()) <= most:
            raise OverflowError
        return _made(dtype, len(values), valid, numbers.astype(f"i{dtype.bit_width // 8}"))
    if not t.is_string(dtype):
        return None
    known, valid = _without_nulls(values, "")
    joined = "".join(known)
    data = joined.encode()
    if len(data) > _MOST_BYTES:
        return None
    lengths = map(len, known if len(data) == len(joined) else map(str.encode, known))
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(lengths, np.int32, len(values)), out=ends[1:])
    return _made(dtype, len(values), valid, ends, data)


def _without_nulls(values: Sequence[Any], instead: Any) -> tuple[Sequence[Any], pa.Buffer | None]:
    """Returns the values with another one for None, and the bits of those that are not NULL."""
    if None not in values:
        return values, None
    there = np.array([value is not None for value in values])
    bits = np.packbits(there, bitorder="little")
    return [instead if value is None else value for value in values], pa.py_buffer(bits)


def _made(dtype: pa.DataType, length: int, valid: pa.Buffer | None, *buffers: Any) -> pa.Array:
    return pa.Array.from_buffers(dtype, length, [valid, *map(pa.py_buffer, buffers)])
