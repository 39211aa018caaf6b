"""Defines schemas. A type is an Arrow type everywhere; this file maps it to its Spark SQL name.

| Spark SQL            | Arrow                         |
|----------------------|-------------------------------|
| BOOLEAN              | bool                          |
| TINYINT … BIGINT     | int8 … int64                  |
| FLOAT, DOUBLE        | float32, float64              |
| DECIMAL(p,s)         | decimal128(p, s)              |
| STRING, BINARY       | string, binary                |
| DATE                 | date32                        |
| TIMESTAMP            | timestamp[us, tz=UTC]         |
| TIMESTAMP_NTZ        | timestamp[us]                 |
| INTERVAL DAY…SECOND  | duration[us]                  |
| ARRAY, MAP, STRUCT   | list, map, struct             |
| VOID                 | null                          |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
NUMBER = pa.decimal128(38, 19)
"""The type of numbers with a fraction that nobody declared: it can represent every BIGINT, and 19 digits after the
point. Nobody declares such a scale, so it differs from declared decimals, which are written with their full scale.
"""

_SIMPLE: dict[pa.DataType, str] = {
    pa.null(): "VOID",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_NTZ: "TIMESTAMP_NTZ",
    pa.duration("us"): "INTERVAL DAY TO SECOND",
}


def quote(name: str) -> str:
    """Quotes an identifier for Spark SQL, always with back-ticks."""
    return "`" + name.replace("`", "``") + "`"


def type_name(dtype: pa.DataType | None) -> str:
    """Returns the Spark SQL name of a type; ``?`` if it is not known."""
    if dtype is None:
        return "?"
    if dtype in _SIMPLE:
        return _SIMPLE[dtype]
    if pa.types.is_decimal128(dtype):
        return f"DECIMAL({dtype.precision},{dtype.scale})"
    if pa.types.is_list(dtype):
        return f"ARRAY<{type_name(dtype.value_type)}>"
    if pa.types.is_map(dtype):
        return f"MAP<{type_name(dtype.key_type)}, {type_name(dtype.item_type)}>"
    if pa.types.is_struct(dtype):
        inner = ", ".join(f"{quote(f.name)}: {type_name(f.type)}" for f in dtype)
        return f"STRUCT<{inner}>"
    raise TypeError(f"no Spark SQL type for Arrow type {dtype}")


def normal(dtype: pa.DataType) -> pa.DataType:
    """Returns the type of the table above that can represent the values of any Arrow type (int for uint, us for ns, …).

    Raises TypeError for a type that has none.
    """
    t = pa.types
    if dtype in _SIMPLE or t.is_decimal128(dtype):
        return dtype
    if t.is_dictionary(dtype):
        return normal(dtype.value_type)
    if t.is_large_string(dtype) or t.is_string_view(dtype):
        return pa.string()
    if t.is_large_binary(dtype) or t.is_fixed_size_binary(dtype) or t.is_binary_view(dtype):
        return pa.binary()
    if t.is_unsigned_integer(dtype):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}[dtype.bit_width]
    if t.is_float16(dtype):
        return pa.float32()
    if t.is_timestamp(dtype):
        return TIMESTAMP if dtype.tz else TIMESTAMP_NTZ
    if t.is_date64(dtype):
        return pa.date32()
    if t.is_duration(dtype):
        return pa.duration("us")
    if t.is_list(dtype) or t.is_large_list(dtype) or t.is_fixed_size_list(dtype):
        return pa.list_(pa.field("element", normal(dtype.value_type)))
    if t.is_map(dtype):
        return pa.map_(normal(dtype.key_type), normal(dtype.item_type))
    if t.is_struct(dtype):
        return pa.struct([pa.field(f.name, normal(f.type), f.nullable) for f in dtype])
    raise TypeError(f"no Spark SQL type for Arrow type {dtype}")


@dataclass(frozen=True, slots=True)
class Column:
    """Describes a column; ``type`` is None while only Spark's analyser knows it. A ``hidden`` one is not in ``*``.
    ``default`` is the SQL of the value that a row has if it is given none; without it that is NULL.
    """

    name: str
    type: pa.DataType | None
    nullable: bool = True
    hidden: bool = False
    default: str | None = None


@dataclass(frozen=True)
class Schema:
    """Contains columns in order, and the primary key. Names ignore case and keep their spelling."""

    columns: tuple[Column, ...]
    key: tuple[str, ...] = field(default=())

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {c.name.lower(): c for c in reversed(self.columns)}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    def find(self, name: str) -> Column | None:
        return self._by_name.get(name.lower())

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._by_name

    @property
    def known(self) -> bool:
        """Returns whether every type is known."""
        return all(c.type is not None for c in self.columns)

    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type) for c in self.columns])

    @staticmethod
    def of(schema: pa.Schema, key: tuple[str, ...] = ()) -> Schema:
        return Schema(tuple(Column(f.name, normal(f.type)) for f in schema), key)

    def ddl(self) -> str:
        """Returns ``a INT, b STRING`` as Spark reads it."""
        return ", ".join(f"{quote(c.name)} {type_name(c.type)}" for c in self.columns)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Combines the chunks of a column."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
