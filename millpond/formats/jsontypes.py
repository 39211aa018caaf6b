"""The types of parsed JSON: what Spark's schema inference would say, for whole records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from millpond.formats.jsonvalues import Number
from millpond.types import Column, Schema

_LARGEST = 1 << 63
_WIDE = pa.decimal128(38, 0)


def discover_records(records: Iterable[dict[str, Any]]) -> Schema:
    """The columns of records, in the order in which they first appear; names ignore case."""
    found = pa.struct([])
    for record in records:
        found = _merge(found, _type_of(record))
    settled = _settle(found)
    return Schema(tuple(Column(f.name, f.type) for f in settled))


def _type_of(value: Any) -> pa.DataType:
    if value is None:
        return pa.null()
    if isinstance(value, Number):
        return _number(value)
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, list):
        inner = pa.null()
        for item in value:
            inner = _merge(inner, _type_of(item))
        return pa.list_(pa.field("element", inner))
    fields: dict[str, pa.Field] = {}
    for name, item in value.items():
        fields.setdefault(name.lower(), pa.field(name, _type_of(item)))
    return pa.struct(list(fields.values()))


def _number(text: str) -> pa.DataType:
    digits = text.lstrip("-")
    if not digits.isdigit():
        return pa.float64()
    if len(digits) < 19 or -_LARGEST <= int(text) < _LARGEST:
        return pa.int64()
    return _WIDE if len(digits) <= 38 else pa.float64()


def _merge(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type that holds the values of both; STRING if there is no other."""
    t = pa.types
    if a == b or t.is_null(b):
        return a
    if t.is_null(a):
        return b
    numbers = {a, b}
    if numbers <= {pa.int64(), _WIDE}:
        return _WIDE
    if numbers <= {pa.int64(), _WIDE, pa.float64()}:
        return pa.float64()
    if t.is_list(a) and t.is_list(b):
        return pa.list_(pa.field("element", _merge(a.value_type, b.value_type)))
    if t.is_struct(a) and t.is_struct(b):
        fields = {f.name.lower(): f for f in a}
        for field in b:
            known = fields.get(field.name.lower())
            merged = field if known is None else pa.field(known.name, _merge(known.type, field.type))
            fields[field.name.lower()] = merged
        return pa.struct(list(fields.values()))
    return pa.string()


def _settle(dtype: pa.DataType) -> pa.DataType:
    """What was NULL everywhere, or an object without fields, is read as STRING."""
    if pa.types.is_null(dtype):
        return pa.string()
    if pa.types.is_list(dtype):
        return pa.list_(pa.field("element", _settle(dtype.value_type)))
    if pa.types.is_struct(dtype):
        inner = [
            pa.field(f.name, pa.string() if _is_empty_struct(f.type) else _settle(f.type)) for f in dtype
        ]
        return pa.struct(inner)
    return dtype


def _is_empty_struct(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_struct(dtype)) and dtype.num_fields == 0
