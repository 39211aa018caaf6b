"""Pins the Parquet files of a stream's range for Spark's own reader.

Each file is linked into a folder of its own, whose name contains the sequence number of the file's first row, which
Spark reads as a column: ``first=1000/….parquet``. A link keeps the rows until the range was read, also if they are
trimmed meanwhile.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import uuid
import weakref
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from millpond.errors import StateCorrupt
from millpond.journal.blob_rows import Schemas, Segment, read_segments
from millpond.journal.blobs import DATA, corrupt
from millpond.journal.database import guarded, open_to_read
from millpond.journal.segment_files import is_in_parquet, is_whole

FOLDER = "pinned"


class Pinned:
    """Contains the pinned files of a range of rows, until it is closed, or forgotten. ``folder`` is None if there are
    none; ``bounds`` is the range if the files have other rows too. ``rest`` are the ranges of rows that are elsewhere.
    """

    def __init__(
        self, folder: Path | None, column: str, bounds: tuple[int, int] | None, rest: list[tuple[int, int]]
    ):
        self.folder = folder
        self.column = column
        self.bounds = bounds
        self.rest = rest
        self._remove = (
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True) if folder is not None else None
        )

    def close(self) -> None:
        if self._remove is not None:
            self._remove()


@dataclass(frozen=True, slots=True)
class _File:
    """Represents a file, and which of its rows are in the range."""

    name: str
    first: int
    rows: int
    start: int
    end: int


def pin(
    path: str | os.PathLike[str],
    stream: str,
    start: int,
    end: int,
    columns: pa.Schema,
    *,
    part: float = 0.25,
    most: int | None = None,
) -> Pinned:
    """Pins the files of the rows ``start`` up to ``end`` that Spark reads as these columns, if they are not more than
    ``most``: those of which at least this part of the rows is wanted.
    """
    directory, name = Path(path), stream.lower()
    with guarded(directory), closing(open_to_read(directory)) as connection:
        connection.execute("BEGIN")
        schemas = Schemas()
        fits: dict[int, bool] = {}
        files = []
        low = None  # the first row that is stored
        for segments in _by_file(read_segments(connection, name, start, end)):
            low = max(start, segments[0].first) if low is None else low
            if not is_in_parquet(segments[0].blob):
                continue
            number = segments[0].schema
            if number not in fits:
                fits[number] = _fits(schemas.read(connection, number), columns)
            if fits[number] and (found := _worth(connection, segments, start, end, part)) is not None:
                files.append(found)
        column = _free_name(columns)
        few = most is None or len(files) <= most
        folder = _linked(directory, name, files, column) if files and few else None
    if folder is None:
        return Pinned(None, column, None, [(start, end)])
    assert low is not None
    whole = all(low <= f.first and f.first + f.rows <= end for f in files)
    return Pinned(folder, column, None if whole else (low, end), list(_others(files, low, end)))


def _by_file(segments: Iterator[Segment]) -> Iterator[list[Segment]]:
    """Groups the segments that are in one file."""
    for _, group in groupby(segments, lambda s: s.blob.file):
        yield list(group)


def _worth(
    connection: sqlite3.Connection, segments: list[Segment], start: int, end: int, part: float
) -> _File | None:
    """Returns the file of the segments, if this part of its rows is between ``start`` and ``end``."""
    blob = segments[0].blob
    assert blob.file is not None
    query = "SELECT MAX(offset + rows) FROM segments WHERE file = ?"
    (rows,) = connection.execute(query, (blob.file,)).fetchone()
    a, b = max(start, segments[0].first), min(end, segments[-1].end)
    return _File(blob.file, segments[0].first - blob.offset, rows, a, b) if b - a >= part * rows else None


def _fits(stored: pa.Schema, columns: pa.Schema) -> bool:
    """Returns whether Spark reads files with the stored columns as these: a column that is missing there is NULL."""
    types = {f.name.lower(): f.type for f in columns}
    return all(types.get(f.name.lower(), f.type) == f.type for f in stored)


def _free_name(columns: pa.Schema) -> str:
    taken, name = {n.lower() for n in columns.names}, "first"
    while name in taken:
        name += "_"
    return name


def _linked(directory: Path, stream: str, files: list[_File], column: str) -> Path | None:
    """Returns a new folder with links to the files; None if they cannot be linked."""
    folder = directory / FOLDER / uuid.uuid4().hex
    try:
        for file in files:
            place = folder / f"{column}={file.first}"
            place.mkdir(mode=0o700, parents=True)
            _link(directory / DATA / file.name, place / file.name, f'stream "{stream}", row {file.start}')
    except StateCorrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except OSError:  # a file system without links, or a full one
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return folder


def _link(file: Path, link: Path, what: str) -> None:
    try:
        os.link(file, link)
    except FileNotFoundError:
        raise corrupt(f'{what}: "{file}" is missing') from None
    if not is_whole(link):
        raise corrupt(f'{what}: the bytes in "{file}" are not those that were written')


def _others(files: list[_File], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the ranges between the files."""
    for file in files:
        if start < file.start:
            yield start, file.start
        start = file.end
    if start < end:
        yield start, end


def remove_pins(directory: Path) -> None:
    """Removes what a killed app has left. The caller holds the directory's exclusive lock."""
    shutil.rmtree(directory / FOLDER, ignore_errors=True)
