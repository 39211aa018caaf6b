"""Reads files of this machine: CSV, JSON, JSON lines, Parquet and Avro, one or many, that may grow, change and be
removed while they are read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, ClassVar

import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors.files.adopted_files import adopted
from millpond.connectors.files.listed_source import (
    FOLLOWING_OPTIONS,
    FORMAT_OPTIONS,
    ROW_BITS,
    FileSplit,
    ListedSource,
)
from millpond.connectors.files.listing import FileSet, LocalFiles
from millpond.connectors.files.paths import is_pattern, matching_files, path_of
from millpond.connectors.files.watch import watch
from millpond.connectors.job_progress import Adopts, JobProgress
from millpond.connectors.source import Split
from millpond.connectors.spark_ranges import FileRange, ReadBySpark
from millpond.errors import FileMissing, SourceChanged, SourceEmpty, SourceError
from millpond.formats.base import has_known_suffix
from millpond.options import Option
from millpond.retry import Patience
from millpond.types import Schema


class FileSource(ListedSource, ReadBySpark, Adopts):
    """Reads files of this machine."""

    kind: ClassVar[str] = "file"
    schemes: ClassVar[tuple[str, ...]] = ("file",)
    growing: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        *FORMAT_OPTIONS,
        Option(
            "watch",
            "bool",
            "whether to follow new and changed files: a table and a stream do unless it is 'false', "
            "a query does if it is 'true'",
        ),
        Option(
            "watch.interval", "duration", "how often to check if the file system does not report changes", 0.1
        ),
        Option(
            "watch.debounce",
            "duration",
            "how long a file must be unchanged before it counts as rewritten or removed",
            0.5,
        ),
        Option("file.wait.timeout", "duration", "how long to wait for a missing file", 0.0),
        Option("file.retry.interval", "duration", "how often to check for it meanwhile", 2.0),
        Option(
            "file.create.empty",
            "bool",
            "whether to create a missing file, empty; a pattern starts without files",
            False,
        ),
        *FOLLOWING_OPTIONS,
    )

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        super().__init__(uri, values, declared)
        self.path = path_of(uri)
        if self.values["format"] is not None or has_known_suffix(self.path):
            self._format(self.path)

    @property
    def files(self) -> FileSet:
        return LocalFiles(self._matching)

    def changes(self, stop: threading.Event) -> Iterator[None]:
        return watch(self.path, max(self.values["watch.interval"], 0.01), stop)

    def adopted(self, progress: JobProgress) -> Offset:
        with self.reading(self.path):
            return adopted(self.uri, self._look(), self.files.seen(), progress).offset()

    def ranges(self, splits: Sequence[Split], columns: Sequence[str]) -> list[FileRange]:
        known = self.schema()
        types = pa.schema([(c.name, c.type) for c in known if c.name in columns])
        parts = [split for split in splits if isinstance(split, FileSplit)]
        found = []
        for entry, group in groupby(parts, lambda split: split.entry):
            pieces = [split.piece for split in group]
            with self.reading(entry.path):
                bytes_ = self._format(entry.path).bytes_for_spark(entry.path, types, pieces)
            for piece, where in zip(pieces, bytes_, strict=True):
                rows = range(piece.first_row, piece.first_row + (piece.rows or 0))
                found.append(
                    FileRange(entry.path, entry.size, where, len(piece.groups), rows, entry.index << ROW_BITS)
                )
        return found

    def check_unchanged(self, splits: Sequence[Split]) -> None:
        for entry in {
            split.entry.index: split.entry for split in splits if isinstance(split, FileSplit)
        }.values():
            self._check_unchanged(entry)

    def _there(self) -> list[str]:
        """Returns the files, and waits for them if there are none; raises FileMissing when the time is over."""
        patience = Patience(
            self.values["file.wait.timeout"], max(self.values["file.retry.interval"], 0.01), "fixed"
        )
        try:
            return patience.wait_for(self._some, on=(FileMissing,), issues=self.issues)
        except FileMissing:
            raise self._missing(patience.timeout) from None

    def _some(self) -> list[str]:
        found = self._matching()
        if not found and self.values["file.create.empty"]:
            if self.declared is None:
                raise SourceEmpty(
                    f'"{self.uri}" would be empty: its columns cannot be discovered',
                    hint="declare the columns of the table, and take them as they are: CREATE TABLE t (id BIGINT) AS"
                    " SELECT id FROM …",
                )
            if is_pattern(self.path):
                return []  # it begins with no file
            with self.reading(self.path):
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
                with open(self.path, "a"):
                    pass
            found = [self.path]
        if not found:
            raise self._missing()
        return found

    def _matching(self) -> list[str]:
        with self.reading(self.path):
            return matching_files(self.path, any_suffix=self.values["format"] is not None)

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
    def reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise SourceChanged(f'file "{path}" was removed while it was being read') from None
        except PermissionError:
            raise SourceError(f'file "{path}" cannot be read: permission denied') from None
        except OSError as e:
            raise SourceError(f'file "{path}" cannot be read: {e}') from None
