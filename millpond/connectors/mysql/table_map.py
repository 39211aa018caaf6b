"""Parses what an event of a binary log says about a table before its rows: names, types, character sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pymysql.constants import FIELD_TYPE

from millpond.connectors.databases.arrow import cannot_hold
from millpond.connectors.mysql.events import lenenc
from millpond.connectors.mysql.types import BINARY, DIGITS, arrow_type, bits, decimal, is_integer

TIMESTAMP2, DATETIME2, TIME2 = 17, 18, 19
COMPRESSED_BLOB, COMPRESSED_VARCHAR = 140, 141
_NEW_TIMES = {
    TIMESTAMP2: FIELD_TYPE.TIMESTAMP,
    DATETIME2: FIELD_TYPE.DATETIME,
    TIME2: FIELD_TYPE.TIME,
}
_ONE_BYTE = {
    FIELD_TYPE.FLOAT,
    FIELD_TYPE.DOUBLE,
    FIELD_TYPE.BLOB,
    FIELD_TYPE.GEOMETRY,
    FIELD_TYPE.JSON,
    TIMESTAMP2,
    DATETIME2,
    TIME2,
    COMPRESSED_BLOB,
}
_TWO_BYTES = {
    FIELD_TYPE.VARCHAR,
    FIELD_TYPE.VAR_STRING,
    FIELD_TYPE.STRING,
    FIELD_TYPE.NEWDECIMAL,
    FIELD_TYPE.BIT,
    FIELD_TYPE.ENUM,
    FIELD_TYPE.SET,
    COMPRESSED_VARCHAR,
}
_NUMBERS = {
    FIELD_TYPE.YEAR,
    FIELD_TYPE.TINY,
    FIELD_TYPE.SHORT,
    FIELD_TYPE.INT24,
    FIELD_TYPE.LONG,
    FIELD_TYPE.LONGLONG,
    FIELD_TYPE.NEWDECIMAL,
    FIELD_TYPE.FLOAT,
    FIELD_TYPE.DOUBLE,
}
_TEXTS = {
    FIELD_TYPE.STRING,
    FIELD_TYPE.VAR_STRING,
    FIELD_TYPE.VARCHAR,
    FIELD_TYPE.BLOB,
    FIELD_TYPE.GEOMETRY,
    COMPRESSED_BLOB,
    COMPRESSED_VARCHAR,
}
_CHOICES = {FIELD_TYPE.ENUM, FIELD_TYPE.SET}
_SIZES = {
    FIELD_TYPE.TINY: 1,
    FIELD_TYPE.SHORT: 2,
    FIELD_TYPE.INT24: 3,
    FIELD_TYPE.LONG: 4,
    FIELD_TYPE.LONGLONG: 8,
    FIELD_TYPE.FLOAT: 4,
    FIELD_TYPE.DOUBLE: 8,
    FIELD_TYPE.YEAR: 1,
    FIELD_TYPE.DATE: 3,
    FIELD_TYPE.NEWDATE: 3,
    FIELD_TYPE.TIMESTAMP: 4,
    FIELD_TYPE.DATETIME: 8,
    FIELD_TYPE.TIME: 3,
    TIMESTAMP2: 4,
    DATETIME2: 5,
    TIME2: 3,
}
SPARE = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes by number of digits of a decimal."""


