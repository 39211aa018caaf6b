"""Reads, checks and writes (within a transaction) the rows of the journal's tables that contain blobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from millpond.changes import ROW
from millpond.journal.blobs import Blob, combined, corrupt, decode, row_checksum
from millpond.journal.database import LIVE, verified

Adapt = Callable[[int, pa.RecordBatch], pa.RecordBatch]
"""Returns the rows of a commit, by its number, with the current columns."""
_BLOB = "schema, rows, length, crc, data, file, offset, seal"


@dataclass(frozen=True, slots=True)
class Rows:
    """Contains rows ready to be stored: their schema in IPC format and their batches."""

    schema: bytes
    blobs: tuple[Blob, ...]

    @property
    def rows(self) -> int:
        return sum(b.rows for b in self.blobs)

    @property
    def files(self) -> set[str]:
        return {b.file for b in self.blobs if b.file}


class Schemas:
    """Stores schemas by number. The writer calls ``forget`` when a transaction fails, because its numbers are then
    void.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._schemas: dict[int, pa.Schema] = {}

    def number(self, connection: sqlite3.Connection, schema: bytes) -> int:
        """Returns the schema's number; a new schema is stored."""
        number = self._numbers.get(schema)
        if number is None:
            found = connection.execute("SELECT id FROM schemas WHERE data = ?", (schema,)).fetchone()
            if found is None:
                add = "INSERT INTO schemas (data, seal) VALUES (?, ?)"
                number = int(connection.execute(add, (schema, row_checksum(schema))).lastrowid or 0)
            else:
                number = int(found[0])
            self._numbers[schema] = number
        return number

    def known(self, schema: bytes) -> int | None:
        """Returns the schema's number, if it was requested since the start."""
        return self._numbers.get(schema)

    def data(self, connection: sqlite3.Connection, number: int) -> bytes:
        row = connection.execute("SELECT data, seal FROM schemas WHERE id = ?", (number,)).fetchone()
        if row is None:
            raise corrupt(f"schema {number} is missing in the journal")
        verified(row[1], f"schema {number} in the journal", row[0])
        return bytes(row[0])

    def read(self, connection: sqlite3.Connection, number: int) -> pa.Schema:
        schema = self._schemas.get(number)
        if schema is None:
            data = self.data(connection, number)
            schema = self._schemas[number] = pa.ipc.read_schema(pa.py_buffer(data))
        return schema

    def forget(self) -> None:
        self._numbers.clear()


def write_changes(
    connection: sqlite3.Connection,
    name: str,
    number: int,
    rows: Rows,
    schema: int,
    *,
    snapshot: bool,
    deletes: bool,
) -> list[int]:
    """Stores the changes of one table in one commit, and returns their checksums."""
    checksums = []
    for b in rows.blobs:
        facts = (name, number, int(snapshot), int(deletes), schema, b.rows, b.length, b.crc, b.file, b.offset)
        checksums.append(row_checksum(*facts))
        connection.execute(
            "INSERT INTO changes (name, number, is_snapshot, has_deletes, schema, rows, length, crc, file,"
            " offset, data, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*facts, b.data, checksums[-1]),
        )
    return checksums


def read_changes(
    connection: sqlite3.Connection,
    directory: Path,
    name: str,
    schemas: Schemas,
    blobs: int,
    total: int,
    adapt: Adapt | None = None,
    after: int = -1,
) -> Iterator[tuple[bool, pa.Table]]:
    """Yields the table's changes after a commit, in order: whether their last column says which rows are deletes, and
    the rows, as ``adapt`` returns them.

    Raises StateCorrupt if they are not all of the ``blobs`` blobs with that ``total`` of checksums.
    """

    def batches() -> Iterator[tuple[tuple[bool, int | None], pa.RecordBatch]]:
        for number, deletes, batch in read_blobs(connection, directory, name, schemas, blobs, total):
            if number <= after:
                continue
            # Rows that are identified by number: a later commit may name one that an earlier one added.
            apart = number if ROW in batch.schema.names else None
            yield (deletes, apart), batch if adapt is None else adapt(number, batch)

    for (deletes, _), rows in combined(batches(), lambda first, other: bool(first == other)):
        yield deletes, rows


