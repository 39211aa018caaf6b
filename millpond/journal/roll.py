"""Moves old small sends of a stream to a file, and removes what has expired."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millpond.journal.blob_rows import (
    Rows,
    Schemas,
    Segment,
    read_segments,
    remove_rows,
    write_segments,
)
from millpond.journal.blobs import PART_ROWS, Blob, decode, encoded, remove_files, to_file
from millpond.journal.segment_files import write_runs
from millpond.records.parquet import have_form

ROLL_BYTES = 1 << 23
_RUN_SECONDS = 60.0
_FILE_BYTES = 1 << 18
"""Bytes of consecutive rows that are worth a file of their own."""


def roll(
    connection: sqlite3.Connection, directory: Path, stream: str, schemas: Schemas, *, durable: bool
) -> None:
    """Moves the rows of the stream that are in SQLite to a file, within the caller's transaction.

    Readers find the same rows under the same numbers.
    """
    bounds = connection.execute(
        "SELECT MIN(first), MAX(first + rows) FROM segments WHERE name = ? AND file IS NULL", (stream,)
    ).fetchone()
    if bounds[0] is None:
        return
    small = [s for s in read_segments(connection, stream, *bounds) if s.blob.file is None]
    rolled = _write(list(_files(_runs(small))), connection, directory, stream, schemas, durable)
    connection.executemany(
        "DELETE FROM segments WHERE name = ? AND first = ?", [(stream, s.first) for s in small]
    )
    for run, blob in rolled:
        # The newest time of the run: no row of it expires too early.
        write_segments(connection, stream, run[0].first, run[-1].sent, Rows(b"", (blob,)), run[0].schema)


def _write(
    files: list[list[list[Segment]]],
    connection: sqlite3.Connection,
    directory: Path,
    stream: str,
    schemas: Schemas,
    durable: bool,
) -> list[tuple[list[Segment], Blob]]:
    """Writes the runs of each file, and returns them with their blobs. Those of small files share one of Arrow: it is
    synced once, and Spark does not have to open many.
    """
    written: list[tuple[list[Segment], Blob]] = []
    small: list[tuple[list[Segment], pa.RecordBatch]] = []
    try:
        for runs in files:
            schema = schemas.read(connection, runs[0][0].schema)
            tables = [
                pa.Table.from_batches(
                    [decode(s.blob, schema, directory, f'stream "{stream}", row {s.first}') for s in run]
                ).combine_chunks()
                for run in runs
            ]
            if have_form(schema) and sum(s.blob.length for run in runs for s in run) >= _FILE_BYTES:
                written += zip(runs, write_runs(tables, directory, durable), strict=True)
            else:
                small += ((run, t.to_batches()[0]) for run, t in zip(runs, tables, strict=True))
        if small:
            blobs = to_file((encoded(rows) for _, rows in small), directory, durable)
            written += zip((run for run, _ in small), blobs, strict=True)
    except BaseException:
        remove_files(directory, [blob.file for _, blob in written])
        raise
    return written


def _runs(segments: list[Segment]) -> Iterator[list[Segment]]:
    """Groups neighbours that may be in one batch: one schema, sent within a minute."""
    run: list[Segment] = []
    count = 0
    for segment in segments:
        if run and not (
            run[-1].end == segment.first
            and run[0].schema == segment.schema
            and 0 <= segment.sent - run[0].sent < _RUN_SECONDS
            and count + segment.blob.rows <= PART_ROWS
        ):
            yield run
            run, count = [], 0
        run.append(segment)
        count += segment.blob.rows
    if run:
        yield run


def _files(runs: Iterator[list[Segment]]) -> Iterator[list[list[Segment]]]:
    """Groups runs that may be in one file: consecutive rows with one schema."""
    file: list[list[Segment]] = []
    for run in runs:
        if file and (file[-1][-1].end != run[0].first or file[-1][0].schema != run[0].schema):
            yield file
            file = []
        file.append(run)
    if file:
        yield file


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Reports what was removed: files that contained rows, the number of rows, the bytes that were in SQLite, and
    whether there is more to remove.
    """

    files: list[str]
    rows: int
    inline: int
    more: bool


def trim(connection: sqlite3.Connection, stream: str, before: int) -> list[str]:
    """Removes the segments that end at or below ``before``; returns the files that contained them."""
    condition = "name = ? AND first < ? AND first + rows <= ?"
    return remove_rows(connection, "segments", condition, (stream, before, before))


def trim_some(connection: sqlite3.Connection, stream: str, before: int, most: int) -> Trimmed:
    """Removes the segments that end at or below ``before``, at most so many."""
    found = connection.execute(
        "SELECT first + rows, rows, CASE WHEN file IS NULL THEN length ELSE 0 END FROM segments"
        " WHERE name = ? AND first < ? AND first + rows <= ? ORDER BY first LIMIT ?",
        (stream, before, before, most),
    ).fetchall()
    if not found:
        return Trimmed([], 0, 0, False)
    files = trim(connection, stream, found[-1][0])
    return Trimmed(files, sum(f[1] for f in found), sum(f[2] for f in found), len(found) == most)


def first_sent_since(connection: sqlite3.Connection, stream: str, time: float) -> int | None:
    """Returns the first row of the oldest segment with a row that was sent at that time, or later."""
    query = "SELECT first FROM segments WHERE name = ? AND sent >= ? ORDER BY first LIMIT 1"
    row = connection.execute(query, (stream, time)).fetchone()
    return None if row is None else int(row[0])


def first_within(connection: sqlite3.Connection, stream: str, size: int) -> int | None:
    """Returns the first row of the newest segments that take up to so many bytes, or of the newest one if that takes
    more; None if there is none.
    """
    query = "SELECT SUM(length) FROM segments WHERE name = ?"
    left = int(connection.execute(query, (stream,)).fetchone()[0] or 0)
    query = "SELECT first, length FROM segments WHERE name = ? ORDER BY first"
    newest = None
    for first, length in connection.execute(query, (stream,)):
        newest = int(first)
        if left <= size:
            break
        left -= length
    return newest
