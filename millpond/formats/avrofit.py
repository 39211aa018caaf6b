"""Converts columns of one Avro schema to those of another: by name, to types that can represent the values."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import BadData
from millpond.formats.avroschema import Node
from millpond.types import Schema, type_name


def fitted(rows: pa.RecordBatch, columns: Schema) -> pa.RecordBatch:
    """Returns the rows with these columns; a missing one is NULL. Raises BadData if a value, or a type,
    does not fit.
    """
    places = {name.lower(): at for at, name in enumerate(rows.schema.names)}
    arrays = []
    for column in columns:
        at = places.get(column.name.lower())
        if at is None:
            arrays.append(pa.nulls(rows.num_rows, column.type))
            continue
        have = rows.column(at)
        if not fits(have.type, column.type):
            raise BadData(
                f'field "{column.name}" is a {type_name(have.type)}, the column a {type_name(column.type)}'
            )
        try:
            arrays.append(_cast(have, column.type))
        except (pa.ArrowException, ValueError) as error:
            raise BadData(
                f'field "{column.name}" does not fit into {type_name(column.type)}: {error}'
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=columns.arrow())


def fits(have: pa.DataType | None, want: pa.DataType | None) -> bool:
    """Returns whether values of one type can be those of another, if they are not too large for it."""
    t = pa.types
    if have is None or want is None or have == want or t.is_null(have):
        return True
    if t.is_decimal(want):
        return bool(t.is_integer(have) or (t.is_decimal(have) and have.scale <= want.scale))
    if t.is_struct(want):
        if not t.is_struct(have):
            return False
        there = {f.name.lower(): f.type for f in want}
        return all(fits(f.type, there[f.name.lower()]) for f in have if f.name.lower() in there)
    if t.is_list(want):
        return t.is_list(have) and fits(have.value_type, want.value_type)
    if t.is_map(want):
        return t.is_map(have) and fits(have.item_type, want.item_type)
    return bool(
        (t.is_integer(have) and (t.is_integer(want) or t.is_floating(want)))
        or (t.is_floating(have) and t.is_float64(want))
        or (t.is_string(have) and t.is_binary(want))
        or (t.is_binary(have) and t.is_string(want))
        or (t.is_date(have) and t.is_timestamp(want))
    )


def refused(columns: Schema, node: Node) -> str | None:
    """Returns why rows with these columns cannot be written as records; None if they can."""
    there = {n.lower(): (n, i) for n, i in zip(node.names, node.inner, strict=True)}
    for column in columns:
        name, inner = there.pop(column.name.lower(), ("", None))
        if inner is None:
            return f'the schema of Avro has no field "{column.name}"'
        if not fits(column.type, inner.type):
            return f'column "{column.name}" is a {type_name(column.type)}, the field of Avro a {type_name(inner.type)}'
    for name, inner in there.values():
        if inner.kind != "null" and not (
            inner.kind == "union" and any(i.kind == "null" for i in inner.inner)
        ):
            return f'the query has no column "{name}", which the schema of Avro wants'
    return None


def _cast(have: pa.Array, want: pa.DataType) -> pa.Array:
    t = pa.types
    if have.type == want:
        return have
    if t.is_struct(want) and t.is_struct(have.type):
        names = {f.name.lower(): at for at, f in enumerate(have.type)}
        parts = [
            _cast(pc.struct_field(have, [names[f.name.lower()]]), f.type)
            if f.name.lower() in names
            else pa.nulls(len(have), f.type)
            for f in want
        ]
        return pa.StructArray.from_arrays(parts, fields=list(want), mask=have.is_null())
    if t.is_list(want) and t.is_nested(have.type.value_type):
        inner = _cast(have.values, want.value_type)
        return pa.ListArray.from_arrays(have.offsets, inner, type=want, mask=have.is_null())
    if t.is_integer(have.type) and t.is_decimal(want):
        return have.cast(pa.decimal128(19, 0)).cast(want)
    return have.cast(want)
