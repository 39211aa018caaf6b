"""Values of two sides, made comparable."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

FAR = "far"
"""Stands for a date or time beyond the years 1 to 9999, or for a number of days or microseconds that is one."""
RAISED = "raised"
"""Stands for the value of a row on which an expression fails."""


@dataclass(frozen=True)
class Refused:
    """A side does not take an expression, and says why."""

    why: str


def cells(table: pa.Table) -> list[list[Any]]:
    """The columns after ``k``, each a struct with the value ``v``, in the order of k."""
    ordered = table.sort_by("k")
    return [
        [
            RAISED if v is None else _near(v["v"], column.type.field(0).type)
            for v in _numbers(column).to_pylist()
        ]
        for column in ordered.columns[1:]
    ]


def _near(value: Any, dtype: pa.DataType) -> Any:
    if not isinstance(value, int):
        return value
    if pa.types.is_date32(dtype):
        return value if -719_162 <= value <= 2_932_896 else FAR
    if pa.types.is_timestamp(dtype):
        return value if -62_135_596_800_000_000 <= value < 253_402_300_800_000_000 else FAR
    return value


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates and times as numbers, however deep: Python has no years beyond 9999."""
    plain = as_numbers(column.type)
    return (
        column if plain == column.type else pa.chunked_array([_view(c, plain) for c in column.chunks], plain)
    )


def as_numbers(dtype: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_date32(dtype):
        return pa.int32()
    if t.is_timestamp(dtype) or t.is_duration(dtype):
        return pa.int64()
    if t.is_list(dtype) or t.is_large_list(dtype):
        return pa.list_(as_numbers(dtype.value_type))
    if t.is_map(dtype):
        return pa.map_(as_numbers(dtype.key_type), as_numbers(dtype.item_type))
    if t.is_struct(dtype):
        return pa.struct([pa.field(f.name, as_numbers(f.type)) for f in dtype])
    return dtype


def _view(array: pa.Array, plain: pa.DataType) -> pa.Array:
    t = pa.types
    if array.type == plain:
        return array
    if t.is_struct(plain):
        # A struct may have two fields of one name.
        inner = [_view(array.field(i), plain.field(i).type) for i in range(plain.num_fields)]
        return pa.StructArray.from_arrays(inner, fields=list(plain), mask=array.is_null())
    if t.is_list(plain):
        flat = _view(array.values, plain.value_type)
        return pa.ListArray.from_arrays(_offsets(array), flat)
    if t.is_map(plain):
        keys, items = _view(array.keys, plain.key_type), _view(array.items, plain.item_type)
        return pa.MapArray.from_arrays(_offsets(array), keys, items)
    return array.view(plain) if not t.is_duration(array.type) else array.cast(plain)


def _offsets(array: pa.Array) -> pa.Array:
    offsets = array.offsets
    if not array.null_count:
        return offsets
    missing = array.is_null().to_pylist()
    return pa.array(
        [None if i < len(missing) and missing[i] else o for i, o in enumerate(offsets.to_pylist())],
        pa.int32(),
    )


def same(a: Any, b: Any) -> bool:
    """Equal values; floats up to their last bits, NaN equal to NaN."""
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        if a == 0 and b == 0:
            return math.copysign(1, a) == math.copysign(1, b)
        return a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-300)
    if isinstance(a, Decimal) and isinstance(b, Decimal):
        return a.as_tuple() == b.as_tuple() or (a == 0 and b == 0)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and bool(a == b)