def read_blobs(
    connection: sqlite3.Connection, directory: Path, name: str, schemas: Schemas, blobs: int, total: int
) -> Iterator[tuple[int, bool, pa.RecordBatch]]:
    """Reads like ``read_changes``, but returns each blob separately, with the number of its commit."""
    what = f'table "{name}"'
    found = connection.execute(
        f"SELECT number, is_snapshot, has_deletes, {_BLOB} FROM changes WHERE name = :name AND {LIVE}"
        " ORDER BY number, id",
        {"name": name},
    )
    count = checksums = 0
    for number, snapshot, deletes, schema, rows, length, crc, data, file, offset, stored in found:
        facts = (name, number, snapshot, deletes, schema, rows, length, crc, file, offset)
        verified(stored, f"{what}, commit {number}", *facts)
        count, checksums = count + 1, (checksums + stored) & 0xFFFFFFFF
        blob = Blob(rows, length, crc, data, file, offset)
        columns = schemas.read(connection, schema)
        yield number, bool(deletes), decode(blob, columns, directory, f"{what}, commit {number}")
    if (count, checksums) != (blobs, total):
        raise corrupt(f"{what}: {count} of its {blobs} blobs are in the journal")


def write_segments(
    connection: sqlite3.Connection, name: str, first: int, sent: float, rows: Rows, schema: int
) -> int:
    """Stores rows of a stream from sequence number ``first`` on; returns the next number."""
    for b in rows.blobs:
        facts = (name, first, sent, schema, b.rows, b.length, b.crc, b.file, b.offset)
        connection.execute(
            "INSERT INTO segments (name, first, sent, schema, rows, length, crc, file, offset, data, seal)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*facts, b.data, row_checksum(*facts)),
        )
        first += b.rows
    return first


@dataclass(frozen=True, slots=True)
class Segment:
    """Contains some rows of a stream, from sequence number ``first`` on."""

    first: int
    sent: float
    schema: int
    blob: Blob

    @property
    def end(self) -> int:
        return self.first + self.blob.rows


IN_RANGE = (
    "name = :name AND first < :end AND first >="
    " COALESCE((SELECT MAX(first) FROM segments WHERE name = :name AND first <= :start), 0)"
)
"""The segments that contain the rows from ``:start`` up to ``:end``."""


def read_segments(connection: sqlite3.Connection, name: str, start: int, end: int) -> Iterator[Segment]:
    """Yields the segments that contain the rows from ``start`` up to ``end``, in order and without a gap."""
    found = connection.execute(
        f"SELECT first, sent, {_BLOB} FROM segments WHERE {IN_RANGE} ORDER BY first",
        {"name": name, "start": start, "end": end},
    )
    reached: int | None = None
    for first, sent, schema, rows, length, crc, data, file, offset, stored in found:
        verified(
            stored,
            f'stream "{name}", row {first}',
            name,
            first,
            sent,
            schema,
            rows,
            length,
            crc,
            file,
            offset,
        )
        if reached is not None and first != reached:
            raise corrupt(f'stream "{name}": rows {reached} to {first - 1} are not in the journal')
        reached = first + rows
        if reached > start:
            yield Segment(first, sent, schema, Blob(rows, length, crc, data, file, offset))
    if reached is not None and reached < end:
        raise corrupt(f'stream "{name}": rows {reached} to {end - 1} are not in the journal')


def files_in_use(connection: sqlite3.Connection, among: Sequence[str] | None = None) -> set[str]:
    """Returns the files that the journal names, all or those among these."""
    query = "SELECT file FROM {0} WHERE file IS NOT NULL"
    values: Sequence[Any] = ()
    if among is not None:
        query += f" AND file IN ({', '.join('?' * len(among))})"
        values = among
    return {row[0] for t in ("changes", "segments") for row in connection.execute(query.format(t), values)}


def remove_rows(
    connection: sqlite3.Connection,
    kind: Literal["changes", "segments"],
    condition: str,
    values: Sequence[Any],
) -> list[str]:
    """Removes changes of tables, or segments of streams, that match a condition; returns the files that
    contained them.
    """
    files = connection.execute(
        f"SELECT DISTINCT file FROM {kind} WHERE {condition} AND file IS NOT NULL", values
    ).fetchall()
    connection.execute(f"DELETE FROM {kind} WHERE {condition}", values)
    return [row[0] for row in files]
