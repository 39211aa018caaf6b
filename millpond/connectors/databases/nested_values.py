"""Writes nested values as JSON text, exactly and always the same for equal values, for backends without such types.

Decimals, times and values that are no JSON numbers are texts; a map is a list of pairs.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

_MICROSECOND = timedelta(microseconds=1)


def to_json(values: pa.Array) -> list[str | None]:
    """Writes each value of a nested array as text."""
    return [
        None
        if value is None
        else json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        for value in values.to_pylist()
    ]


def from_json(texts: list[Any], dtype: pa.DataType) -> pa.Array:
    """Parses the texts of ``to_json`` to values of that type."""
    read = _reader(dtype)
    return pa.array([None if text is None else read(json.loads(text)) for text in texts], dtype)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value // _MICROSECOND
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        return value + 0.0
    return value


def _reader(dtype: pa.DataType) -> Callable[[Any], Any]:
    read = _value_reader(dtype)
    return lambda value: None if value is None else read(value)


def _value_reader(dtype: pa.DataType) -> Callable[[Any], Any]:
    t = pa.types
    if t.is_struct(dtype):
        fields = {field.name: _reader(field.type) for field in dtype}
        return lambda value: {name: read(value.get(name)) for name, read in fields.items()}
    if t.is_map(dtype):
        key, item = _reader(dtype.key_type), _reader(dtype.item_type)
        return lambda pairs: [(key(k), item(v)) for k, v in pairs]
    if t.is_list(dtype):
        element = _reader(dtype.value_type)
        return lambda values: [element(v) for v in values]
    if t.is_decimal(dtype):
        return Decimal
    if t.is_timestamp(dtype):
        return datetime.fromisoformat
    if t.is_date(dtype):
        return date.fromisoformat
    if t.is_duration(dtype):
        return lambda value: timedelta(microseconds=value)
    if t.is_binary(dtype):
        return b64decode
    if t.is_floating(dtype):
        return float
    return lambda value: value
