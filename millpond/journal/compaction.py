"""Compacts a table in the journal: its rows replace all the changes that they result from.

The rows are written next to the changes, and one small transaction makes them valid. What is no longer valid is removed
in small steps, with commits in between. A crash at any point leaves either the changes or the rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa

from millpond.changes import ROW
from millpond.journal.blob_rows import Rows
from millpond.journal.blobs import INLINE_BYTES, Blob, encode, encoded, plain, to_file
from millpond.journal.database import LIVE

_PIECE_ROWS = 500
_PIECE_BYTES = 1 << 22


def prepared_snapshot(parts: Iterable[pa.Table], directory: Path) -> Rows:
    """Returns the rows of a table ready to be stored, in a file if they are many. ``parts`` has at least one part."""
    schema = b""

    def blobs() -> Iterator[Blob]:
        nonlocal schema
        for part in map(plain, parts):
            if not schema:
                schema = part.schema.serialize().to_pybytes()
            yield from encode(part)

    # A table without rows has a snapshot too: it says that what came before is not valid.
    found = blobs()
    first: list[Blob] = []
    size = 0
    for blob in found:
        first.append(blob)
        size += blob.length
        if size > INLINE_BYTES:
            return Rows(schema, tuple(to_file(chain(first, found), directory, True)))
    if not first:
        empty = pa.ipc.read_schema(pa.py_buffer(schema)).empty_table()
        first.append(encoded(pa.RecordBatch.from_pylist([], schema=empty.schema)))
    return Rows(schema, tuple(first))


def taken_number(last: int) -> pa.Table:
    """Returns a delete of the row of that number: it says that the number, and those before it, are taken."""
    return pa.table({ROW: pa.array([last], pa.int64()), "": pa.array([True])})


def forget_snapshots(connection: sqlite3.Connection, table: str, number: int) -> None:
    """Removes snapshots of the table as of a commit, within the caller's transaction."""
    connection.execute(
        "DELETE FROM changes WHERE name = ? AND number = ? AND is_snapshot = 1", (table, number)
    )


def sweep(connection: sqlite3.Connection, table: str) -> tuple[list[str], bool]:
    """Removes some invalid rows and changes of the table, within the caller's transaction. Returns the files that
    contained them, and whether there may be more.
    """
    found = connection.execute(
        f"SELECT id, CASE WHEN file IS NULL THEN length ELSE 0 END, file FROM changes WHERE name = :name"
        f" AND NOT {LIVE} ORDER BY number, id LIMIT {_PIECE_ROWS}",
        {"name": table},
    ).fetchall()
    files, size, count = [], 0, 0
    for row, length, file in found:
        connection.execute("DELETE FROM changes WHERE id = ?", (row,))
        size, count = size + length, count + 1
        files += [file] if file else []
        if size > _PIECE_BYTES:
            break
    return files, count == _PIECE_ROWS or count < len(found)
