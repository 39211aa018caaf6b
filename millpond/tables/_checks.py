"""What a table refuses, whatever its backend."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Changes
from millpond.errors import InvalidRecord, NotSupported
from millpond.records.cast import conform
from millpond.records.columns import first_null
from millpond.types import Schema


def checked(schema: Schema, changes: Changes, *, what: str, null_keys: bool) -> Changes:
    """The changes with exactly the schema's columns. Raises InvalidRecord for rows that do not fit, a NULL in
    the key, and a NULL in a NOT NULL column of a row that is not a delete; NotSupported for deletes without a
    key."""
    rows = conform(schema, changes.rows, what=what)
    deleted = changes.deleted
    if isinstance(deleted, pa.ChunkedArray):
        deleted = deleted.combine_chunks()
    if deleted is not None and not deleted.true_count:
        deleted = None
    if deleted is not None and not schema.key:
        raise NotSupported(f"{what} has no primary key, so no row of it can be deleted by key")
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
    return Changes(rows, deleted)


def _or_deleted(values: pa.ChunkedArray, deleted: pa.BooleanArray) -> pa.Array:
    """NULL where a value is NULL in a row that is not deleted."""
    fine = pc.or_(pc.is_valid(values).combine_chunks(), deleted)
    return pc.if_else(fine, True, pa.scalar(None, pa.bool_()))
