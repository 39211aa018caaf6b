"""Changes the fields of all documents of a table, by one request that can be repeated."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.alterations import (
    AddedColumn,
    DroppedColumn,
    RenamedColumn,
    RetypedColumn,
    TableChange,
)
from millpond.connectors.mongodb.rows import MongoRows
from millpond.connectors.mongodb.values import encoded, is_text_there, rest_field, rests
from millpond.errors import NotSupported
from millpond.types import Column, type_name

Update = tuple[dict[str, Any], dict[str, Any]]
"""A filter, and what is changed in the documents that match."""


def changed_fields(before: MongoRows, after: MongoRows, change: TableChange) -> Update | None:
    """Returns the request; None if the documents stay as they are. Raises NotSupported."""
    match change:
        case AddedColumn(column, value):
            if not value[0].is_valid:
                return None
            field = after.field(column)
            made = {field: encoded(value, column.type)[0]}
            if pa.types.is_timestamp(column.type) and any(rests(value)):
                made[rest_field(field)] = rests(value)[0]
            return {field: {"$exists": False}}, {"$set": made}
        case RenamedColumn(old, new):
            column = before.column(old)
            old_field, new_field = before.field(column), after.field(after.column(new))
            if old_field == new_field:
                return None
            made = {old_field: new_field}
            if pa.types.is_timestamp(column.type):
                made[rest_field(old_field)] = rest_field(new_field)
            return {old_field: {"$exists": True}}, {"$rename": made}
        case DroppedColumn(name):
            field = before.field(before.column(name))
            return {field: {"$exists": True}}, {"$unset": {field: "", rest_field(field): ""}}
        case RetypedColumn(name, dtype):
            _check_retype(before, before.column(name), dtype)
    return None


def _check_retype(table: MongoRows, column: Column, dtype: pa.DataType) -> None:
    t, have = pa.types, column.type
    in_key = column.name.lower() in (k.lower() for k in table.schema.key)
    integers = t.is_integer(have) and t.is_integer(dtype)
    decimals = t.is_decimal(have) and t.is_decimal(dtype) and is_text_there(have) == is_text_there(dtype)
    if not integers and not (decimals and not (in_key or is_text_there(have))):
        raise NotSupported(
            f'column "{column.name}" of {table.what} is stored otherwise as {type_name(dtype)}',
            hint="in MongoDB integers become wider integers, and DECIMAL one with more digits, up to 34",
        )
