"""Writes rows of streams as Parquet files, which Spark's own reader scans, and reads them here.

A row group is one blob: its ``offset`` is the number of rows before it in the file, its checksum is over its bytes. The
name of a file contains the checksum of its footer: nothing is parsed that is not what was written. Spark does not know
these checksums: for it each page has one. A file has few row groups, because Spark reads all of it to find some of its
rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.journal.blobs import (
    DATA,
    INLINE_BYTES,
    Blob,
    decode,
    encoded,
    new_file,
    place_rows,
    rows_of_a_blob,
    to_file,
)
from millpond.records.parquet import have_form

SUFFIX = ".parquet"
_GROUPS = 4
"""Maximum row groups of a file."""
_TAIL = 8
"""Bytes at the end: the length of the footer, and the name of the format."""
_IN_PARALLEL = 20_000
"""Rows of a group whose columns are decoded in parallel."""


_SETTINGS: dict[str, Any] = {
    "compression": "none",
    "use_dictionary": False,
    "write_statistics": False,
    "write_page_checksum": True,
}


class _Group(NamedTuple):
    number: int
    rows: int
    before: int
    start: int
    length: int

    def read(self, file: pa.NativeFile) -> pa.Buffer:
        file.seek(self.start)
        return file.read_buffer(self.length)


def place_segments(table: pa.Table, directory: Path, durable: bool) -> list[Blob]:
    """Returns rows of a stream as they are to be stored: few in SQLite, many in files, written and synced."""
    if table.nbytes <= INLINE_BYTES or not have_form(table.schema):
        return place_rows(table, directory, durable)
    return _write_files(table, directory, durable)


def decode_segment(blob: Blob, schema: pa.Schema, directory: Path, what: str) -> pa.RecordBatch:
    """Decodes a blob of a stream. Raises StateCorrupt, naming ``what``, if a bit of it is wrong."""
    is_ours = blob.file is not None and blob.file.endswith(SUFFIX)
    return decode(blob, schema, directory, what, _read_group if is_ours else None)


def _write_files(table: pa.Table, directory: Path, durable: bool) -> list[Blob]:
    rows = rows_of_a_blob(table)
    pieces = (table.slice(at, rows * _GROUPS) for at in range(0, table.num_rows, rows * _GROUPS))
    return [blob for piece in pieces for blob in _write([piece], rows, directory, durable)]


def write_runs(runs: Sequence[pa.Table], directory: Path, durable: bool) -> list[Blob]:
    """Writes the runs, consecutive rows of a stream with one schema, to a new file: one blob for each. It has no effect
    until a commit names it.
    """
    if have_form(runs[0].schema):
        return _write(runs, max(r.num_rows for r in runs), directory, durable)
    return to_file((encoded(r.combine_chunks().to_batches()[0]) for r in runs), directory, durable)


def _write(tables: Sequence[pa.Table], rows: int, directory: Path, durable: bool) -> list[Blob]:
    """Writes rows to a new file. Groups have at most so many rows, and rows of one of the tables."""
    with new_file(directory, SUFFIX, durable) as (name, _):
        path = directory / DATA / name
        with (
            pa.OSFile(str(path), "wb") as into,
            pq.ParquetWriter(into, tables[0].schema, **_SETTINGS) as writer,
        ):
            for table in tables:
                writer.write_table(table, rows)
        with pa.memory_map(str(path)) as file:
            named = f"{path.stem}-{zlib.crc32(_footer(file)):08x}{SUFFIX}"
            found = [
                Blob(g.rows, g.length, zlib.crc32(g.read(file)), None, named, g.before) for g in _groups(file)
            ]
        path.rename(path.with_name(named))
    return found


def is_whole(path: Path) -> bool:
    """Returns whether the footer of a file is the one that was written."""
    with pa.memory_map(str(path)) as file:
        return _has_its_footer(file, path.name)


def _has_its_footer(file: pa.NativeFile, name: str) -> bool:
    return name.removesuffix(SUFFIX).endswith(f"-{zlib.crc32(_footer(file)):08x}")


def _read_group(file: pa.NativeFile, blob: Blob, schema: pa.Schema) -> pa.RecordBatch | None:
    """Returns the rows of a blob; None if the bytes are not those that were written."""
    assert blob.file is not None
    if not _has_its_footer(file, blob.file):
        return None
    group = next((g for g in _groups(file) if g.before == blob.offset), None)
    if group is None or group.length != blob.length or zlib.crc32(group.read(file)) != blob.crc:
        return None
    found = pq.ParquetFile(file).read_row_group(group.number, use_threads=group.rows > _IN_PARALLEL)
    found = found.replace_schema_metadata(None)
    if found.schema != schema:
        found = found.cast(schema)
    return found.combine_chunks().to_batches()[0]


def _footer(file: pa.NativeFile) -> pa.Buffer:
    """Returns the bytes of the footer, as far as there is one."""
    size = file.size()
    length = int.from_bytes(file.read_at(_TAIL, max(0, size - _TAIL))[:4], "little") + _TAIL
    file.seek(max(0, size - length))
    return file.read_buffer(length)


def _groups(file: pa.NativeFile) -> Iterator[_Group]:
    """Yields the row groups of a file."""
    known = pq.read_metadata(file)
    before = 0
    for number in range(known.num_row_groups):
        group = known.row_group(number)
        length = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
        yield _Group(number, group.num_rows, before, group.column(0).data_page_offset, length)
        before += group.num_rows
