"""Reads Delta tables: once, at a version, or by following their changes.

An offset is a version of a table: ``{"log": {"table", "version"}}``, with the identity of the table. What lies before
an offset are the rows of that version.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors.abilities import Narrows, Parallel, Perishable
from millpond.connectors.cdc.capture_source import Capturing
from millpond.connectors.databases.uri import options_in
from millpond.connectors.delta.client import STORAGE, location, storage_options
from millpond.connectors.source import LOOK, Source, Split, with_seq
from millpond.connectors.versioned_source import Versioned
from millpond.errors import (
    CaptureLost,
    Error,
    InvalidOption,
    NotSupported,
    SourceChanged,
    UnknownName,
    without_passwords,
)
from millpond.options import Option
from millpond.predicates import Need
from millpond.types import Schema

if TYPE_CHECKING:
    import numpy as np
    from deltalake import DeltaTable

    from millpond.connectors.delta.change_log import ChangeLog
    from millpond.connectors.delta.table_files import DataFile, TableFiles

log = logging.getLogger("millpond")
ROW_BITS = 40
CHANGES = 50_000
"""Approximate number of changes that are read at once: a version is never divided."""


@dataclass(frozen=True, slots=True)
class FileSplit(Split):
    """Contains the rows of one file of a version."""

    first: int
    """The sequence number of its first row."""
    version: int
    data: DataFile


@dataclass(frozen=True, slots=True)
class ChangesSplit(Split):
    """Contains the changes after one version up to another."""

    start: int
    end: int


class DeltaSource(Capturing, Narrows, Parallel, Perishable, Versioned):
    """Reads with delta-rs and pyarrow, in the driver."""

    kind: ClassVar[str] = "delta"
    schemes: ClassVar[tuple[str, ...]] = ("delta",)
    options: ClassVar[tuple[Option, ...]] = (
        Option("cdc", "bool", "whether to follow the changes of the table, version by version", False),
        Option(
            "poll.interval",
            "duration",
            "how often to look for a new version; without it, and without 'cdc', a table is read once",
        ),
        Option(
            "key",
            "text",
            "the columns that identify a row, separated by commas: Delta has no keys of its own",
        ),
        Option("version", "int", "the version to read, as DESCRIBE HISTORY numbers them", least=0),
        Option("timestamp", "text", "the time as of which to read: 2026-01-31T12:00:00Z"),
        STORAGE,
    )

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        said, rest = options_in(uri, self.options)
        super().__init__(uri, {**values, **said}, declared)
        if rest:
            raise InvalidOption(
                f'"{without_passwords(uri.partition("?")[0])}" has the parameter "{rest[0][0]}", which is no option',
                hint=f"options are {', '.join(sorted(o.name for o in self.options))}",
            )
        self._place = location(uri)
        self._schema: Schema | None = None
        self._need: tuple[str, ...] | None = None
        self._fixed: int | None = None
        self._files: TableFiles | None = None
        self._changes: ChangeLog | None = None
        self._opened: tuple[int, DeltaTable, dict[str, np.ndarray]] | None = None
        self._turn = threading.RLock()
        self._check_options()

    def _check_options(self) -> None:
        travels = [name for name in ("version", "timestamp") if self.values[name] is not None]
        if len(travels) == 2:
            raise InvalidOption('options "version" and "timestamp" do not go together')
        for name in ("cdc", "poll.interval"):
            if travels and self.values[name]:
                raise InvalidOption(
                    f'options "{travels[0]}" and "{name}" do not go together',
                    hint="a version does not change",
                )
        if self.values["timestamp"] is not None:
            self._moment()

    def _moment(self) -> datetime:
        try:
            found = datetime.fromisoformat(self.values["timestamp"])
        except ValueError:
            raise InvalidOption(
                f'option "timestamp" cannot be "{self.values["timestamp"]}"', hint="2026-01-31T12:00:00Z"
            ) from None
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None, "_changes": None, "_turn": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._turn = threading.RLock()

    @property
    def files(self) -> TableFiles:
        if self._files is None:
            from millpond.connectors.delta.client import library

            library()
            from millpond.connectors.delta.table_files import TableFiles

            self._files = TableFiles(self._place, storage_options(self.values))
        return self._files

    @property
    def _log(self) -> ChangeLog:
        if self._changes is None:
            from millpond.connectors.delta.change_log import ChangeLog

            self._changes = ChangeLog(self.files)
        return self._changes

    def _at(self, version: int) -> tuple[DeltaTable, dict[str, np.ndarray]]:
        """Returns the table at a version, and which rows of its files are not deleted."""
        with self._turn:
            if self._opened is None or self._opened[0] != version:
                table = self.files.at(version)
                self._opened = version, table, self.files.kept_of(table)
            return self._opened[1], self._opened[2]

    # columns

    @property
    def address(self) -> str:
        version = self.values["version"], self.values["timestamp"]
        at = "".join(f"@{v}" for v in version if v is not None)
        return without_passwords(self.uri.partition("?")[0]) + at

    def schema(self) -> Schema:
        if self._schema is None:
            found = self.found or self.files.schema_of(self._chosen())
            columns = found if self.declared is None else self.declared
            if self.declared is not None and not any(c.name in found for c in columns):
                raise InvalidOption(
                    f'{self.files.what} has no column "{columns.names[0]}"',
                    hint=f"its columns: {', '.join(found.names)}",
                )
            self._schema = Schema(columns.columns, self._key_in(columns, found))
        return self._schema

    def _key_in(self, columns: Schema, found: Schema) -> tuple[str, ...]:
        named = [n.strip() for n in (self.values["key"] or "").split(",") if n.strip()]
        for name in named:
            if name not in found:
                raise UnknownName(
                    f'option "key": {self.files.what} has no column "{name}"',
                    hint=f"its columns: {', '.join(found.names)}",
                )
        known = [columns.find(name) for name in named]
        return tuple(c.name for c in known if c is not None) if all(known) else ()

    def _chosen(self) -> DeltaTable:
        """Returns the table at the version that is read: the newest, or the requested one."""
        if self._fixed is None and self.values["timestamp"] is not None:
            self._fixed = self.files.at(self._moment()).version()
        wanted = self._fixed if self._fixed is not None else self.values["version"]
        if wanted is None:
            return self.files.newest()
        return self._at(wanted)[0]

    def history(self) -> pa.Table:
        return self.files.history()

    @property
    def drifts(self) -> bool:
        return self.declared is None

    def notice(self, splits: Sequence[Split]) -> None:
        """Adds columns that were added to the table, unless the columns were declared; dropped ones are NULL."""
        ends = [s.end if isinstance(s, ChangesSplit) else s.version for s in splits if isinstance(s, _OURS)]
        if not ends or self.declared is not None or self._need is not None:
            return
        known, there = self.schema(), self.files.schema_of(self._at(max(ends))[0])
        fresh = tuple(c for c in there if c.name not in known)
        for column in fresh:
            log.info('%s has a new column: "%s"', self.files.what, column.name)
        if fresh:
            self.take_columns(Schema((*known, *fresh), known.key))

    def take_columns(self, columns: Schema) -> None:
        self._schema = columns

    def narrowed(self, need: Need) -> Source:
        if need.columns is None or self.captures:
            return self
        found: DeltaSource = copy(self)
        found._turn = threading.RLock()
        schema = self.schema()
        found._need = tuple(n for n in schema.names if n in need.columns) or schema.names[:1]
        found._schema = Schema(tuple(c for c in schema if c.name in found._need))
        return found

    @property
    def sent(self) -> str:
        return f"the columns {', '.join(self.schema().names)} of the files"

    # offsets

    @property
    def follows(self) -> bool:
        return self.captures or self.values["poll.interval"] is not None

    @property
    def runs(self) -> bool:
        return False

    def changes(self, stop: threading.Event) -> Iterator[None]:
        while not stop.wait(self.values["poll.interval"] or LOOK):
            yield

    @property
    def parallel(self) -> int:
        return 1

    def latest(self, start: Offset | None) -> Offset:
        if start is not None and not self.follows:
            return start
        with self._turn:
            table = self._chosen()
            newest, identity = table.version(), str(table.metadata().id)
        if start is None:
            return {"log": {"table": identity, "version": newest}}
        known = start["log"]
        if not self.captures:
            same = (known["table"], known["version"]) == (identity, newest)
            return start if same else {"log": {"table": identity, "version": newest}}
        if known["table"] != identity or newest < known["version"]:
            raise CaptureLost(
                f"{self.files.what} is another table than the one that was read, or an older state of it",
                hint="drop the table and create it again",
            )
        with self._turn:
            end = self._log.after(known["version"], newest, CHANGES)
        return start if end == known["version"] else {"log": {"table": identity, "version": end}}

    def reached(self, at: Offset | None, end: Offset) -> bool:
        if at is None:
            return False
        one, other = at["log"], end["log"]
        return bool(one["table"] == other["table"] and one["version"] >= other["version"])

    def replaced(self, start: Offset, end: Offset) -> bool:
        return not self.captures and not self.reached(start, end)

    def stands(self, end: Offset) -> bool:
        """Returns whether the files of a version are still there."""
        try:
            found = self.files.at(end["log"]["version"])
            same = str(found.metadata().id) == end["log"]["table"]
            return same and all(self.files.exists(f) for f in self.files.files_of(found))
        except Error:
            return False

    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        if self.reached(start, end):
            return []
        version = end["log"]["version"]
        if start is not None and self.captures:
            return [ChangesSplit(None, None, start["log"]["version"], version)]
        table, kept = self._at(version)
        if str(table.metadata().id) != end["log"]["table"]:
            raise SourceChanged(f"{self.files.what} is not the table that it was")
        return [
            FileSplit(None if kept else f.rows, f.size, i << ROW_BITS, version, f)
            for i, f in enumerate(self.files.files_of(table))
        ]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        if isinstance(split, ChangesSplit):
            with self._turn:
                return iter(list(self._log.read(split.start, split.end, self.schema())))
        assert isinstance(split, FileSplit)
        return self._rows(split)

    def _rows(self, split: FileSplit) -> Iterator[pa.RecordBatch]:
        seq, kept = split.first, self._at(split.version)[1]
        try:
            for batch in self.files.read(split.data, self.schema().arrow(), kept):
                yield with_seq(batch, seq)
                seq += batch.num_rows
        except FileNotFoundError:
            raise self.files.gone(split.data.path, split.version) from None

    def close(self) -> None:
        self._opened = None

    # changes

    @property
    def captures(self) -> bool:
        return bool(self.values["cdc"])

    @property
    def enveloped(self) -> Schema | None:
        if not self.captures:
            return None
        raise NotSupported(
            "there is no stream of the changes of a Delta table",
            hint="CREATE TABLE … AS SELECT * FROM delta://… WITH ('cdc' = 'true') follows it",
        )

    @property
    def log_bytes(self) -> int | None:
        return None

    @property
    def polls_instead(self) -> bool:
        return False

    @property
    def loads_first(self) -> bool:
        return True

    @property
    def origin(self) -> dict[str, str | None]:
        return {"connector": self.kind, "db": None, "schema": None, "table": without_passwords(self._place)}

    def claimed(self, owner: str) -> Self:
        own: Self = type(self)(self.uri, self.values, self.declared)
        own.take_columns(self.schema())
        return own

    def forget(self, owner: str) -> None:
        return

    def begin_capture(self) -> Offset:
        end, key = self.latest(None), self.schema().key
        if key:
            from millpond.connectors.delta.unique_keys import check_unique

            version = end["log"]["version"]
            arrow = pa.schema([f for f in self.schema().arrow() if f.name in key])
            check_unique(self.files, version, *self._at(version), arrow)
        return end

    def begun(self) -> None:
        self._opened = None

    def fall_back(self, why: Error) -> None:
        return

    def release(self) -> None:
        return


_OURS = (FileSplit, ChangesSplit)
