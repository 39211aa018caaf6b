"""Parses keys in a URL: ``/rows/7``, ``/rows/AAPL,2024-01-05``."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import pyarrow as pa

from millpond.http.failures import Refused, bad_request
from millpond.records.text import to_json
from millpond.types import Schema, type_name

NULL = "\\N"
"""The text of a NULL in a key, which only live aggregates have."""


def key_of(schema: Schema, raw: str, table: str) -> tuple[Any, ...]:
    """Returns the values of a key from its text in the URL: its parts in the order of the key, separated by commas. A
    comma within a part is written %2C; a key of one column may have commas as they are.
    """
    columns = [c for name in schema.key if (c := schema.find(name)) is not None]
    if not columns:
        raise Refused(409, "no_key", f'table "{table}" has no primary key', hint="use /rows?where=… instead")
    parts = raw.split(",") if len(columns) > 1 else [raw]
    if len(parts) != len(columns):
        listed = ", ".join(f"{c.name} {type_name(c.type)}" for c in columns)
        raise bad_request(
            f'the key of table "{table}" has {len(columns)} parts ({listed}), {len(parts)} are given',
            "separate them by commas, in this order; write a comma within a part as %2C",
        )
    return tuple(
        value_of(_unquoted(part), column.type, column.name)
        for part, column in zip(parts, columns, strict=True)
    )


def _unquoted(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise bad_request("the key is not UTF-8 text") from None


def value_of(text: str, dtype: pa.DataType | None, name: str) -> Any:
    """Returns the value of a type from its text."""
    t = pa.types
    try:
        if text == NULL:
            return None
        if dtype is None or t.is_string(dtype):
            return text
        if t.is_integer(dtype):
            number, bits = int(text), dtype.bit_width - 1
            if not -(1 << bits) <= number < 1 << bits:
                raise ValueError
            return number
        if t.is_boolean(dtype):
            return {"true": True, "false": False}[text.lower()]
        if t.is_decimal(dtype):
            return pa.scalar(Decimal(text), dtype).as_py()
        if t.is_date(dtype):
            return date.fromisoformat(text)
        if t.is_timestamp(dtype):
            return _timestamp(text, dtype)
        if t.is_binary(dtype):
            return base64.b64decode(text, validate=True)
    except (ValueError, KeyError, InvalidOperation, binascii.Error, pa.ArrowInvalid, OverflowError):
        pass
    raise bad_request(f'"{text[:80]}" is not a value of "{name}", which is {type_name(dtype)}')


def _timestamp(text: str, dtype: pa.DataType) -> datetime:
    timestamp = datetime.fromisoformat(text.replace(" ", "+") if "+" not in text and "T" in text else text)
    if dtype.tz is None:
        if timestamp.tzinfo is not None:
            raise ValueError
        return timestamp
    return timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp.astimezone(UTC)


def text_of(values: Sequence[Any]) -> str:
    """Returns the key in the form of a URL."""
    return ",".join(quote(NULL if v is None else _plain(v), safe=":") for v in values)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value).strip('"')
