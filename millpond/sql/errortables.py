"""Defines the columns of error tables, and which tables ERROR INTO accepts."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from millpond.errors import Error, NotSupported, Place, SqlError
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.printer import print_name
from millpond.types import Column, Schema, type_name

ERRORS = "$errors"
ERROR_COLUMNS = Schema(
    (
        Column("query", pa.string()),
        Column("stream", pa.string()),
        Column("seq", pa.int64()),
        Column("time", pa.timestamp("us", "UTC")),
        Column("reason", pa.string()),
        Column("row", pa.string()),
    )
)


def error_table(query: str) -> str:
    """Returns the name of a query's own error table; a query that fills a table or stream is named after it."""
    return f"{query.removeprefix('table:').removeprefix('stream:')}{ERRORS}"


def error_relation(query: str) -> Relation:
    return Relation(error_table(query), "table", ERROR_COLUMNS)


def check_errors_into(
    catalog: Catalog, name: str, target: Relation | None, place: Place | None
) -> Iterator[Error]:
    """Yields what is wrong with the table of ERROR INTO."""
    listed = ", ".join(f"{c.name} {type_name(c.type)}" for c in ERROR_COLUMNS)
    hint = f"make one, with all or some of these columns: CREATE TABLE {print_name(name)} ({listed})"
    relation = catalog.find(name)
    if relation is None:
        error = catalog.unknown(name, "table", place)
        error.hint = hint
        yield error
        return
    if relation.kind != "table" or (target is not None and target.name.lower() == relation.name.lower()):
        yield SqlError(f'"{name}" cannot take the errors of this statement', hint=hint, place=place)
        return
    if relation.stored_in != (None if target is None else target.stored_in):
        yield NotSupported(
            f'table "{name}" is not where the rows of this statement go: one commit cannot change both',
            hint="store the error table where the target is stored",
            place=place,
        )
    if relation.schema.key:
        yield SqlError(f'table "{name}" has a key: errors are appended', hint=hint, place=place)
    for column in relation.schema:
        known = ERROR_COLUMNS.find(column.name)
        if known is None or known.type != column.type:
            what = f"{column.name} {type_name(column.type)}"
            yield SqlError(f'column "{what}" of table "{name}" is not of an error', hint=hint, place=place)
