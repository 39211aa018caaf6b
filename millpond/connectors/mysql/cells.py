"""Converts values of a binary log, as bytes, to Arrow arrays: a whole column at a time."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pymysql.constants import FIELD_TYPE

from millpond.connectors.mysql.table_map import DATETIME2, SPARE, TIME2, TIMESTAMP2, Field
from millpond.connectors.mysql.text import unfit
from millpond.connectors.mysql.types import BINARY, DURATION, integer, is_integer
from millpond.errors import NotSupported
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ

Cells = list[bytes | None]
Decode = Callable[[bytes], str]
"""Text of a character set."""
MADE = {"uuid": 16, "inet6": 16, "inet4": 4}
"""Types of MariaDB that the log does not distinguish from BINARY, and their bytes."""
_MAPPED = bytes(10) + b"\xff\xff"
_MICROS = (1, 10_000, 100, 1)
"""Microseconds of a fraction, by its number of bytes."""


def array_of(field: Field, made: str, decode: Decode | None, cells: Cells) -> pa.Array:
    """Returns the values of a column. ``made`` is the name of its type in the database, ``decode`` is for text that is
    not UTF-8. Raises BadData with the column's name.
    """
    if field.size < 0:
        return _text(field, made, decode, cells)
    raw = pa.array(cells, pa.binary(field.size))
    if is_integer(field.code):
        return _integers(field, raw)
    if field.code == FIELD_TYPE.FLOAT or field.code == FIELD_TYPE.DOUBLE:
        return pa.Array.from_buffers(field.arrow, len(raw), raw.buffers(), raw.null_count)
    data = np.frombuffer(raw.buffers()[1] or b"", np.uint8, len(raw) * field.size).reshape(-1, field.size)
    missing = np.asarray(raw.is_null()) if raw.null_count else np.zeros(len(raw), bool)
    return _KINDS[field.code](field, data, missing, decode)


def _integers(field: Field, raw: pa.Array) -> pa.Array:
    if field.size == 3:
        data = np.frombuffer(raw.buffers()[1] or b"", np.uint8, len(raw) * 3).reshape(-1, 3)
        wide = np.zeros((len(raw), 4), np.uint8)
        wide[:, 1:] = data  # times 256, so that the sign is in its place
        shift = wide.view(np.uint32 if field.unsigned else np.int32).ravel() >> 8
        mask = np.asarray(raw.is_null()) if raw.null_count else None
        return pa.array(shift.astype(np.int32), mask=mask)
    signed = integer(field.code, False)
    plain = (
        {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32(), 8: pa.uint64()}[field.size]
        if field.unsigned
        else signed
    )
    found = pa.Array.from_buffers(plain, len(raw), raw.buffers()[:2], raw.null_count)
    return found.cast(field.arrow)


def _big(data: np.ndarray) -> np.ndarray:
    """Returns big-endian numbers."""
    wide = np.zeros((len(data), 8), np.uint8)
    wide[:, 8 - data.shape[1] :] = data
    return wide.view(">u8").ravel().astype(np.uint64)


def _little(data: np.ndarray) -> np.ndarray:
    wide = np.zeros((len(data), 8), np.uint8)
    wide[:, : data.shape[1]] = data
    return wide.view("<u8").ravel().astype(np.int64)


def _decimals(field: Field, data: np.ndarray, missing: np.ndarray, _: Any) -> pa.Array:
    negative = data[:, 0] < 0x80
    data = np.where(negative[:, None], ~data, data)
    data[:, 0] ^= 0x80
    whole, scale = field.a - field.b, field.b
    groups = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    small = field.a <= 18
    found: Any = np.zeros(len(data), np.int64 if small else object)
    at = 0
    for digits in (g for g in groups if g):
        size = SPARE[digits]
        part = _big(data[:, at : at + size]).astype(np.int64)
        found = found * 10**digits + (part if small else part.astype(object))
        at += size
    found = np.where(negative, -found, found)
    if small:
        both = np.empty((len(data), 2), np.int64)
        both[:, 0], both[:, 1] = found, found >> 63
        there = pa.array(~missing).buffers()[1] if missing.any() else None
        return pa.Array.from_buffers(field.arrow, len(data), [there, pa.py_buffer(both.tobytes())])
    values = [
        None if m else Decimal((0 if v >= 0 else 1, tuple(map(int, str(abs(v)))), -scale))
        for v, m in zip(found, missing, strict=True)
    ]
    try:
        return pa.array(values, field.arrow)
    except pa.ArrowInvalid as error:
        raise unfit(field.name, field.arrow, f"a value: {error}") from None


def _days(
    years: np.ndarray, months: np.ndarray, days: np.ndarray, missing: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns days since 1970, and which are missing: also invalid dates."""
    first = (years - 1970).astype("M8[Y]").astype("M8[M]") + np.maximum(months - 1, 0)
    found = first.astype("M8[D]") + np.maximum(days - 1, 0)
    wrong = (months == 0) | (days == 0) | (found.astype("M8[M]") != first)
    return found.astype(np.int64), missing | wrong


def _dates(field: Field, data: np.ndarray, missing: np.ndarray, _: Any) -> pa.Array:
    packed = _little(data)
    days, missing = _days(packed >> 9, packed >> 5 & 15, packed & 31, missing)
    return pa.array(days.astype(np.int32), mask=missing).cast(pa.date32())


