"""Files: CSV, JSON, JSON lines, Parquet and Avro, one or many.

An offset lists files with size and time of change, those of earlier offsets first. The sequence number of a
row is the place of its file in that list and its place in the file: the same however often it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from millpond.changes import Offset
from millpond.errors import Error, FileMissing, NotSupported, SourceError
from millpond.formats.base import Format, Piece, find_format, has_known_suffix
from millpond.formats.blocks import LONGEST_RECORD
from millpond.formats.jsondepth import MAX_DEPTH
from millpond.formats.merge import merge_schemas, settle_schema
from millpond.formats.received import Received
from millpond.options import Option
from millpond.retry import Patience
from millpond.sources.base import Source, Split, with_seq
from millpond.sources.paths import is_pattern, matching_files, path_of
from millpond.types import Schema

ROW_BITS = 40
FILES_TO_DISCOVER = 8


@dataclass(frozen=True, slots=True)
class FileSplit(Split):
    """A piece of a file; ``index`` is the place of the file in the offset that named it."""

    path: str
    size: int
    mtime_ns: int
    index: int
    piece: Piece


class FileSource(Source):
    """Reads the files that are there when ``latest()`` is asked, each once."""

    kind: ClassVar[str] = "file"
    schemes: ClassVar[tuple[str, ...]] = ("file",)
    sifts: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "format", "text", "csv, json, jsonl, parquet or avro; without it the suffix of the file tells"
        ),
        Option("header", "bool", "whether the first row of a CSV file holds the names of its columns", True),
        Option("delimiter", "text", "what separates values in CSV: a comma, in .tsv files a tab"),
        Option("quote", "text", "what encloses a CSV value that holds delimiters or line breaks", '"'),
        Option("escape", "text", "what stands before a quote within a CSV value, if it is not doubled"),
        Option("null.value", "text", "the text that is NULL in CSV when it is not quoted", ""),
        Option("max.record", "size", "the longest line of JSON and row of CSV", LONGEST_RECORD),
        Option("max.depth", "int", "how deep JSON may be nested", MAX_DEPTH),
        Option("watch", "bool", "whether to go on with new and changed files; 'false' reads once"),
        Option("file.wait.timeout", "duration", "how long to wait for a file that is not there", 0.0),
        Option("file.retry.interval", "duration", "how often to look for it meanwhile", 2.0),
        Option("batch.max.files", "int", "the most files that a batch of a stream takes"),
    )

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        super().__init__(uri, values, declared)
        if self.values["watch"]:
            raise NotSupported("following files", hint="leave 'watch' out, or set it to 'false' to read once")
        self.path = path_of(uri)
        if self.values["format"] is not None or has_known_suffix(self.path):
            self._format(self.path)
        self._schema = declared

    @property
    def guesses(self) -> bool:
        return self.declared is None and self._format(self._files()[0]).guesses

    def schema(self) -> Schema:
        """Declared, or discovered from the first few files together."""
        if self._schema is None:
            found = Schema(())
            for path in self._files()[:FILES_TO_DISCOVER]:
                with _reading(path):
                    found = merge_schemas(found, self._format(path).discover(path))
            if not len(found):
                raise SourceError(
                    f'"{self.uri}" is empty: its columns cannot be discovered', hint="declare the columns"
                )
            self._schema = settle_schema(found)
        return self._schema

    def latest(self, start: Offset | None) -> Offset:
        """The files of ``start`` as they were, then those that have come since, sorted by name."""
        listed = list(start["files"]) if start else []
        known = {entry["path"] for entry in listed}
        for path in self._files():
            if path not in known:
                with _reading(path):
                    stat = os.stat(path)
                listed.append({"path": path, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns})
        return {"files": listed}

    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        before = {entry["path"] for entry in start["files"]} if start else set()
        found: list[Split] = []
        for index, entry in enumerate(end["files"]):
            path, size, mtime_ns = entry["path"], entry["size"], entry["mtime_ns"]
            if path in before:
                continue
            _check_unchanged(path, size, mtime_ns)
            with _reading(path):
                pieces = self._format(path).pieces(path)
            for piece in pieces:
                share = size // len(pieces)
                found.append(FileSplit(piece.rows, share, path, size, mtime_ns, index, piece))
        return found

    def clip(self, start: Offset | None, end: Offset, rows: int) -> Offset:
        """How many rows a file has is not known: files are counted."""
        most = self.values["batch.max.files"]
        before = len(start["files"]) if start else 0
        return end if most is None else {"files": end["files"][: before + max(1, most)]}

    def reached(self, at: Offset | None, end: Offset) -> bool:
        before = {entry["path"] for entry in at["files"]} if at else set()
        return all(entry["path"] in before for entry in end["files"])

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        assert isinstance(split, FileSplit)
        schema = self.schema()
        _check_unchanged(split.path, split.size, split.mtime_ns)
        seq = (split.index << ROW_BITS) + split.piece.first_row + split.piece.begin
        batches = self._format(split.path).read(
            split.path, schema, split.piece, declared=self.declared is not None
        )
        try:
            with _reading(split.path):
                for batch in batches:
                    yield with_seq(batch, seq)
                    seq += batch.num_rows
        except Error:
            _check_unchanged(split.path, split.size, split.mtime_ns)
            raise
        _check_unchanged(split.path, split.size, split.mtime_ns)

    def receive(self, split: Split) -> Iterator[Received]:
        assert isinstance(split, FileSplit)
        _check_unchanged(split.path, split.size, split.mtime_ns)
        first = (split.index << ROW_BITS) + split.piece.first_row + split.piece.begin
        parts = self._format(split.path).receive(
            split.path, self.schema(), split.piece, declared=self.declared is not None
        )
        with _reading(split.path):
            for part in parts:
                yield part.after(first)
        _check_unchanged(split.path, split.size, split.mtime_ns)

    def _format(self, path: str) -> Format:
        return find_format(path, self.values["format"])(self.values)

    def _files(self) -> list[str]:
        """The files, waited for if there are none; FileMissing when the time is over."""
        patience = Patience(
            self.values["file.wait.timeout"], max(self.values["file.retry.interval"], 0.01), "fixed"
        )
        try:
            return patience.wait_for(self._matching, on=(FileMissing,))
        except FileMissing:
            raise self._missing(patience.timeout) from None

    def _matching(self) -> list[str]:
        with _reading(self.path):
            found = matching_files(self.path, any_suffix=self.values["format"] is not None)
        if not found:
            raise self._missing()
        return found

    def _missing(self, waited: float = 0.0) -> FileMissing:
        if is_pattern(self.path):
            what = f'no file matches "{self.path}"'
        elif os.path.isdir(self.path):
            what = f'directory "{self.path}" has no file with a known suffix'
        else:
            what = f'there is no file "{self.path}"'
        after = f" after {waited:g} s" if waited else ""
        return FileMissing(
            what + after,
            hint='check the path; or wait for it: WITH ("file.wait.timeout" = "30s"); '
            "for a pattern, make sure that matching files will arrive",
        )


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise SourceError(f'file "{path}" cannot be read: {e}') from None


def _check_unchanged(path: str, size: int, mtime_ns: int) -> None:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        raise SourceError(f'file "{path}" was removed while it was being read') from None
    if (stat.st_size, stat.st_mtime_ns) != (size, mtime_ns):
        raise SourceError(
            f'file "{path}" changed while it was being read: it had {size} bytes and has {stat.st_size}',
            hint="write files under another name and rename them when they are complete",
        )
