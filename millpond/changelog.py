"""Defines the changelog of a table of the app: the columns of the stream that has its changes.

A row of it is one change. It has the operation, its time, the number of the first row of the same commit, and each
column of the table twice: as it was, and as it is.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from millpond.types import Column, Schema

OP = "_op"
TIME = "_time"
"""The time of the commit, in milliseconds since 1970."""
FIRST = "_first"
"""The number, in the changelog, of the first change of the same commit."""
OLD, NEW = "-", "+"
"""What the names of the columns of the two images begin with."""
READ, ADDED, CHANGED, GONE = "r", "c", "u", "d"
"""The operations, in Debezium's words. ``READ`` is a row that was there when the changelog began."""
CHANGES = "$changes"
"""What the names of changelogs end with."""
DELETED = "_deleted"
"""The column that says whether a message has no value, or a row of a target is to be deleted."""
KEY = "_key"
"""The column with the key of a message."""
BESIDE = (KEY, "_partition", "_timestamp")
"""Columns of a message that are beside its value."""

Envelope = Literal["rows", "old-new", "debezium"]
"""The form of a change that is written: 'envelope'."""
Style = Literal["op", "key", "message"]
"""How a target takes changes: as rows with their operation, by upserts and deletes, or as messages with a key, where a
message without a value deletes.
"""
WORDS = {READ: "insert", ADDED: "insert", CHANGED: "update", GONE: "delete"}
"""The operations in the column ``_op`` of what is written."""

ORIGIN = pa.struct(
    [(name, pa.string()) for name in ("connector", "db", "schema", "table", "position", "snapshot")]
)
"""The origin of a change."""


def envelope(schema: Schema) -> Schema:
    """Returns the columns of Debezium's envelopes of changes of a table."""
    row = pa.struct([pa.field(c.name, c.type) for c in schema])
    kinds = {"before": row, "after": row, "op": pa.string(), "ts_ms": pa.int64(), "source": ORIGIN}
    return Schema(tuple(Column(name, kind) for name, kind in kinds.items()))


def changelog_schema(table: Schema) -> Schema:
    """Returns the columns of the changelog of a table."""
    own = (Column(OP, pa.string()), Column(TIME, pa.int64()), Column(FIRST, pa.int64()))
    images = (Column(f"{which}{c.name}", c.type) for which in (OLD, NEW) for c in table)
    return Schema((*own, *images))


def written_schema(rows: Schema, form: Envelope, style: Style, named_by: pa.DataType | None = None) -> Schema:
    """Returns the columns of the changes of rows, as a target gets them. ``named_by`` is the type of the key of
    messages: a text by default.
    """
    deleted = Column(DELETED, pa.bool_())
    if style == "key":
        return Schema((*rows.columns, deleted))
    key = () if KEY in rows else (Column(KEY, named_by or pa.string()),)
    if form == "rows":
        own = (Column(OP, pa.string()),) if style == "op" else ()
        return Schema((*own, *rows.columns, *((deleted, *key) if style == "message" else ())))
    beside = tuple(c for c in rows if c.name.lower() in BESIDE) if style == "message" else ()
    value = Schema(tuple(c for c in rows if c not in beside))
    if form == "debezium":
        columns = envelope(value).columns
    else:
        row = pa.struct([pa.field(c.name, c.type) for c in value])
        columns = (Column(OP, pa.string()), Column("old", row), Column("new", row))
    return Schema((*columns, *((*beside, deleted, *key) if style == "message" else ())))
