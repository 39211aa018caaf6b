"""Maps the types of PostgreSQL, from its catalog, to Arrow types.

What has no type of its own here (times of a day, ranges, addresses, geometry, JSON, XML, …) is its text, without loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, normal

SETTINGS = {
    "DateStyle": "ISO",
    "TimeZone": "UTC",
    "IntervalStyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
}
"""The session settings under which texts are those that are read here."""

PLAIN = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "oid": pa.int64(),
    "xid": pa.int64(),
    "cid": pa.int64(),
    "xid8": pa.decimal128(20, 0),
    "money": pa.decimal128(19, 2),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP_NTZ,
    "timestamptz": TIMESTAMP,
    "hstore": pa.map_(pa.string(), pa.string()),
}
_DIGITS = 38
_ANY_SCALE = 18
_YEARS_AND_MONTHS = 0b110


@dataclass(frozen=True, slots=True)
class PgType:
    """Describes a type. ``form`` says how its text is read: the name of a plain type, ``numeric``, ``interval``,
    ``array``, ``row`` or ``text``. ``parts`` are the elements of an array, or the columns of a row.
    """

    form: str
    arrow: pa.DataType
    parts: tuple[PgType, ...] = ()
    delimiter: str = ","


TEXT = PgType("text", pa.string())

Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs a query with parameters."""

_TYPES = (
    "SELECT oid::int8, typname::text, typtype::text, typcategory::text, typelem::int8, typbasetype::int8,"
    " typtypmod, typrelid::int8, typdelim::text FROM pg_catalog.pg_type WHERE oid = ANY (%s::oid[])"
)
_FIELDS = (
    "SELECT attrelid::int8, attname::text, atttypid::int8, atttypmod FROM pg_catalog.pg_attribute"
    " WHERE attrelid = ANY (%s::oid[]) AND attnum > 0 AND NOT attisdropped ORDER BY attrelid, attnum"
)


class Catalog:
    """Reads the types of a database; each is queried once."""

    def __init__(self, ask: Ask):
        self._ask = ask
        self._known: dict[int, tuple[Any, ...]] = {}
        self._fields: dict[int, list[tuple[str, int, int]]] = {}

    def types(self, wanted: Iterable[tuple[int, int]]) -> list[PgType]:
        """Returns the types of these numbers, each with its modifier."""
        listed = list(wanted)
        self._learn({oid for oid, _ in listed})
        return [self._type(oid, modifier) for oid, modifier in listed]

    def _learn(self, oids: set[int]) -> None:
        new = sorted(oids - set(self._known))
        while new:
            rows = self._ask(_TYPES, (new,))
            self._known |= {row[0]: row for row in rows}
            below = {oid for row in rows for oid in (row[4], row[5]) if oid}
            relations = [row[7] for row in rows if row[2] == "c" and row[7]]
            if relations:
                for relation, name, oid, modifier in self._ask(_FIELDS, (relations,)):
                    self._fields.setdefault(relation, []).append((name, oid, modifier))
                    below.add(oid)
            new = sorted(below - set(self._known))

    def _type(self, oid: int, modifier: int) -> PgType:
        if oid not in self._known:
            return TEXT
        _, name, kind, category, element, base, base_modifier, relation, _ = self._known[oid]
        if kind == "d":
            return self._type(base, base_modifier)
        if kind == "c":
            fields = self._fields.get(relation, [])
            parts = tuple(self._type(o, m) for _, o, m in fields)
            names = [n for n, _, _ in fields]
            if not names or len({n.lower() for n in names}) < len(names):
                return TEXT
            typed = [pa.field(n, p.arrow) for n, p in zip(names, parts, strict=True)]
            return PgType("row", pa.struct(typed), parts)
        if category == "A" and element and name not in ("int2vector", "oidvector"):
            part = self._type(element, modifier)
            return PgType("array", normal(pa.list_(part.arrow)), (part,), self._known[element][8])
        if kind != "b":
            return TEXT
        if name == "numeric":
            return PgType("numeric", _decimal(modifier))
        if name == "interval":
            months_only = modifier >= 0 and not (modifier >> 16) & 0x7FFF & ~_YEARS_AND_MONTHS
            return TEXT if months_only else PgType("interval", pa.duration("us"))
        return PgType(name, PLAIN[name]) if name in PLAIN else TEXT


def _decimal(modifier: int) -> pa.DataType:
    """Returns the type of ``numeric``, which has any number of digits. One with declared digits has them, up to the
    maximum here.
    """
    if modifier < 4:
        return pa.decimal128(_DIGITS, _ANY_SCALE)
    precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (((modifier - 4) & 0x7FF) ^ 1024) - 1024
    if scale < 0:
        return pa.decimal128(min(precision - scale, _DIGITS), 0)
    return pa.decimal128(min(max(precision, scale), _DIGITS), min(scale, _DIGITS))


def holds(dtype: pa.DataType, values: pa.DataType) -> bool:
    """Returns whether a column of one type can represent every value of another."""
    t = pa.types
    if dtype == values or t.is_string(dtype):
        return True
    if t.is_integer(dtype) and t.is_integer(values):
        return bool(dtype.bit_width >= values.bit_width)
    if t.is_floating(dtype) and t.is_floating(values):
        return bool(dtype.bit_width >= values.bit_width)
    if t.is_decimal(dtype) and t.is_decimal(values):
        return bool(
            dtype.scale >= values.scale and dtype.precision - dtype.scale >= values.precision - values.scale
        )
    if t.is_decimal(dtype) and t.is_integer(values):
        digits = {8: 3, 16: 5, 32: 10, 64: 19}[values.bit_width]
        return bool(dtype.precision - dtype.scale >= digits)
    if t.is_list(dtype) and t.is_list(values):
        return holds(dtype.value_type, values.value_type)
    return False
