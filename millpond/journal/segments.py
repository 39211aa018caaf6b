"""Reads embedded streams from any process, without the lock, while their writer continues.

A part is a range of sequence numbers: any process that sees the state directory can read it any number of times, and
gets the same rows until they are trimmed. A small range contains its bytes.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from millpond.errors import SourceChanged
from millpond.journal.blob_rows import IN_RANGE, Schemas, Segment, read_segments
from millpond.journal.blobs import PART_ROWS, combined
from millpond.journal.database import guarded, open_to_read
from millpond.journal.segment_files import decode_segment

SEQ = "_seq"
_INLINE_ROWS = 20_000
_INLINE_BYTES = 1 << 18
_MEASURED_ROWS = 200_000
"""Rows of a range whose bytes are counted: a larger one is large in any case."""


@dataclass(frozen=True, slots=True)
class Part:
    """Represents the rows ``start`` up to ``end`` of a stream. ``size`` is their bytes, if known. ``inline`` contains
    their segments, with their schemas, if small.
    """

    path: str
    stream: str
    start: int
    end: int
    size: int | None = None
    inline: tuple[tuple[bytes, Segment], ...] | None = None

    @property
    def rows(self) -> int:
        return self.end - self.start


def stream_end(path: str | os.PathLike[str], stream: str) -> int:
    """Returns the sequence number of the next row; 0 for a stream that has none yet."""
    directory = Path(path)
    with guarded(directory), closing(open_to_read(directory)) as connection:
        row = connection.execute("SELECT next FROM streams WHERE name = ?", (stream.lower(),)).fetchone()
    return int(row[0]) if row else 0


def stream_start(path: str | os.PathLike[str], stream: str) -> int:
    """Returns the sequence number of the earliest stored row."""
    directory = Path(path)
    with guarded(directory), closing(open_to_read(directory)) as connection:
        name = stream.lower()
        row = connection.execute("SELECT MIN(first) FROM segments WHERE name = ?", (name,)).fetchone()
        if row[0] is not None:
            return int(row[0])
        row = connection.execute("SELECT next FROM streams WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0


def file_start(path: str | os.PathLike[str], stream: str, after: int, up_to: int) -> int | None:
    """Returns the last row after one and up to another with which a file begins."""
    directory = Path(path)
    with guarded(directory), closing(open_to_read(directory)) as connection:
        row = connection.execute(
            "SELECT MAX(first) FROM segments WHERE name = ? AND first > ? AND first <= ?"
            " AND file IS NOT NULL AND offset = 0",
            (stream.lower(), after, up_to),
        ).fetchone()
    return None if row[0] is None else int(row[0])


def parts(path: str | os.PathLike[str], stream: str, start: int, end: int) -> list[Part]:
    """Returns the rows ``start`` up to ``end``, as far as they are stored, in parts of at most 131,072 rows.

    The cost does not grow with the range, except for one of up to 20,000 rows that fits into 256 KB: that is read here,
    and its part needs no access to the directory. Of up to 200,000 rows the bytes are counted.
    """
    directory, name = Path(path), stream.lower()
    with guarded(directory), closing(open_to_read(directory)) as connection:
        connection.execute("BEGIN")
        kept, last = connection.execute(
            "SELECT (SELECT MIN(first) FROM segments WHERE name = :name),"
            " (SELECT next FROM streams WHERE name = :name)",
            {"name": name},
        ).fetchone()
        if kept is None:
            return []
        start, end = max(start, kept), min(end, last)
        if start >= end:
            return []
        if end - start <= _INLINE_ROWS:
            schemas, inline, size = Schemas(), [], 0
            for segment in read_segments(connection, name, start, end):
                size += segment.blob.length
                if segment.blob.file or size > _INLINE_BYTES:
                    break
                inline.append((schemas.data(connection, segment.schema), segment))
            else:
                return [Part(str(directory), name, start, end, size, tuple(inline))]
        size_of_row = _bytes_of_row(connection, name, start, end) if end - start <= _MEASURED_ROWS else None
    cuts = [start, *range((start // PART_ROWS + 1) * PART_ROWS, end, PART_ROWS), end]
    return [
        Part(str(directory), name, a, b, None if size_of_row is None else round((b - a) * size_of_row))
        for a, b in pairwise(cuts)
    ]


def _bytes_of_row(connection: sqlite3.Connection, name: str, start: int, end: int) -> float:
    """Returns the mean bytes of a row, over the segments of a range."""
    size, rows = connection.execute(
        f"SELECT SUM(length), SUM(rows) FROM segments WHERE {IN_RANGE}",
        {"name": name, "start": start, "end": end},
    ).fetchone()
    return float(size or 0) / (rows or 1)


def read_part(part: Part) -> Iterator[pa.RecordBatch]:
    """Yields the rows in order, in few batches: the stream's columns and ``_seq``."""
    for segment, rows in combined(_batches(part), lambda first, other: True):
        first = max(segment.first, part.start)
        rows = rows.append_column(SEQ, pa.array(np.arange(first, first + rows.num_rows)))
        yield from rows.combine_chunks().to_batches()


def _batches(part: Part) -> Iterator[tuple[Segment, pa.RecordBatch]]:
    directory = Path(part.path)
    if part.inline is not None:
        read: dict[bytes, pa.Schema] = {}
        for data, segment in part.inline:
            if data not in read:
                read[data] = pa.ipc.read_schema(pa.py_buffer(data))
            yield segment, _cut(part, segment, read[data])
        return
    with guarded(directory), closing(open_to_read(directory)) as connection:
        schemas, at = Schemas(), part.start
        for segment in read_segments(connection, part.stream, part.start, part.end):
            if segment.first > at:
                break
            yield segment, _cut(part, segment, schemas.read(connection, segment.schema))
            at = segment.end
        if at < part.end:
            raise SourceChanged(
                f'rows {at} to {part.end - 1} of stream "{part.stream}" were removed while they were read'
            )


def _cut(part: Part, segment: Segment, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the rows of the segment that are in the part."""
    what = f'stream "{part.stream}", row {segment.first}'
    batch = decode_segment(segment.blob, schema, Path(part.path), what)
    skip = max(0, part.start - segment.first)
    return batch.slice(skip, min(segment.end, part.end) - segment.first - skip)
