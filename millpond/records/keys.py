"""Makes keys of a hash index: Arrow columns to hashable Python values that are equal when SQL says so.

Times are their numbers of units, so that no datetime is built. NaN equals NaN and -0.0 equals 0.0. Numbers of different
width need no cast: Python compares and hashes them by value.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Key = Hashable
NAN: Key = object()
MISS: Key = object()
"""A key that no index contains."""


def key_list(columns: Sequence[pa.ChunkedArray | pa.Array]) -> list[Key]:
    """Returns a key for each row: the value of a single column, or a tuple. NULL is None."""
    if len(columns) == 1:
        return _values(columns[0])
    return list(zip(*(_values(c) for c in columns), strict=True))


def lookup_list(types: Sequence[pa.DataType], keys: pa.Table, nulls: bool) -> list[Key]:
    """Returns the keys to look for, each once, in columns of these types. What cannot match is MISS, and so is NULL
    unless ``nulls``.
    """
    lists = []
    for dtype, column in zip(types, keys.columns, strict=True):
        values = _fitting(column, dtype)
        if not nulls and column.null_count:
            values = [MISS if v is None else v for v in values]
        lists.append(values)
    found = lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))
    return list(dict.fromkeys(found))


def integers_of(keys: pa.ChunkedArray | Sequence[int]) -> npt.NDArray[np.int64] | None:
    """Returns the keys as numbers, if all of them are integers of 64 bits."""
    if not isinstance(keys, pa.ChunkedArray):
        try:
            return np.array(keys, dtype=np.int64)
        except OverflowError:
            return None
    dtype = keys.type
    if not pa.types.is_integer(dtype) or pa.types.is_uint64(dtype) or keys.null_count:
        return None
    return whole_numbers(keys)


def whole_numbers(values: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.int64]:
    """Returns integers without NULL as numbers. Arrow's own conversion would load pandas at its first call."""
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    if len(chunks) == 1:
        return np.from_dlpack(chunks[0]).astype(np.int64, copy=False)
    return np.concatenate([np.empty(0, np.int64), *(np.from_dlpack(c).astype(np.int64) for c in chunks)])


def average_size(keys: Iterable[Key]) -> int:
    """Returns the bytes of a key, estimated from a few of them."""
    some = list(islice(keys, 50))
    size = sum(sys.getsizeof(k) + (sum(map(sys.getsizeof, k)) if type(k) is tuple else 0) for k in some)
    return size // max(1, len(some))


def _values(column: pa.ChunkedArray | pa.Array) -> list[Key]:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        return [v for chunk in array.chunks for v in _values(chunk)]
    t, dtype = pa.types, array.type
    if t.is_timestamp(dtype) or t.is_duration(dtype):
        array = array.view(pa.int64())
    elif t.is_date32(dtype):
        array = array.view(pa.int32())
    if t.is_integer(array.type) and not array.null_count:
        return cast(list[Key], np.from_dlpack(array).tolist())
    if t.is_floating(dtype):
        values = array.to_pylist()
        if np.isnan(array.to_numpy(zero_copy_only=False)).any():
            return [NAN if v is not None and v != v else v for v in values]
        return cast(list[Key], values)
    if t.is_nested(dtype):
        return [_frozen(v) for v in array.to_pylist()]
    return cast(list[Key], array.to_pylist())


def _frozen(value: Any) -> Key:
    if isinstance(value, dict):
        return tuple((k, _frozen(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(v) for v in value)
    if isinstance(value, float) and value != value:
        return NAN
    return cast(Key, value)


def _fitting(column: pa.ChunkedArray, dtype: pa.DataType) -> list[Key]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type.equals(dtype):
        return _values(column)
    kind = _kind(dtype)
    if pa.types.is_null(column.type):
        return [None] * len(column)
    if _kind(column.type) != kind:
        return [MISS if value else None for value in column.is_valid().to_pylist()]
    if kind in ("number", "text", "bytes"):
        return _values(column)
    try:
        return _values(column.cast(dtype))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return [_one(value, dtype) for value in column]


def _one(value: pa.Scalar, dtype: pa.DataType) -> Key:
    if not value.is_valid:
        return None
    try:
        return _values(pa.array([value.as_py()], value.type).cast(dtype))[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return MISS


def same_kind(a: pa.DataType, b: pa.DataType) -> bool:
    """Returns whether values of two types may be compared."""
    return _kind(a) == _kind(b)


def _kind(dtype: pa.DataType) -> str:
    """Returns the kind of a type; types of one kind may be compared."""
    t = pa.types
    if t.is_integer(dtype) or t.is_floating(dtype) or t.is_decimal(dtype):
        return "number"
    if t.is_string(dtype) or t.is_large_string(dtype) or t.is_string_view(dtype):
        return "text"
    if t.is_binary(dtype) or t.is_large_binary(dtype) or t.is_fixed_size_binary(dtype):
        return "bytes"
    if t.is_timestamp(dtype) or t.is_date(dtype):
        return "time"
    if t.is_list(dtype) or t.is_large_list(dtype):
        return "list"
    return str(dtype.id)
