"""Implements sources that list files: their formats read the files of an offset, wherever they are.

An offset lists files and how far each was read, in the order of their arrival. The sequence number of a row is the
place of its file in that order and its place in the file: the same however often it is read.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors.abilities import Follows, Perishable, Rejects, Sheds, Spreads, Steps
from millpond.connectors.drift import DriftingSource
from millpond.connectors.files.listing import Entry, FileSet, Listed, Look, Quiet, unrotated
from millpond.connectors.source import BYTES_OF_A_ROW, Split, with_seq
from millpond.errors import BadData, Error, SourceChanged, SourceEmpty, without_passwords
from millpond.formats.base import Format, Piece, find_format, has_known_suffix
from millpond.formats.blocks import LONGEST_RECORD
from millpond.formats.csvrecords import QUOTING_OPTIONS
from millpond.formats.jsondepth import MAX_DEPTH
from millpond.formats.merge import merge_schemas
from millpond.formats.read_records import Received
from millpond.options import Option
from millpond.types import Schema

ROW_BITS = 40
FILES_TO_DISCOVER = 8

FORMAT_OPTIONS: tuple[Option, ...] = (
    Option("format", "text", "csv, json, jsonl, parquet or avro; by default the suffix of the file decides"),
    Option("header", "bool", "whether the first row of a CSV file contains the column names", True),
    Option("delimiter", "text", "the separator of values in CSV; by default a comma, in .tsv files a tab"),
    *QUOTING_OPTIONS,
    Option("max.record", "size", "the maximum size of a line of JSON or a row of CSV", LONGEST_RECORD),
    Option("max.depth", "int", "the maximum nesting depth of JSON", MAX_DEPTH),
)
FOLLOWING_OPTIONS: tuple[Option, ...] = (
    Option(
        "on.remove",
        "choice",
        "what happens to the rows of a removed file: the table keeps or deletes them",
        "keep",
        ("keep", "delete"),
    ),
    Option("batch.max.files", "int", "the maximum number of new files in a batch of a stream"),
)


@dataclass(frozen=True, slots=True)
class FileSplit(Split):
    """Describes a piece of a file of an offset."""

    entry: Entry
    piece: Piece

    @property
    def file(self) -> str:
        return self.entry.path

    @property
    def first_seq(self) -> int:
        """Returns the sequence number of its first row."""
        return (self.entry.index << ROW_BITS) + self.piece.begin + self.piece.first_row


class ListedSource(DriftingSource, Follows, Steps, Rejects, Perishable, Sheds, Spreads):
    """Reads what a ``FileSet`` lists. Each kind of them is a subclass."""

    growing: ClassVar[bool] = False
    """Whether files may grow; otherwise one with more bytes is a different file."""

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        super().__init__(uri, values, declared)
        # An object of a store appears when it is complete.
        self._quiet = Quiet(self.values.get("watch.debounce", 0.0) if self.follows else 0.0)

    @property
    @abstractmethod
    def files(self) -> FileSet:
        """Returns where the files are."""

    @property
    def follows(self) -> bool:
        return self.values["watch"] is not False

    @property
    def runs(self) -> bool:
        return self.values["watch"] is True

    @property
    def guesses(self) -> bool:
        return self.declared is None and self._format(self._there()[0]).guesses

    def _there(self) -> list[str]:
        """Returns the existing paths; raises FileMissing if there are none."""
        return [s.path for s in self.files.seen()]

    def _format(self, path: str) -> Format:
        named = path if has_known_suffix(path) else unrotated(path)
        return find_format(named, self.values["format"])(self.values)

    def _look(self) -> Look:
        return Look(
            self.files,
            self._format,
            growing=self.growing,
            keeps=self.values["on.remove"] == "keep",
            waits=self.follows,
            quiet=self._quiet,
        )

    @property
    def address(self) -> str:
        """Returns the address, with the options that may lead to other columns of the same files."""
        options = [
            f"{o.name}={self.values[o.name]}" for o in FORMAT_OPTIONS if self.values[o.name] != o.default
        ]
        return without_passwords("|".join([self.uri, *options]))

    def _fresh(self, split: Split) -> Schema:
        assert isinstance(split, FileSplit)
        path = split.entry.path
        with self.reading(path):
            return self._format(path).fresh(path, self.schema(), split.piece)

    def _discover(self) -> Schema:
        """Discovers the columns from the first few files together."""
        found, bad = Schema(()), list[BadData]()
        for path in self._there()[:FILES_TO_DISCOVER]:
            try:
                with self.reading(path):
                    found = merge_schemas(found, self._format(path).discover(path))
            except BadData as error:
                bad.append(error)
        if not len(found) and bad:
            raise bad[0]
        if not len(found):
            raise SourceEmpty(
                f'"{self.uri}" is empty: its columns cannot be discovered', hint="declare the columns"
            )
        return found

    def latest(self, start: Offset | None) -> Offset:
        return self._latest(start)[0]

    def settled(self, at: Offset) -> bool:
        end, pending = self._latest(at)
        return not pending and self.reached(at, end)

    def _latest(self, start: Offset | None) -> tuple[Offset, bool]:
        """Returns the offset, and whether something was seen that is not in it yet."""
        look = self._look()
        with self.reading(self.uri):
            if start is None:
                self._there()
                return look.first(self.files.seen()).offset(), False
            found = look.next(Listed.of(start), self.files.seen())
        return found.offset(), look.pending

    def stands(self, end: Offset) -> bool:
        """Returns whether all files up to an offset exist and are unchanged."""
        try:
            for entry in Listed.of(end).files:
                if not entry.gone:
                    self._check_unchanged(entry)
        except Error:
            return False
        return True

    def replaced(self, start: Offset, end: Offset) -> bool:
        return Listed.of(start).rewrites != Listed.of(end).rewrites

    @property
    def leaves(self) -> bool:
        return self.follows and self.values["on.remove"] == "keep"

    def left(self, end: Offset) -> frozenset[int] | None:
        return Listed.of(end).left

    def part_of(self, seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return seqs >> ROW_BITS

    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        before = Listed.of(start).by_index()
        found: list[Split] = []
        for entry in Listed.of(end).files:
            known = before.get(entry.index)
            begin = known.at if known is not None else 0
            if entry.at > begin and not entry.gone:
                found += self._pieces(entry, begin)
        return found

    def _pieces(self, entry: Entry, begin: int) -> Iterator[FileSplit]:
        self._check_unchanged(entry)
        grows = self._look().grows(entry.path)
        with self.reading(entry.path):
            form = self._format(entry.path)
            pieces = form.pieces(entry.path, begin, entry.at) if grows else form.pieces(entry.path)
        for piece in pieces:
            size = entry.size // len(pieces) if piece.end is None else piece.end - piece.begin
            yield FileSplit(piece.rows, size, entry, piece)

    def divided(self, split: Split, size: int) -> list[Split]:
        """Divides text, which is searched for the ends of records: not objects of a store, which that would fetch."""
        assert isinstance(split, FileSplit)
        entry, piece = split.entry, split.piece
        if not self.growing or split.bytes is None or split.bytes < 2 * size:
            return [split]
        with self.reading(entry.path):
            parts = self._format(entry.path).divided(entry.path, piece, size)
        return [split] if len(parts) < 2 else [FileSplit(None, size, entry, part) for part in parts]

    def clip(self, start: Offset | None, end: Offset, rows: int) -> Offset:
        """Cuts a range by bytes and new files, as the number of rows of a file is not known."""
        before, until = Listed.of(start), Listed.of(end)
        known, look = before.by_index(), self._look()
        most, left = self.values["batch.max.files"], rows * BYTES_OF_A_ROW
        files: list[Entry] = []
        fresh = 0
        for entry in until.files:
            here = known.get(entry.index)
            begin = here.at if here is not None else 0
            fresh += here is None
            if left <= 0 or (most is not None and fresh > max(1, most)):
                files += [here] if here is not None else []
                continue
            if entry.at - begin > left and look.grows(entry.path):
                entry = self._cut(entry, begin, left, look)
            left -= entry.at - begin
            files.append(entry)
        if tuple(files) == until.files:
            return end
        number = max((e.index + 1 for e in files), default=0)
        return replace(until, files=tuple(files), next=max(number, before.next)).offset()

    def _cut(self, entry: Entry, begin: int, size: int, look: Look) -> Entry:
        """Returns the entry up to a record about so many bytes later."""
        form = self._format(entry.path)
        with self.reading(entry.path):
            while begin + size < entry.at:
                at = form.complete(entry.path, begin, begin + size, final=False)
                if at > begin:
                    return replace(entry, at=at, print=look.print(entry.path, at), open=False)
                size *= 2
        return entry

    def reached(self, at: Offset | None, end: Offset) -> bool:
        """Compares offsets by name and number of their files: they need not be of one line."""
        if at is None:
            return not self.splits(None, end)
        here = {(e.path, e.id): e for e in Listed.of(at).files}
        moved = {e.id: e for e in Listed.of(at).files}
        for entry in Listed.of(end).files:
            known = here.get((entry.path, entry.id)) or moved.get(entry.id)
            if entry.gone:
                continue
            if known is None or known.at < entry.at or known.mtime_ns < entry.mtime_ns:
                return False
        return True

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        assert isinstance(split, FileSplit)
        entry, seq = split.entry, split.first_seq
        self._check_unchanged(entry)
        batches = self._format(entry.path).read(
            entry.path, self.schema(), split.piece, declared=self.declared is not None
        )
        try:
            with self.reading(entry.path):
                for batch in batches:
                    yield with_seq(batch, seq)
                    seq += batch.num_rows
        except Error:
            self._check_unchanged(entry)
            raise
        self._check_unchanged(entry)

    def receive(self, split: Split) -> Iterator[Received]:
        assert isinstance(split, FileSplit)
        entry = split.entry
        self._check_unchanged(entry)
        parts = self._format(entry.path).receive(
            entry.path, self.schema(), split.piece, declared=self.declared is not None
        )
        with self.reading(entry.path):
            for part in parts:
                yield part.after(split.first_seq)
        self._check_unchanged(entry)

    def _check_unchanged(self, entry: Entry) -> None:
        """Raises if a file has changed since the offset was made; it may have grown, if its kind does."""
        now = self.files.find(entry.path)
        if now is None:
            raise SourceChanged(f'file "{entry.path}" was removed while it was being read')
        same = now.on_any_host == entry.seen.on_any_host
        look = self._look()
        if not same and look.grows(entry.path) and now.size >= entry.at:
            with self.reading(entry.path):
                same = look.print(entry.path, entry.at) == entry.print
        if not same:
            raise SourceChanged(
                f'file "{entry.path}" changed while it was being read: it had {entry.size} bytes and has {now.size}',
                hint="write files under another name and rename them when they are complete",
            )

    @contextmanager
    def reading(self, path: str) -> Iterator[None]:
        """Translates errors with a file."""
        yield
