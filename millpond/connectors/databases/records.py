"""Reads one record by its key on a fast path: no Arrow, one statement, which sees its own point in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

from millpond.tables.base import Get, Has
from millpond.types import Schema

Convert = Callable[[Any], Any] | None
"""Converts a cell to a value of a record; None leaves it as it is."""
Fetch = Callable[[tuple[Any, ...]], Sequence[Any] | None]
"""The cells of the row with a key, in the order of the columns."""


def quick_reads(
    schema: Schema, convert: Sequence[Convert] | None, fetch: Fetch, step: Iterator[int], get: Get, has: Has
) -> tuple[Get, Has]:
    """Returns ``get`` and ``has`` that fetch a key of ints and texts directly, and leave all others to the general
    path.
    """
    key = [c for k in schema.key if (c := schema.find(k)) is not None]
    plain = all(pa.types.is_integer(c.type) or pa.types.is_string(c.type) for c in key)
    if convert is None or not key or not plain:
        return get, has
    bits = [c.type.bit_width if c.type is not None and pa.types.is_integer(c.type) else 0 for c in key]
    made = list(zip(schema.names, convert, strict=True))

    def parts_of(key: Any) -> tuple[Any, ...] | None:
        parts = key if type(key) is tuple else (key,)
        if len(parts) != len(bits):
            return None
        for part, width in zip(parts, bits, strict=True):
            if type(part) is not int or not width:
                if type(part) is not str or width:
                    return None
            elif not -(1 << (width - 1)) <= part < 1 << (width - 1):
                return None
        return parts

    def quick_get(key: Any) -> dict[str, Any] | None:
        parts = parts_of(key)
        if parts is None:
            return get(key)
        next(step)
        cells = fetch(parts)
        if cells is None:
            return None
        return {
            name: cell if cell is None or f is None else f(cell)
            for (name, f), cell in zip(made, cells, strict=True)
        }

    def quick_has(key: Any = None, **equal: Any) -> bool:
        parts = None if equal else parts_of(key)
        if parts is None:
            return has(key, **equal)
        next(step)
        return fetch(parts) is not None

    return quick_get, quick_has


def converters(schema: Schema, form: Literal["driver", "basic", "text"]) -> list[Convert] | None:
    """Returns converters from cells to values, for a driver with all types, one with numbers and texts only, or
    texts; None if a type needs the general path.
    """
    found: list[Convert] = []
    t = pa.types
    for column in schema:
        dtype = column.type
        if dtype is None or t.is_nested(dtype) or (t.is_binary(dtype) and form == "text"):
            return None
        found.append(_converter(dtype, form))
    return found


def _converter(dtype: pa.DataType, form: str) -> Convert:
    t = pa.types
    if t.is_timestamp(dtype):
        parse: Callable[[Any], datetime] = (lambda v: v) if form == "driver" else datetime.fromisoformat
        return (lambda v: parse(v).replace(tzinfo=UTC)) if dtype.tz else parse
    if form == "driver" or t.is_string(dtype) or t.is_binary(dtype):
        return None
    if t.is_boolean(dtype):
        return (lambda v: v == "true") if form == "text" else bool
    if t.is_integer(dtype):
        return int if form == "text" else None
    if t.is_decimal(dtype):
        return Decimal
    if t.is_date(dtype):
        return date.fromisoformat
    if t.is_duration(dtype):
        return lambda v: timedelta(microseconds=int(str(v).split()[0]))
    return float
