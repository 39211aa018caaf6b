"""Checks what every table refuses, whatever its backend."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes
from millpond.errors import InvalidRecord, NotSupported
from millpond.records.cast import conform
from millpond.records.columns import first_null
from millpond.types import Schema, whole


def checked(schema: Schema, changes: Changes, *, what: str, null_keys: bool) -> Changes:
    """Returns the changes with exactly the schema's columns, and ``_row`` after them if a table without a key gets it.
    Raises InvalidRecord for rows that do not fit, a NULL in the key, and a NULL in a NOT NULL column of a row that is
    not a delete; NotSupported for deletes with neither a key nor a row number.
    """
    given, numbers = (changes.rows, None) if schema.key else _split(schema, changes.rows, what)
    rows = conform(schema, given, what=what)
    deleted = changes.deleted
    if isinstance(deleted, pa.ChunkedArray):
        deleted = deleted.combine_chunks()
    if deleted is not None and not deleted.true_count:
        deleted = None
    if deleted is not None and not schema.key:
        if numbers is None or pc.any(pc.and_(deleted, numbers.is_null())).as_py():
            raise NotSupported(f"{what} has no primary key: its rows are deleted by their numbers")
    keys = {k.lower() for k in schema.key}
    for at, column in enumerate(schema.columns):
        is_key = column.name.lower() in keys
        if null_keys if is_key else column.nullable:
            continue
        values = rows.column(at)
        if not values.null_count:
            continue
        row = first_null(values if is_key or deleted is None else _or_deleted(values, deleted))
        if row is not None:
            role = "a primary key" if is_key else "declared NOT NULL"
            raise InvalidRecord(
                f'row {row} for {what}: field "{column.name}" is NULL, but it is {role}',
                row=row,
                field=column.name,
            )
    return Changes(rows if numbers is None else rows.append_column(ROW, numbers), deleted)


def _split(schema: Schema, rows: pa.Table, what: str) -> tuple[pa.Table, pa.Array | None]:
    """Returns the rows and their numbers, if they have them."""
    at = -1 if ROW in schema else rows.schema.get_field_index(ROW)
    if at < 0:
        return rows, None
    numbers = whole(rows.column(at).cast(pa.int64()))
    if pc.any(pc.less(numbers, 0)).as_py():
        row = int(pc.index(pc.less(numbers, 0), True).as_py())
        raise InvalidRecord(f"row {row} for {what}: {ROW} is negative", row=row, field=ROW)
    return rows.remove_column(at), numbers


def _or_deleted(values: pa.ChunkedArray, deleted: pa.BooleanArray) -> pa.Array:
    """Returns NULL where a value is NULL in a row that is not deleted."""
    fine = pc.or_(pc.is_valid(values).combine_chunks(), deleted)
    return pc.if_else(fine, True, pa.scalar(None, pa.bool_()))
