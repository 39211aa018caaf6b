"""Old parts of a stream: small sends rolled into a file, and what has expired let go."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from millpond.journal.blobs import combined, decode, encode, to_file
from millpond.journal.stored import Rows, Schemas, Segment, read_segments, write_segments

ROLL_BYTES = 1 << 23


def roll(
    connection: sqlite3.Connection, directory: Path, stream: str, schemas: Schemas, *, durable: bool
) -> list[str]:
    """Moves the rows of the stream that lie in SQLite into a file, within the caller's transaction.

    Answers the file's name. Readers find the same rows under the same numbers.
    """
    bounds = connection.execute(
        "SELECT MIN(first), MAX(first + rows) FROM segments WHERE name = ? AND file IS NULL", (stream,)
    ).fetchone()
    if bounds[0] is None:
        return []
    small = [s for s in read_segments(connection, stream, *bounds) if s.blob.file is None]

    def batches() -> Iterator[tuple[Segment, pa.RecordBatch]]:
        for segment in small:
            what = f'stream "{stream}", row {segment.first}'
            yield segment, decode(segment.blob, schemas.read(connection, segment.schema), directory, what)

    runs = []
    reached = small[0].first
    for segment, rows in _neighbours(batches()):
        reached = segment.first
        runs.append((segment, encode(rows)))
    assert reached >= small[0].first
    placed = iter(to_file((b for _, blobs in runs for b in blobs), directory, durable))
    connection.executemany(
        "DELETE FROM segments WHERE name = ? AND first = ?", [(stream, s.first) for s in small]
    )
    files: set[str] = set()
    for segment, blobs in runs:
        rows = Rows(b"", tuple(next(placed) for _ in blobs))
        write_segments(connection, stream, segment.first, segment.sent, rows, segment.schema)
        files |= rows.files
    return list(files)


def _neighbours(
    batches: Iterator[tuple[Segment, pa.RecordBatch]],
) -> Iterator[tuple[Segment, pa.Table]]:
    """Consecutive rows put together; the newest time of sending is not kept, so a run lasts at most a minute."""
    last: list[Segment] = []

    def same(first: Segment, other: Segment) -> bool:
        follows = last[-1].end == other.first if last else False
        return follows and first.schema == other.schema and other.sent - first.sent < 60

    def watched() -> Iterator[tuple[Segment, pa.RecordBatch]]:
        for segment, batch in batches:
            yield segment, batch
            last[:] = [segment]

    yield from combined(watched(), same)


def trim(connection: sqlite3.Connection, stream: str, before: int) -> list[str]:
    """Removes the segments that end at or below ``before``; answers the files that they were in."""
    condition = "name = ? AND first + rows <= ?"
    files = connection.execute(
        f"SELECT DISTINCT file FROM segments WHERE {condition} AND file IS NOT NULL", (stream, before)
    ).fetchall()
    connection.execute(f"DELETE FROM segments WHERE {condition}", (stream, before))
    return [row[0] for row in files]