def _fraction(field: Field, data: np.ndarray, before: int) -> np.ndarray:
    size = data.shape[1] - before
    return _big(data[:, before:]).astype(np.int64) * _MICROS[size] if size else np.zeros(len(data), np.int64)


def _datetimes(field: Field, data: np.ndarray, missing: np.ndarray, _: Any) -> pa.Array:
    packed = _big(data[:, :5]).astype(np.int64) - 0x8000000000
    day, time = packed >> 17, packed & 0x1FFFF
    days, missing = _days((day >> 5) // 13, (day >> 5) % 13, day & 31, missing)
    seconds = (time >> 12) * 3600 + (time >> 6 & 63) * 60 + (time & 63)
    micros = (days * 86_400 + seconds) * 1_000_000 + _fraction(field, data, 5)
    return pa.array(micros, mask=missing).cast(TIMESTAMP_NTZ)


def _timestamps(field: Field, data: np.ndarray, missing: np.ndarray, _: Any) -> pa.Array:
    seconds, micros = _big(data[:, :4]).astype(np.int64), _fraction(field, data, 4)
    return pa.array(seconds * 1_000_000 + micros, mask=missing | ((seconds == 0) & (micros == 0))).cast(
        TIMESTAMP
    )


def _times(field: Field, data: np.ndarray, missing: np.ndarray, _: Any) -> pa.Array:
    size = data.shape[1] - 3
    packed = _big(data).astype(np.int64) - (0x800000 << 8 * size)
    value = np.abs(packed)
    time = value >> 8 * size
    seconds = (time >> 12 & 0x3FF) * 3600 + (time >> 6 & 63) * 60 + (time & 63)
    micros = seconds * 1_000_000 + (value & ((1 << 8 * size) - 1)) * _MICROS[size]
    return pa.array(np.where(packed < 0, -micros, micros), mask=missing).cast(DURATION)


def _years(field: Field, data: np.ndarray, missing: np.ndarray, _: Any) -> pa.Array:
    years = data[:, 0].astype(np.int16)
    return pa.array(np.where(years == 0, 0, years + 1900).astype(np.int16), mask=missing)


def _bits(field: Field, data: np.ndarray, missing: np.ndarray, _: Any) -> pa.Array:
    return pa.array(_big(data), pa.uint64(), mask=missing).cast(field.arrow)


def _old(field: Field, data: np.ndarray, missing: np.ndarray, _: Any) -> pa.Array:
    raise NotSupported(
        f'column "{field.name}" is kept as versions before 5.6 kept times',
        hint="ALTER TABLE … FORCE with mysql56_temporal_format=ON writes it anew",
    )


def _chosen(field: Field, data: np.ndarray, missing: np.ndarray, decode: Decode | None) -> pa.Array:
    """Returns the choices of an ENUM, by its number from 1 on, or of a SET, by a bit each."""
    names = [(decode or _utf8)(c) for c in field.choices]
    numbers, places = np.unique(_little(data), return_inverse=True)
    if field.code == FIELD_TYPE.ENUM:
        texts = ["" if n == 0 else names[n - 1] for n in numbers.tolist()]
    else:
        texts = [",".join(name for i, name in enumerate(names) if n >> i & 1) for n in numbers.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(places.ravel(), mask=missing))


def _text(field: Field, made: str, decode: Decode | None, cells: Cells) -> pa.Array:
    if made in MADE:
        size, show = MADE[made], _SHOWN[made]
        return pa.array([None if c is None else show(c.ljust(size, b"\0")) for c in cells], pa.string())
    if field.charset == BINARY:
        if field.code == FIELD_TYPE.STRING:  # zeros at its end are not logged
            cells = [None if c is None else c.ljust(field.a, b"\0") for c in cells]
        return pa.array(cells, pa.binary())
    try:
        if decode is None:
            return pa.array(cells, pa.binary()).cast(pa.string())
        return pa.array([None if c is None else decode(c) for c in cells], pa.string())
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise unfit(field.name, pa.string(), f"bytes that are no text: {error}") from None


def _utf8(data: bytes) -> str:
    return data.decode()


def _uuid(data: bytes) -> str:
    text = data.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _inet6(data: bytes) -> str:
    """Returns the address as the server writes it: one that contains an IPv4 address shows that."""
    if data[:12] == _MAPPED or (data[:12] == bytes(12) and data[12:14] != b"\0\0"):
        return ("::ffff:" if data[10] else "::") + _inet4(data[12:])
    return str(ipaddress.IPv6Address(data))


def _inet4(data: bytes) -> str:
    return str(ipaddress.IPv4Address(data))


_SHOWN = {"uuid": _uuid, "inet6": _inet6, "inet4": _inet4}
_KINDS: dict[int, Callable[[Field, np.ndarray, np.ndarray, Any], pa.Array]] = {
    FIELD_TYPE.NEWDECIMAL: _decimals,
    FIELD_TYPE.DATE: _dates,
    FIELD_TYPE.NEWDATE: _dates,
    DATETIME2: _datetimes,
    TIMESTAMP2: _timestamps,
    TIME2: _times,
    FIELD_TYPE.YEAR: _years,
    FIELD_TYPE.BIT: _bits,
    FIELD_TYPE.ENUM: _chosen,
    FIELD_TYPE.SET: _chosen,
    FIELD_TYPE.TIMESTAMP: _old,
    FIELD_TYPE.DATETIME: _old,
    FIELD_TYPE.TIME: _old,
}
