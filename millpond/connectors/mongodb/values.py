"""Converts values to those of BSON and back, without loss.

BSON has times in milliseconds: the microseconds beyond are a field of their own beside that of the column, or inside of
arrays and documents a document with both. Its decimals have 34 digits: a DECIMAL with more is its text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.databases.texts import from_texts, to_texts
from millpond.connectors.mongodb.names import field_name, name_of

Convert = Callable[[Any], Any] | None
"""Converts a value that is not NULL; None leaves it as it is."""

DIGITS = 34
"""Those of a Decimal128."""
_DAY = 86_400_000
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = {False: datetime(1970, 1, 1), True: datetime(1970, 1, 1, tzinfo=UTC)}
_FIRST_DAY = date(1970, 1, 1).toordinal()


def is_text_there(dtype: pa.DataType) -> bool:
    """Returns whether the values are texts there although they are none here."""
    return bool(pa.types.is_decimal(dtype)) and dtype.precision > DIGITS


def rest_field(field: str) -> str:
    """Returns the field with the microseconds that the time of a column has beyond its milliseconds."""
    return f"{field}%us"


def encoded(values: pa.Array, dtype: pa.DataType) -> list[Any]:
    """Returns the values of a column; times are cut to milliseconds."""
    from bson import Int64
    from bson.datetime_ms import DatetimeMS

    t = pa.types
    if t.is_timestamp(dtype):
        numbers = np.floor_divide(_numbers(values), 1000).tolist()
        return _with_nulls([DatetimeMS(n) for n in numbers], values)
    if t.is_date(dtype):
        return _with_nulls([DatetimeMS(n * _DAY) for n in _numbers(values).tolist()], values)
    if t.is_duration(dtype) or t.is_int64(dtype):
        return _with_nulls([Int64(n) for n in _numbers(values).tolist()], values)
    if is_text_there(dtype):
        return list(to_texts(values, dtype).to_pylist())
    convert = _encoder(dtype)
    if convert is None:
        return list(values.to_pylist())
    return [None if v is None else convert(v) for v in values.to_pylist()]


def rests(values: pa.Array) -> list[int]:
    """Returns the microseconds of times beyond their milliseconds; 0 for NULL."""
    return [int(n) for n in np.mod(_numbers(values), 1000).tolist()]


def decoded(values: Sequence[Any], dtype: pa.DataType, rests: Sequence[int | None] | None = None) -> pa.Array:
    """Returns the values as an array; ``rests`` belong to times. Raises pa.ArrowException, ValueError or TypeError."""
    t = pa.types
    if t.is_timestamp(dtype):
        more = rests if rests is not None else [None] * len(values)
        numbers = [None if v is None else int(v) * 1000 + (r or 0) for v, r in zip(values, more, strict=True)]
        return pa.array(numbers, pa.int64()).view(dtype)
    if t.is_date(dtype):
        return pa.array([None if v is None else int(v) // _DAY for v in values], pa.int32()).view(dtype)
    if t.is_duration(dtype):
        return pa.array(list(values), pa.int64()).view(dtype)
    if is_text_there(dtype):
        return from_texts(list(values), dtype)
    convert = _decoder(dtype)
    if convert is None:
        return pa.array(list(values), dtype)
    return pa.array([None if v is None else convert(v) for v in values], dtype)


def _numbers(values: pa.Array) -> Any:
    """Returns integers and times as numbers; 0 for NULL."""
    t = pa.types
    if t.is_temporal(values.type):
        values = values.view(pa.int32() if t.is_date32(values.type) else pa.int64())
    return pc.fill_null(values, 0).to_numpy(zero_copy_only=False)


def _with_nulls(cells: list[Any], values: pa.Array) -> list[Any]:
    if not values.null_count:
        return cells
    there = values.is_valid().to_pylist()
    return [cell if valid else None for cell, valid in zip(cells, there, strict=True)]


def _encoder(dtype: pa.DataType) -> Convert:
    """Returns the conversion of a value as ``to_pylist`` makes it."""
    from bson import Decimal128, Int64
    from bson.datetime_ms import DatetimeMS

    t = pa.types
    if t.is_int64(dtype):
        return Int64
    if t.is_decimal(dtype):
        return str if is_text_there(dtype) else Decimal128
    if t.is_date(dtype):
        return lambda v: DatetimeMS((v.toordinal() - _FIRST_DAY) * _DAY)
    if t.is_timestamp(dtype):
        first = _EPOCH[dtype.tz is not None]
        return lambda v: _time((v - first) // _MICROSECOND)
    if t.is_duration(dtype):
        return lambda v: Int64(v // _MICROSECOND)
    if t.is_list(dtype):
        return _each(_encoder(dtype.value_type))
    if t.is_struct(dtype):
        return _fields({f.name: (field_name(f.name), _encoder(f.type)) for f in dtype})
    if t.is_map(dtype):
        return _pairs_out(dtype)
    return None


def _decoder(dtype: pa.DataType) -> Convert:
    """Returns the conversion of a value to one that ``pa.array`` takes."""
    t = pa.types
    if t.is_decimal(dtype):
        if is_text_there(dtype):
            return lambda v: from_texts([v], dtype)[0].as_py()
        return lambda v: v.to_decimal()
    if t.is_date(dtype):
        return lambda v: int(v) // _DAY
    if t.is_timestamp(dtype):
        return _micros
    if t.is_list(dtype):
        return _each(_decoder(dtype.value_type))
    if t.is_struct(dtype):
        return _fields({field_name(f.name): (f.name, _decoder(f.type)) for f in dtype})
    if t.is_map(dtype):
        return _pairs_in(dtype)
    return None


def _time(micros: int) -> Any:
    from bson.datetime_ms import DatetimeMS

    ms, rest = divmod(micros, 1000)
    return {"ms": DatetimeMS(ms), "us": rest} if rest else DatetimeMS(ms)


def _micros(value: Any) -> int:
    return int(value["ms"]) * 1000 + int(value["us"]) if isinstance(value, dict) else int(value) * 1000


def _each(convert: Convert) -> Convert:
    if convert is None:
        return None
    return lambda values: [None if v is None else convert(v) for v in values]


def _fields(fields: dict[str, tuple[str, Convert]]) -> Callable[[Any], dict[str, Any]]:
    def converted(value: Any) -> dict[str, Any]:
        made = {}
        for name, (other, convert) in fields.items():
            part = value.get(name)
            made[other] = part if part is None or convert is None else convert(part)
        return made

    return converted


def _pairs_out(dtype: pa.DataType) -> Callable[[Any], Any]:
    """Writes a MAP: a document if its keys are texts, else an array of pairs."""
    key, item = _encoder(dtype.key_type), _encoder(dtype.item_type)

    def value_of(v: Any) -> Any:
        return v if v is None or item is None else item(v)

    if pa.types.is_string(dtype.key_type):
        return lambda pairs: {field_name(k): value_of(v) for k, v in pairs}
    return lambda pairs: [[k if key is None else key(k), value_of(v)] for k, v in pairs]


def _pairs_in(dtype: pa.DataType) -> Callable[[Any], Any]:
    key, item = _decoder(dtype.key_type), _decoder(dtype.item_type)

    def value_of(v: Any) -> Any:
        return v if v is None or item is None else item(v)

    if pa.types.is_string(dtype.key_type):
        return lambda found: [(name_of(k), value_of(v)) for k, v in found.items()]
    return lambda found: [(k if key is None else key(k), value_of(v)) for k, v in found]
