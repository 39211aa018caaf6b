"""Writes rows of streams as Parquet files, which Spark's own reader scans, and reads them here.

A blob is a row group, or some rows of one: its ``offset`` is the number of rows before it in the file, its checksum is
over the bytes of the group, its length is its share of them. The name of a file contains the checksum of its footer:
nothing is parsed that is not what was written. Spark does not know these checksums: for it each page has one. A file
has few row groups, because Spark reads all of it to find some of its rows.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.journal.blobs import (
    INLINE_BYTES,
    PART_ROWS,
    Blob,
    decode,
    new_file,
    place_rows,
    remove_files,
    rows_of_a_blob,
)
from millpond.records.neighbours import neighbours
from millpond.records.parquet import have_form

_SUFFIX = ".parquet"
_GROUPS = 4
"""Maximum row groups of a file."""
_MOST_BYTES = 1 << 29
"""Maximum bytes of a row group: a page of more than 2 GB cannot be read."""
_KEPT, _KEPT_BYTES = 2, 1 << 24
"""Groups that are kept decoded, and their maximum bytes."""
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

    def contains(self, blob: Blob) -> bool:
        return self.before <= blob.offset and blob.offset + blob.rows <= self.before + self.rows

    def read(self, file: pa.NativeFile) -> pa.Buffer:
        file.seek(self.start)
        return file.read_buffer(self.length)


def place_segments(table: pa.Table, directory: Path, durable: bool) -> list[Blob]:
    """Returns rows of a stream as they are to be stored: few in SQLite, many in files, written and synced."""
    rows = rows_of_a_blob(table)
    if table.nbytes <= INLINE_BYTES or not have_form(table.schema):
        return place_rows(table, directory, durable)
    groups = [table.slice(at, rows) for at in range(0, table.num_rows, rows)]
    if any(g.nbytes > _MOST_BYTES for g in groups):  # few rows may have most of the bytes
        return place_rows(table, directory, durable)
    blobs: list[Blob] = []
    try:
        for at in range(0, len(groups), _GROUPS):
            blobs += _write([[group] for group in groups[at : at + _GROUPS]], directory, durable)
    except BaseException:
        remove_files(directory, [b.file for b in blobs])
        raise
    return blobs


def write_runs(runs: Sequence[pa.Table], directory: Path, durable: bool) -> list[Blob]:
    """Writes the runs, consecutive rows of a stream with one schema that Parquet keeps, to a new file: one blob for
    each, many in a row group. It has no effect until a commit names it.
    """
    return _write(neighbours(runs, lambda run: (run.num_rows,), (PART_ROWS,)), directory, durable)


def _write(groups: Sequence[Sequence[pa.Table]], directory: Path, durable: bool) -> list[Blob]:
    """Writes row groups, each of some tables, to a new file; returns a blob for each table."""
    with new_file(directory, _SUFFIX, durable) as new:
        path, schema = str(new.path), groups[0][0].schema
        with pa.OSFile(path, "wb") as into, pq.ParquetWriter(into, schema, **_SETTINGS) as writer:
            for tables in groups:
                whole = pa.concat_tables(tables)
                writer.write_table(whole, whole.num_rows)
        with pa.memory_map(path) as file:
            named = f"{new.path.stem}-{zlib.crc32(_footer(file)):08x}{_SUFFIX}"
            found = [
                Blob(t.num_rows, group.length * t.num_rows // group.rows, crc, None, named, before)
                for tables, group in zip(groups, _groups(file), strict=True)
                for crc in [zlib.crc32(group.read(file))]
                for t, before in _with_rows_before(tables, group.before)
            ]
        new.rename(named)
    return found


def _with_rows_before(tables: Sequence[pa.Table], before: int) -> Iterator[tuple[pa.Table, int]]:
    for table in tables:
        yield table, before
        before += table.num_rows


def decode_segment(blob: Blob, schema: pa.Schema, directory: Path, what: str) -> pa.RecordBatch:
    """Decodes a blob of a stream. Raises StateCorrupt, naming ``what``, if a bit of it is wrong."""
    return decode(blob, schema, directory, what, _read_blob if is_in_parquet(blob) else None)


def is_in_parquet(blob: Blob) -> bool:
    return blob.file is not None and blob.file.endswith(_SUFFIX)


def is_whole(path: Path) -> bool:
    """Returns whether the footer of a file is the one that was written."""
    with pa.memory_map(str(path)) as file:
        return _has_its_footer(file, path.name)


def _has_its_footer(file: pa.NativeFile, name: str) -> bool:
    return name.removesuffix(_SUFFIX).endswith(f"-{zlib.crc32(_footer(file)):08x}")


_decoded: OrderedDict[str, tuple[_Group, pa.RecordBatch]] = OrderedDict()
"""The group of a file that was read last, of some files: many blobs may be in it, and small batches read parts of it.
The names of files are unique, and files do not change.
"""
_decoding = threading.Lock()


def _read_blob(file: pa.NativeFile, blob: Blob, schema: pa.Schema) -> pa.RecordBatch | None:
    """Returns the rows of a blob; None if the bytes are not those that were written."""
    assert blob.file is not None
    with _decoding:
        known = _decoded.get(blob.file)
    if known is None or not known[0].contains(blob) or known[1].schema != schema:
        known = _read_group(file, blob, schema)
        if known is None:
            return None
        with _decoding:
            _decoded.pop(blob.file, None)
            if known[1].nbytes <= _KEPT_BYTES:
                _decoded[blob.file] = known
            while len(_decoded) > _KEPT:
                _decoded.popitem(last=False)
    group, rows = known
    return rows.slice(blob.offset - group.before, blob.rows)


def _read_group(file: pa.NativeFile, blob: Blob, schema: pa.Schema) -> tuple[_Group, pa.RecordBatch] | None:
    """Returns the row group with a blob, and its rows."""
    assert blob.file is not None
    if not _has_its_footer(file, blob.file):
        return None
    group = next((g for g in _groups(file) if g.contains(blob)), None)
    if group is None or zlib.crc32(group.read(file)) != blob.crc:
        return None
    found = pq.ParquetFile(file).read_row_group(group.number, use_threads=group.rows > _IN_PARALLEL)
    found = found.replace_schema_metadata(None)
    if found.schema != schema:
        found = found.cast(schema)
    return group, found.combine_chunks().to_batches()[0]


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
