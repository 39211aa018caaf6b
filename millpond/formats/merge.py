"""Finds one type for values of two types, as Spark does: merges what was discovered in rows and files."""

from __future__ import annotations

import pyarrow as pa

from millpond.types import NUMBER, TIMESTAMP, Column, Schema

WIDE = pa.decimal128(38, 0)
"""Whole numbers beyond BIGINT."""

_LADDERS = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64(), WIDE, pa.float64()),
    (pa.int8(), pa.int16(), pa.int32(), pa.int64(), NUMBER, pa.float64()),
    (pa.float32(), pa.float64()),
    (pa.date32(), TIMESTAMP),
)


def merge_types(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Returns the type that can represent the values of both; STRING if there is no other. VOID yields to
    all others.
    """
    t = pa.types
    if a == b or t.is_null(b):
        return a
    if t.is_null(a):
        return b
    for ladder in _LADDERS:
        if a in ladder and b in ladder:
            return ladder[max(ladder.index(a), ladder.index(b))]
    if {a, b} == {WIDE, NUMBER}:
        return pa.float64()
    if t.is_list(a) and t.is_list(b):
        return pa.list_(pa.field("element", merge_types(a.value_type, b.value_type)))
    if t.is_struct(a) and t.is_struct(b):
        fields = {f.name.lower(): f for f in a}
        for field in b:
            known = fields.get(field.name.lower())
            merged = field if known is None else pa.field(known.name, merge_types(known.type, field.type))
            fields[field.name.lower()] = merged
        return pa.struct(list(fields.values()))
    return pa.string()


def is_numeric(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))


def widen_numbers(known: Schema, found: Schema) -> Schema:
    """Returns the known columns, with types that can also represent the found numbers; all else is unchanged."""
    types = {c.name.lower(): c.type for c in found}

    def widened(column: Column) -> pa.DataType | None:
        own, other = column.type, types.get(column.name.lower())
        both = own is not None and other is not None and is_numeric(own) and is_numeric(other)
        return merge_types(own, other) if both else own

    return Schema(tuple(Column(c.name, widened(c)) for c in known))


def merge_schemas(a: Schema, b: Schema) -> Schema:
    """Returns the columns of both, those of ``a`` first; names ignore case."""
    merged = merge_types(pa.struct(list(a.arrow())), pa.struct(list(b.arrow())))
    return Schema(tuple(Column(f.name, f.type) for f in merged))


def settle(dtype: pa.DataType) -> pa.DataType:
    """Returns the type with STRING in place of what was NULL everywhere and of objects without fields."""
    if pa.types.is_null(dtype):
        return pa.string()
    if pa.types.is_list(dtype):
        return pa.list_(pa.field("element", settle(dtype.value_type)))
    if pa.types.is_struct(dtype):
        if dtype.num_fields == 0:
            return pa.string()
        return pa.struct([pa.field(f.name, settle(f.type)) for f in dtype])
    return dtype


def settle_schema(schema: Schema) -> Schema:
    return Schema(tuple(Column(c.name, settle(c.type)) for c in schema))