@dataclass(frozen=True, slots=True)
class Field:
    """Describes a column as it is in the log: ``a`` and ``b`` are the parameters of its type."""

    name: str
    code: int
    a: int
    b: int
    unsigned: bool = False
    charset: int = BINARY
    choices: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        """Returns the bytes of a value; for one of variable length, minus the bytes of its length."""
        if self.code in _SIZES:
            return _SIZES[self.code] + ((self.a + 1) // 2 if self.code in _NEW_TIMES else 0)
        if self.code == FIELD_TYPE.NEWDECIMAL:
            whole = self.a - self.b
            return sum(digits // 9 * 4 + SPARE[digits % 9] for digits in (whole, self.b))
        if self.code == FIELD_TYPE.BIT:
            return self.b + (self.a > 0)
        if self.code in _CHOICES:
            return self.a
        if self.code in (FIELD_TYPE.STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.VAR_STRING, COMPRESSED_VARCHAR):
            return -2 if self.a > 255 else -1
        return -self.a

    @property
    def arrow(self) -> pa.DataType:
        """Returns the Arrow type. Raises NotSupported if there is none."""
        if self.code == FIELD_TYPE.NEWDECIMAL:
            if self.b > DIGITS:
                raise cannot_hold(self.name, f"DECIMAL({self.a}, {self.b})")
            return decimal(self.a, self.b)
        if self.code == FIELD_TYPE.BIT:
            return bits(self.b * 8 + self.a)
        if self.code in (COMPRESSED_BLOB, COMPRESSED_VARCHAR):
            raise cannot_hold(self.name, "COMPRESSED")
        if self.code == FIELD_TYPE.JSON:
            raise cannot_hold(self.name, "JSON, as MySQL logs it")
        return arrow_type(
            self.name,
            _NEW_TIMES.get(self.code, self.code),
            unsigned=self.unsigned and is_integer(self.code),
            binary=self.charset == BINARY,
            length=0,
            scale=0,
        )


@dataclass(frozen=True, slots=True)
class TableMap:
    """Describes the columns of a table at a place of the log, and its primary key; ``named`` is false if the server
    does not log names.
    """

    schema: str
    table: str
    fields: tuple[Field, ...]
    named: bool
    key: tuple[str, ...] = ()


def number_of(body: bytes) -> int:
    """Returns the number by which the rows that follow refer to a table."""
    return int.from_bytes(body[:6], "little")


def whose(body: bytes) -> tuple[str, str]:
    """Returns the database and the name of a table, of the event that maps it."""
    end = 9 + body[8]
    return body[9:end].decode(), body[end + 2 : end + 2 + body[end + 1]].decode()


def map_of(body: bytes) -> TableMap:
    schema, table = whose(body)
    at = 12 + body[8] + body[10 + body[8]]
    count, at = lenenc(body, at)
    codes = body[at : at + count]
    size, at = lenenc(body, at + count)
    kinds = list(_kinds(codes, body[at : at + size]))
    at += size + (count + 7) // 8
    more = _optional(body, at)
    names = [n.decode() for n in _texts(more.get(4, b""))]
    found = [Field(name, code, a, b) for name, (code, a, b) in zip(names or [""] * count, kinds, strict=True)]
    unsigned = _signs(more.get(1, b""), found)
    charsets = _charsets(found, _TEXTS, more.get(2), more.get(3))
    charsets |= _charsets(found, _CHOICES, more.get(10), more.get(11))
    choices = _choices(found, more)
    fields = tuple(
        Field(f.name, f.code, f.a, f.b, i in unsigned, charsets.get(i, BINARY), choices.get(i, ()))
        for i, f in enumerate(found)
    )
    keys = (
        _numbers(more.get(8, b"")) or _numbers(more.get(9, b""))[::2]
    )  # with prefixes, each with its length
    key = tuple(names[i] for i in keys) if names else ()
    return TableMap(schema, table, fields, bool(names) or not count, key)


def _kinds(codes: bytes, meta: bytes) -> Iterator[tuple[int, int, int]]:
    at = 0
    for code in codes:
        if code in _ONE_BYTE:
            yield code, meta[at], 0
            at += 1
        elif code in _TWO_BYTES:
            first, second = meta[at], meta[at + 1]
            at += 2
            if code == FIELD_TYPE.STRING:
                if first & 0x30 != 0x30:  # the length of a long CHAR has bits in the type
                    yield first | 0x30, second | (((first & 0x30) ^ 0x30) << 4), 0
                elif first in _CHOICES:
                    yield first, second, 0
                else:
                    yield FIELD_TYPE.STRING, second, 0
            elif code in _CHOICES:
                yield code, second, 0
            elif code in (FIELD_TYPE.NEWDECIMAL, FIELD_TYPE.BIT):
                yield code, first, second
            else:
                yield code, first | second << 8, 0
        else:
            yield code, 0, 0


def _optional(body: bytes, at: int) -> dict[int, bytes]:
    found = {}
    while at < len(body):
        kind = body[at]
        size, at = lenenc(body, at + 1)
        found[kind] = body[at : at + size]
        at += size
    return found


def _texts(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, at = lenenc(data, at)
        yield data[at : at + size]
        at += size


def _signs(data: bytes, fields: list[Field]) -> set[int]:
    numbers = [i for i, f in enumerate(fields) if f.code in _NUMBERS]
    return {i for n, i in enumerate(numbers) if n // 8 < len(data) and data[n // 8] & (0x80 >> n % 8)}


def _numbers(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        number, at = lenenc(data, at)
        found.append(number)
    return found


def _charsets(
    fields: list[Field], codes: set[int], default: bytes | None, each: bytes | None
) -> dict[int, int]:
    """Returns the collation of each column of some types: one for all but a few, or one by one."""
    places = [i for i, f in enumerate(fields) if f.code in codes]
    if each is not None:
        return dict(zip(places, _numbers(each), strict=False))
    if default is None:
        return {}
    usual, *others = _numbers(default)
    found = dict.fromkeys(places, usual)
    found.update((places[n], c) for n, c in zip(others[::2], others[1::2], strict=True) if n < len(places))
    return found


def _choices(fields: list[Field], more: dict[int, bytes]) -> dict[int, tuple[bytes, ...]]:
    found = {}
    for code, data in ((FIELD_TYPE.SET, more.get(5, b"")), (FIELD_TYPE.ENUM, more.get(6, b""))):
        at = 0
        for place in (i for i, f in enumerate(fields) if f.code == code):
            if at >= len(data):
                break
            count, at = lenenc(data, at)
            values = []
            for _ in range(count):
                size, at = lenenc(data, at)
                values.append(data[at : at + size])
                at += size
            found[place] = tuple(values)
    return found
