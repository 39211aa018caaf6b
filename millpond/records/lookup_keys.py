"""Converts keys of a lookup to the types of the columns that they are compared with."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from millpond.records.keys import key_list, same_kind
from millpond.types import whole


def fitting_keys(types: Sequence[pa.DataType], keys: pa.Table, *, nulls: bool) -> list[pa.Array]:
    """Returns the keys, each once, as arrays of these types. Keys that cannot match are left out: those that do not fit
    a type by value, and NULL unless ``nulls``.
    """
    columns, fits = [], pa.repeat(True, keys.num_rows)
    for dtype, column in zip(types, keys.columns, strict=True):
        values, fit = _fitting(_one_array(column), dtype)
        columns.append(values)
        fits = pc.and_(fits, fit if nulls else pc.and_(fit, values.is_valid()))
    kept = [c.filter(fits) for c in columns]
    if not kept or not len(kept[0]):
        return kept
    first = dict.fromkeys(key_list(kept))
    if len(first) == len(kept[0]):
        return kept
    seen: dict[object, int] = {}
    for at, key in enumerate(key_list(kept)):
        seen.setdefault(key, at)
    pick = pa.array(list(seen.values()), pa.int64())
    return [c.take(pick) for c in kept]


def _one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return whole(column) if isinstance(column, pa.ChunkedArray) else column


def _fitting(values: pa.Array, dtype: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Returns the values in the type, and which of them are still equal to the original."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    everything = pa.repeat(True, len(values))
    if values.type.equals(dtype):
        return values, everything
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), dtype), everything
    if not same_kind(values.type, dtype):
        return pa.nulls(len(values), dtype), values.is_null()
    try:
        cast = values.cast(dtype)
        return cast, _equal(cast, values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        found = [_cast_one(value, dtype) for value in values]
        cast = pa.array(found, dtype)
        return cast, pc.or_(cast.is_valid(), values.is_null())


def _equal(cast: pa.Array, values: pa.Array) -> pa.Array:
    if not pa.types.is_floating(values.type) or pa.types.is_nested(values.type):
        return pa.repeat(True, len(values))
    back = cast.cast(values.type)
    nan = pc.and_(pc.is_nan(back), pc.is_nan(values))
    return pc.fill_null(pc.or_(pc.equal(back, values), nan), True)


def _cast_one(value: pa.Scalar, dtype: pa.DataType) -> object:
    if not value.is_valid:
        return None
    one = pa.array([value.as_py()], value.type)
    try:
        cast = one.cast(dtype)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return cast[0].as_py() if _equal(cast, one)[0].as_py() else None
