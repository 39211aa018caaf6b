"""Converts a column of Python values to an Arrow array, without loss.

The fast path is vectorised: the set of the values' types shows whether pyarrow can convert them as they are. Only a
column with other values is converted value by value. Nested types are split into columns of their parts, so the same
rules apply at every depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import accumulate, chain
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import did_you_mean
from millpond.records.arrays import array_of
from millpond.records.values import Unfit, exact, shown
from millpond.types import type_name

_NONE = type(None)
_FIRST_MICROSECOND = -62_135_596_800_000_000
_LAST_MICROSECOND = 253_402_300_799_999_999


class BadValue(Exception):
    """Reports that value ``row`` of a column does not fit; ``path`` leads to the bad part of it."""

    def __init__(self, row: int, path: tuple[str, ...], reason: str, hint: str | None = None):
        super().__init__(reason)
        self.row, self.path, self.reason, self.hint = row, path, reason, hint

    def inside(self, row: int, *path: str) -> BadValue:
        return BadValue(row, (*path, *self.path), self.reason, self.hint)


def column(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    """Returns the values as an array of exactly ``dtype``. Raises BadValue for the first one that does not fit."""
    t = pa.types
    if t.is_struct(dtype):
        return _structs(values, dtype)
    if t.is_map(dtype):
        return _maps(values, dtype)
    if t.is_list(dtype):
        return _lists(values, dtype)
    kinds = set(map(type, values))
    kinds.discard(_NONE)
    try:
        fast = _fast(values, kinds, dtype)
    except (pa.ArrowException, OverflowError, ValueError, UnicodeError):
        fast = None
    return fast if fast is not None else _slow(values, dtype)


def _fast(values: Sequence[Any], kinds: set[type], dtype: pa.DataType) -> pa.Array | None:
    """Returns the array if pyarrow converts values of these Python types correctly, else None."""
    t = pa.types
    if not kinds:
        return pa.nulls(len(values), dtype)
    if t.is_integer(dtype):
        plain = kinds == {int}
    elif t.is_float64(dtype):
        plain = kinds <= {int, float}
    elif t.is_float32(dtype) and kinds <= {int, float}:
        array = pa.array(values, dtype)
        wide = pa.array(values, pa.float64())
        return array if pc.is_inf(array).equals(pc.is_inf(wide)) else None
    elif t.is_string(dtype):
        plain = kinds == {str}
    elif t.is_boolean(dtype):
        plain = kinds == {bool}
    elif t.is_decimal(dtype):
        if kinds == {str}:
            return pa.array(values, pa.string()).cast(dtype)
        plain = kinds == {Decimal}
    elif t.is_binary(dtype):
        plain = kinds == {bytes}
    elif t.is_timestamp(dtype):
        if kinds == {str}:
            return _in_range(pa.array(values, pa.string()).cast(dtype))
        if kinds == {datetime} and (dtype.tz is not None or not any(v and v.tzinfo for v in values)):
            return _in_range(pa.array(values, dtype))
        return None
    elif t.is_date(dtype):
        if kinds == {str}:
            return pa.array(values, pa.string()).cast(dtype)
        plain = kinds == {date}
    else:
        plain = t.is_duration(dtype) and kinds == {timedelta}
    return array_of(values, dtype) if plain else None


def _in_range(timestamps: pa.Array) -> pa.Array | None:
    """Returns the timestamps if all are of the years 1 to 9999, which a datetime can represent, also after conversion
    to UTC.
    """
    numbers = pc.min_max(timestamps.view(pa.int64()))
    first, last = numbers["min"].as_py(), numbers["max"].as_py()
    return timestamps if first >= _FIRST_MICROSECOND and last <= _LAST_MICROSECOND else None


def _slow(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    converted = []
    for row, value in enumerate(values):
        try:
            converted.append(exact(value, dtype))
        except Unfit as e:
            raise BadValue(row, (), str(e)) from None
    return pa.array(converted, dtype)


def _structs(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    names = {dtype.field(i).name.lower(): i for i in reversed(range(dtype.num_fields))}
    parts: list[list[Any]] = [[] for _ in range(dtype.num_fields)]
    missing = []
    for row, value in enumerate(values):
        missing.append(value is None)
        if value is not None and not isinstance(value, Mapping):
            _refuse(row, value, dtype, "a dict")
        taken: dict[int, Any] = {}
        for name, part in (value or {}).items():
            at = names.get(name.lower()) if isinstance(name, str) else None
            if at is None or at in taken:
                known = [dtype.field(i).name for i in range(dtype.num_fields)]
                reason = f'"{name}" is given twice' if at is not None else f'"{name}" is not a field of it'
                raise BadValue(row, (), reason, did_you_mean(str(name), known) if at is None else None)
            taken[at] = part
        for at, values_of_part in enumerate(parts):
            values_of_part.append(taken.get(at))
    arrays = []
    for at, part in enumerate(parts):
        child = dtype.field(at)
        try:
            arrays.append(column(part, child.type))
        except BadValue as e:
            raise e.inside(e.row, child.name) from None
    mask = pa.array(missing, pa.bool_())
    if not arrays:
        return pa.array([None if gone else {} for gone in missing], dtype)
    return pa.StructArray.from_arrays(arrays, fields=list(dtype), mask=mask)


def _lists(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, (list, tuple)) and type(value).__name__ != "ndarray":
            _refuse(row, value, dtype, "a list")
    offsets, missing = _offsets(values)
    flat = list(chain.from_iterable(v for v in values if v is not None))
    items = _flat_column(flat, dtype.value_type, offsets, None)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=dtype, mask=missing)


def _maps(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, Mapping):
            _refuse(row, value, dtype, "a dict")
        if value and None in value:
            raise BadValue(row, (), "a key of a MAP cannot be NULL")
    offsets, missing = _offsets(values)
    full = [v for v in values if v is not None]
    flat_keys = list(chain.from_iterable(full))
    keys = _flat_column(flat_keys, dtype.key_type, offsets, flat_keys)
    items = _flat_column(
        list(chain.from_iterable(v.values() for v in full)), dtype.item_type, offsets, flat_keys
    )
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=dtype, mask=missing)


def _flat_column(
    flat: Sequence[Any], dtype: pa.DataType, offsets: Sequence[int], keys: Sequence[Any] | None
) -> pa.Array:
    try:
        return column(flat, dtype)
    except BadValue as e:
        row = int(np.searchsorted(np.asarray(offsets), e.row, side="right")) - 1
        step = str(keys[e.row]) if keys is not None else f"[{e.row - offsets[row]}]"
        raise e.inside(row, step) from None


def _offsets(values: Sequence[Any]) -> tuple[list[int], pa.Array]:
    lengths: Iterable[int] = (0 if v is None else len(v) for v in values)
    return [0, *accumulate(lengths)], pa.array([v is None for v in values], pa.bool_())


def _refuse(row: int, value: object, dtype: pa.DataType, takes: str) -> NoReturn:
    raise BadValue(row, (), f"{shown(value)} is not a value of type {type_name(dtype)}, which takes {takes}")


def first_null(array: pa.Array | pa.ChunkedArray) -> int | None:
    """Returns the index of the first NULL, or None."""
    if not array.null_count:
        return None
    return int(pc.index(array.is_null(), True).as_py())
