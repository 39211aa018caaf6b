"""Converts SQLAlchemy types to Arrow's, and values of drivers to Arrow arrays: for databases without a faster path."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from sqlalchemy import types as t

from millpond.errors import BadData, NotSupported
from millpond.formats.text import Misfit, convert
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema, type_name

DECIMAL = pa.decimal128(38, 18)
"""The type of a decimal whose digits are not declared."""

_TYPES: tuple[tuple[type[t.TypeEngine[Any]], pa.DataType], ...] = (
    (t.Boolean, pa.bool_()),
    (t.SmallInteger, pa.int16()),
    (t.Integer, pa.int64()),
    (t.Double, pa.float64()),
    (t.Float, pa.float64()),
    (t.Enum, pa.string()),
    (t.String, pa.string()),
    (t.Uuid, pa.string()),
    (t.Date, pa.date32()),
    (t.Time, pa.string()),
    (t.Interval, pa.duration("us")),
    (t.LargeBinary, pa.binary()),
    (t._Binary, pa.binary()),  # noqa: SLF001  the only base of every dialect's BINARY and BLOB
    (t.JSON, pa.string()),
)

_ANOTHER = "declare the column as another type, or cast it in a query"


def arrow_type(name: str, kind: t.TypeEngine[Any]) -> pa.DataType:
    """Returns the Arrow type for a column of a database."""
    if isinstance(kind, t.DateTime):
        return TIMESTAMP if kind.timezone else TIMESTAMP_NTZ
    if isinstance(kind, t.ARRAY):
        return pa.list_(arrow_type(name, kind.item_type))
    if isinstance(kind, t.Numeric) and not isinstance(kind, t.Float):
        return decimal_type(name, kind.precision, kind.scale)
    for known, dtype in _TYPES:
        if isinstance(kind, known):
            return dtype
    if isinstance(kind, t.NullType):
        return pa.string()
    raise cannot_hold(name, str(kind))


def decimal_type(name: str, precision: int | None, scale: int | None) -> pa.DataType:
    if precision is None:
        return DECIMAL
    if not 0 < precision <= 38 or not 0 <= (scale or 0) <= precision:
        raise cannot_hold(name, f"NUMERIC({precision}, {scale})")
    return pa.decimal128(precision, scale or 0)


def cannot_hold(name: str, kind: str) -> NotSupported:
    return NotSupported(
        f'column "{name}" is of the type {kind}, which cannot be read',
        hint="cast it in a query: 'query' = 'SELECT CAST(… AS …) …'",
    )


def discovered(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Schema:
    """Returns the columns of some rows. One without a value is text."""
    columns = []
    for name, values in zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True):
        there = [v for v in values if v is not None]
        columns.append(Column(str(name), _type_of(str(name), there)))
    return Schema(tuple(columns))


def _type_of(name: str, values: list[Any]) -> pa.DataType:
    kinds = {type(v) for v in values}
    if not kinds or kinds & {UUID, time, str}:
        return pa.string()
    if kinds == {Decimal}:
        return DECIMAL
    if kinds == {int}:
        return pa.int64()
    if kinds <= {int, float}:
        return pa.float64()
    try:
        found = pa.array(values).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise cannot_hold(name, " and ".join(sorted(k.__name__ for k in kinds))) from None
    return TIMESTAMP if pa.types.is_timestamp(found) and found.tz is not None else found


def array_of(name: str, dtype: pa.DataType | None, values: list[Any]) -> pa.Array:
    """Converts values of a driver to an array of a type. Raises BadData with the column's name."""
    assert dtype is not None
    try:
        if not _is_text(dtype) and any(isinstance(v, str) for v in values):
            texts = pa.array([None if v is None else str(v) for v in values], pa.string())
            return convert(texts, dtype, empty_is_null=False)
        if (prepare := _PREPARED.get(dtype)) is not None:
            values = [None if v is None else prepare(v) for v in values]
        elif pa.types.is_decimal(dtype):
            values = [v if v is None or isinstance(v, Decimal) else Decimal(str(v)) for v in values]
        return pa.array(values, dtype)
    except Misfit as error:
        raise BadData(
            f'column "{name}" has the value "{error.value}", which is no {type_name(dtype)}', hint=_ANOTHER
        ) from None
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, ArithmeticError, OverflowError) as error:
        raise BadData(
            f'column "{name}" has a value that is no {type_name(dtype)}: {error}',
            hint=_ANOTHER,
        ) from None


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_string(dtype) or pa.types.is_binary(dtype) or pa.types.is_nested(dtype))


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return value if isinstance(value, str) else str(value)


def _interval(value: Any) -> timedelta:
    if not isinstance(value, timedelta):
        raise ValueError(f"{value!r} is no interval")
    return value


_PREPARED: dict[pa.DataType, Callable[[Any], Any]] = {
    pa.string(): _text,
    pa.binary(): bytes,
    pa.bool_(): bool,
    pa.duration("us"): _interval,
}
