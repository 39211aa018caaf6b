"""Converts parsed JSON to Arrow, value by value: exact for every type, for what Arrow's own reader cannot do.

Numbers remain text until the type of their column is known, so a decimal has all its digits and a whole number beyond
BIGINT is recognised.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.formats.text import Misfit, convert

_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


class Number(str):
    """Contains the text of a JSON number."""

    __slots__ = ()


DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number)


def column_of(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    """Converts parsed values to a column; raises Misfit for the first that is not of the type."""
    t = pa.types
    if t.is_struct(dtype):
        return _structs(values, dtype)
    if t.is_list(dtype):
        return _lists(values, dtype)
    if t.is_map(dtype):
        return _maps(values, dtype)
    if t.is_boolean(dtype):
        return pa.array(_only(values, bool), dtype)
    if t.is_string(dtype):
        return _strings([None if v is None else text_of(v) for v in values])
    if t.is_binary(dtype):
        return pa.array([_bytes(i, v) for i, v in enumerate(values)], dtype)
    if t.is_null(dtype):
        return pa.nulls(len(values))
    texts = _strings([_text_for(i, v, dtype) for i, v in enumerate(values)])
    return convert(texts, dtype, empty_is_null=False)


def field_of(record: Mapping[str, Any], name: str) -> Any:
    """Returns the field called ``name``: with the same spelling, else ignoring case, else None."""
    if name in record:
        return record[name]
    lowered = name.lower()
    return next((v for k, v in record.items() if k.lower() == lowered), None)


def text_of(value: Any) -> str:
    """Returns the JSON text of a value; a string as it is."""
    if isinstance(value, str):
        return value
    return _json(value)


def _json(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(k)}:{_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _text_for(index: int, value: Any, dtype: pa.DataType) -> str | None:
    """Returns the text of a value of a kind that the type accepts: numbers for numbers, strings for dates."""
    if value is None:
        return None
    if isinstance(value, Number):
        fine = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)
    elif isinstance(value, str):
        number = pa.types.is_integer(dtype) or pa.types.is_floating(dtype)
        fine = not number or (value in _NOT_FINITE and pa.types.is_floating(dtype))
    else:
        fine = False
    if not fine or pa.types.is_duration(dtype):
        raise Misfit(index, text_of(value))
    return str(value)


def _strings(texts: Sequence[str | None]) -> pa.Array:
    """Returns a column of text; half of a surrogate pair, which JSON can write, is not text."""
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        bad = next(i for i, t in enumerate(texts) if t and any("\ud800" <= c <= "\udfff" for c in t))
        raise Misfit(bad, ascii(texts[bad])) from None


def _only(values: Sequence[Any], kind: type) -> list[Any]:
    for index, value in enumerate(values):
        if value is not None and not isinstance(value, kind):
            raise Misfit(index, text_of(value))
    return list(values)


def _bytes(index: int, value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        if isinstance(value, str) and not isinstance(value, Number):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise Misfit(index, text_of(value))


def _structs(values: Sequence[Any], dtype: pa.StructType) -> pa.Array:
    records = [{} if v is None else v for v in _only(values, dict)]
    children = [column_of([field_of(r, f.name) for r in records], f.type) for f in dtype]
    return pa.StructArray.from_arrays(children, fields=list(dtype), mask=_nulls(values))


def _lists(values: Sequence[Any], dtype: pa.ListType) -> pa.Array:
    lists = _only(values, list)
    parents = [i for i, v in enumerate(lists) for _ in v or ()]
    items = _inner([item for v in lists for item in v or ()], dtype.value_type, parents)
    return pa.ListArray.from_arrays(_offsets(lists), items, type=dtype, mask=_nulls(values))


def _maps(values: Sequence[Any], dtype: pa.MapType) -> pa.Array:
    maps = _only(values, dict)
    parents = [i for i, v in enumerate(maps) for _ in v or ()]
    try:
        keys = convert(_strings([k for v in maps for k in v or ()]), dtype.key_type, empty_is_null=False)
    except Misfit as e:
        raise Misfit(parents[e.index], e.value) from None
    items = _inner([item for v in maps for item in (v or {}).values()], dtype.item_type, parents)
    return pa.MapArray.from_arrays(_offsets(maps), keys, items, type=dtype, mask=_nulls(values))


def _inner(values: Sequence[Any], dtype: pa.DataType, parents: Sequence[int]) -> pa.Array:
    try:
        return column_of(values, dtype)
    except Misfit as e:
        raise Misfit(parents[e.index], e.value) from None


def _offsets(values: Sequence[Any]) -> pa.Array:
    total, found = 0, [0]
    for value in values:
        total += len(value or ())
        found.append(total)
    return pa.array(found, pa.int32())


def _nulls(values: Sequence[Any]) -> pa.Array:
    return pa.array([v is None for v in values], pa.bool_())
