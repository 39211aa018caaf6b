"""Casts Arrow data to the columns and types of a schema: names ignore case, and only lossless casts are done.

What pyarrow casts correctly is cast in one call; every other pair of types goes through Python values and the rules of
records, so that Arrow data is never treated more loosely than a dict.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InvalidRecord, did_you_mean
from millpond.records.columns import BadValue, column
from millpond.types import Schema, type_name


def conform(schema: Schema, data: pa.Table | pa.RecordBatch, *, what: str) -> pa.Table:
    """Returns ``data`` with exactly the schema's columns and types; a missing column is NULL. Copies only what it
    casts.

    Raises InvalidRecord for an unknown column and for values that a cast would change. NULLs are not checked.
    """
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    fields = schema.arrow()
    if table.schema.equals(fields):
        return table.replace_schema_metadata(None) if table.schema.metadata else table
    places: dict[str, int] = {}
    for at, name in enumerate(table.column_names):
        if name not in schema:
            raise InvalidRecord(
                f'column "{name}" is not in {what}',
                field=name,
                hint=did_you_mean(name, schema.names, f"its columns: {', '.join(schema.names)}"),
            )
        if name.lower() in places:
            raise InvalidRecord(f'column "{name}" is given twice for {what}', field=name)
        places[name.lower()] = at
    arrays = []
    for field in fields:
        place = places.get(field.name.lower())
        if place is None:
            arrays.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
            continue
        given = table.column(place)
        if given.type.equals(field.type):
            arrays.append(given)
            continue
        try:
            arrays.append(cast(given, field.type))
        except BadValue as e:
            name = ".".join((field.name, *e.path)).replace(".[", "[")
            message = f'row {e.row} for {what}: field "{name}": {e.reason}'
            raise InvalidRecord(message, row=e.row, field=name, hint=e.hint) from None
        except (pa.ArrowException, TypeError, ValueError) as e:
            message = f'column "{field.name}" for {what}: {given.type} to {type_name(field.type)}: {e}'
            raise InvalidRecord(message, field=field.name) from None
    return pa.Table.from_arrays(arrays, schema=fields)


def cast(given: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray:
    """Casts the values to ``dtype``, exactly. Raises BadValue or an Arrow error."""
    if pa.types.is_dictionary(given.type):
        given = given.cast(given.type.value_type)
    if given.type.equals(dtype):
        return given
    if _safe(given.type, dtype):
        try:
            return given.cast(dtype)
        except pa.ArrowInvalid:
            pass
    if pa.types.is_timestamp(given.type) and given.type.unit == "ns":
        given = given.cast(pa.timestamp("us", given.type.tz))
    if pa.types.is_map(given.type):
        values = [None if v is None else dict(v) for v in given.to_pylist()]
    else:
        values = given.to_pylist()
    return pa.chunked_array([column(values, dtype)])


def _safe(have: pa.DataType, want: pa.DataType) -> bool:
    """Returns whether Arrow's checked cast between the types accepts exactly what a record may contain."""
    t = pa.types
    if t.is_null(have):
        return True
    if t.is_integer(want):
        return bool(t.is_integer(have))
    if t.is_floating(want):
        narrower = t.is_floating(have) and have.bit_width <= want.bit_width
        return bool(t.is_integer(have) or narrower)
    if t.is_decimal(want):
        return bool(t.is_integer(have) or t.is_decimal(have) or t.is_string(have))
    if t.is_string(want):
        return bool(t.is_large_string(have) or t.is_string_view(have))
    if t.is_binary(want):
        return bool(t.is_large_binary(have) or t.is_binary_view(have) or t.is_fixed_size_binary(have))
    if t.is_timestamp(want):
        zoned = t.is_timestamp(have) and have.tz is not None
        return bool(t.is_date(have) or (t.is_timestamp(have) and (want.tz is not None or not zoned)))
    if t.is_date(want):
        return bool(t.is_date(have))
    if t.is_list(want):
        lists = t.is_list(have) or t.is_large_list(have)
        return bool(lists and _same_or_safe(have.value_type, want.value_type))
    return bool(t.is_duration(want) and t.is_duration(have))


def _same_or_safe(have: pa.DataType, want: pa.DataType) -> bool:
    return bool(have.equals(want)) or _safe(have, want)


def decoded(table: pa.Table) -> pa.Table:
    """Returns the table with dictionary-encoded columns as plain ones."""
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            plain = pc.cast(table.column(at), field.type.value_type)
            table = table.set_column(at, pa.field(field.name, field.type.value_type), plain)
    return table
