"""Writes the base of a table that is stored in Delta: each flush is one commit, with the number of the last commit of
the app that it contains.

| transaction of the Delta table (``txn``) | its version                                             |
|------------------------------------------|---------------------------------------------------------|
| ``millpond state <identity> <table>``    | the last commit of that table of a state directory      |
| ``millpond batches <identity> <table>``  | the last batch that executors have written to it        |
| ``millpond rows``                        | the number of the next row, if the table has no key     |
| ``millpond writer``                      | who wrote last: a number that each open table draws     |
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Position
from millpond.connectors.delta.base_version import BaseVersion, stored_type
from millpond.connectors.delta.care import optimize, vacuum
from millpond.connectors.delta.client import exists, explained, library, quoted
from millpond.connectors.delta.layer import GONE, living
from millpond.connectors.delta.row_cache import RowCache
from millpond.connectors.delta.rules import (
    check_entries_stay,
    check_writable,
    constraints_of,
    required_columns,
)
from millpond.connectors.delta.stored_rows import same_key, stored
from millpond.connectors.delta.task_files import actions_of
from millpond.connectors.delta.unique_rows import check_unique
from millpond.connectors.delta.versions import history_of, table_at
from millpond.connectors.divided_table import Written
from millpond.errors import (
    ConfigurationIssue,
    ConnectionLost,
    NotSupported,
    StateForeign,
    TypeMismatch,
    UnknownName,
    without_passwords,
)
from millpond.types import Column, Schema, normal, quote, type_name

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

log = logging.getLogger("millpond")
_FEATURES = frozenset({"timestampNtz"})
"""What readers of tables that are written here may have to know."""
_TRIES = 5
"""How often a commit is tried that others' commits come before."""
_DELETED = "_millpond_deleted"


class BaseTable:
    """Represents the Delta table, created if it does not exist and no ``known`` id says that it did.

    ``own`` tells the table of the app from others that had, or have, their rows in the same place.
    """

    def __init__(
        self,
        place: str,
        storage: Mapping[str, str],
        schema: Schema,
        *,
        null_keys: bool,
        own: str,
        known: str | None = None,
        partitions: Sequence[str] = (),
        cache_size: int = 0,
    ):
        self.cache = RowCache(schema, 0 if null_keys else cache_size)
        self._place, self._storage = place, dict(storage)
        self.what = f'Delta table "{without_passwords(place)}"'
        self._schema, self._null_keys, self._own = schema, null_keys, own
        self._columns = schema.columns if schema.key else (*schema.columns, Column(ROW, pa.int64()))
        delta, is_there = library(), exists(place, storage)
        if known is not None and not is_there:
            raise StateForeign(f"{self.what} is gone, with all rows that it had", hint=_BRING_BACK)
        with explained(place):
            if is_there:
                self._table: DeltaTable = delta.DeltaTable(place, storage_options=dict(storage))
                self._check_known(known)
                if known is None:
                    check_writable(self._table, self.what)
                    check_entries_stay(self._table, self.what)
                else:
                    self._warn_of_lost_entries()
                self._check(self._table, partitions, more=known is not None)
            else:
                fields = [pa.field(c.name, stored_type(c.type)) for c in self._columns]
                self._table = delta.DeltaTable.create(
                    place,
                    pa.schema(fields),
                    mode="error",
                    partition_by=list(partitions),
                    storage_options=dict(storage),
                )
        self.names = tuple(pa.schema(self._table.schema().to_arrow()).names)
        self.partitions = tuple(self._table.metadata().partition_columns)
        self.required, self.constraints = required_columns(self._table), constraints_of(self._table)
        if null_keys:
            required = [name for name in schema.key if name.lower() in self.required]
            self.constraints |= {name: f"{quote(name)} IS NOT NULL" for name in required}
        self._writer = secrets.randbelow(1 << 62)
        self._known_writer = self._number(_WRITER)
        self._writes, self._versions = 0, threading.RLock()
        self._held: WeakSet[BaseVersion] = WeakSet()
        self.version = self._read(self._table, 0)
        self.cache.moved(self.version, None)
        if is_there and self._known_writer is None and schema.key:
            check_unique(self.version, schema.key, self.what)
        self.is_new = not is_there  # whether it was created now

    @property
    def id(self) -> str:
        """Returns what tells the Delta table from others, also from a later one in the same place."""
        return str(self._table.metadata().id)

    # the table as it is found

    def _check_known(self, known: str | None) -> None:
        if known is not None and self.id != known:
            raise StateForeign(f"{self.what} is not the one that had the rows", hint=_BRING_BACK)

    def _warn_of_lost_entries(self) -> None:
        """Warns about a table with rows of this app that forgets what was written: a start may be refused later."""
        try:
            check_entries_stay(self._table, self.what)
        except ConfigurationIssue as error:
            log.warning("%s; %s", error.message, error.hint)

    def _check(self, table: DeltaTable, partitions: Sequence[str] = (), *, more: bool = False) -> None:
        """Raises an error if a table does not fit. ``more`` says that it may have more columns: it can be read then."""
        unknown = frozenset(table.protocol().reader_features or ()) - _FEATURES
        mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
        if unknown or mapped:
            named = ", ".join(sorted(unknown | ({"columnMapping"} if mapped else frozenset())))
            raise NotSupported(f"{self.what} has features that are not written here: {named}")
        there = {f.name.lower(): f for f in pa.schema(table.schema().to_arrow())}
        listed = ", ".join(f.name for f in there.values())
        for column in self._columns:
            field = there.pop(column.name.lower(), None)
            if field is None and column.name == ROW:
                raise NotSupported(
                    f'{self.what} has no column "{ROW}", by which a table without a key tells its rows',
                    hint="declare the PRIMARY KEY of its rows",
                )
            if field is None:
                raise UnknownName(f'{self.what} has no column "{column.name}"', hint=f"its columns: {listed}")
            if normal(field.type) != stored_type(column.type):
                raise TypeMismatch(
                    f'column "{field.name}" of {self.what} is {type_name(normal(field.type))}, not '
                    f"{type_name(column.type)}",
                    hint=f"declare it as {type_name(normal(field.type))}",
                )
        if there and not more:
            raise NotSupported(
                f'{self.what} has the column "{next(iter(there.values())).name}", which is not declared',
                hint=f"declare all its columns: {listed}; or take it away there",
            )
        cut = list(table.metadata().partition_columns)
        if partitions and [p.lower() for p in partitions] != [c.lower() for c in cut]:
            raise ConfigurationIssue(
                f"{self.what} is partitioned by {', '.join(cut) or 'nothing'}, not by {', '.join(partitions)}",
                hint="leave 'partition.by' out: it is for tables that are created",
            )

    def _read(self, table: DeltaTable, writes: int) -> BaseVersion:
        newer = partial(self._newer, writes)
        return self._shown(BaseVersion(table, self._place, self._storage, self._columns, newer, self.cache))

    def _shown(self, version: BaseVersion) -> BaseVersion:
        """Records that somebody may read a version."""
        with self._versions:
            self._held.add(version)
        return version

    def at(self, version: int | datetime) -> BaseVersion:
        """Returns an earlier version, or the one that was the newest at a time."""
        with explained(self._place):
            table = table_at(self._place, self._storage, version)
            self._check(table, more=True)
        return self._shown(BaseVersion(table, self._place, self._storage, self._columns, newer=lambda: None))

    def history(self) -> pa.Table:
        """Returns the versions that the log has, the newest first."""
        with explained(self._place):
            return history_of(table_at(self._place, self._storage, None))

    def _newer(self, writes: int) -> BaseVersion | None:
        """Returns the newest version for those who read an earlier one; None if a write has begun since that one."""
        with explained(self._place):
            table = library().DeltaTable(self._place, storage_options=self._storage)
            self._check(table, more=True)
        newest = self._read(table, writes)
        with self._versions:
            return self._moved(newest) if writes == self._writes else None

    def _moved(self, newest: BaseVersion, changed: pa.Table | None = None) -> BaseVersion:
        """Shows a newer version; ``changed`` are all rows that the commit after the last version has changed."""
        with self._versions:
            if newest.number > self.version.number:
                is_next = newest.number == self.version.number + 1
                self.version = newest
                self.cache.moved(newest, changed if is_next else None)
            return self.version

    def _number(self, transaction: str) -> int | None:
        found: int | None = self._table.transaction_version(transaction)
        return found

    def flushed(self, state: str) -> int | None:
        """Returns the last commit of a state directory that the table contains."""
        return self._number(_state(state, self._own))

    @property
    def has_change_feed(self) -> bool:
        return self._table.metadata().configuration.get(_FEED, "").lower() == "true"

    @property
    def next_row(self) -> int:
        """Returns the number of the next row, as far as the table has the rows."""
        known = self._number(_ROWS)
        if known is None and self.version.count and not self._schema.key:
            known = int(pc.max(self.version.scan([ROW])[ROW]).as_py()) + 1
        return known or 0

    # care, while nothing is written

    def optimize(self) -> pa.Table:
        """Writes small files together; the rows stay as they are."""
        done = optimize(self._table, self._place)
        # Without files to compact there is no commit of its own: a new version is then that of somebody else.
        unchanged = self._schema.arrow().empty_table() if done["files_removed"][0].as_py() else None
        self._moved(self._read(self._table, self._writes), unchanged)
        return done

    def vacuum(self, hours: int | None) -> pa.Table:
        """Removes files that no version of the last hours has, and that nobody here reads."""
        with self._versions:
            held = {version.number for version in self._held}
        done = vacuum(self._table, self._place, hours, held)
        self._moved(self._read(self._table, self._writes))
        return done

    @property
    def files(self) -> pa.Table:
        """Returns the files of the newest version, with their sizes and partitions."""
        with explained(self._place):
            return pa.table(self._table.get_add_actions(flatten=True))

    # commits

    def write(
        self, changes: pa.Table, state: str, commit: int, next_row: int, positions: Sequence[Position] = ()
    ) -> None:
        """Writes the changes of a layer as one commit, unless the table has it."""

        def make(properties: CommitProperties) -> None:
            self._commit(changes, properties)
            if self._number(entry) != commit:
                # A merge that changes no row commits nothing.
                self._append(changes.slice(0, 0), properties)

        entry = _state(state, self._own)
        self._enter(entry, commit, next_row, positions, make)
        self._moved(self._read(self._table, self._writes), changes)

    def publish(
        self, written: Written, state: str, number: int, next_row: int, positions: Sequence[Position]
    ) -> None:
        """Replaces and adds files as one commit, unless the table has it."""

        def make(properties: CommitProperties) -> None:
            if written.version is not None:
                if self._table.version() != written.version:
                    raise ConnectionLost(f"{self.what} was changed by others while a batch was merged")
                properties.max_commit_retries = 0
            actions, schema = actions_of(written), self._table.schema()
            self._table.create_write_transaction(actions, "append", schema, commit_properties=properties)
            self._table.update_incremental()

        self._enter(_batches(state, self._own), number, next_row, positions, make)
        self._moved(self._read(self._table, self._writes))

    def published(self, state: str) -> int | None:
        """Returns the number of the newest commit of ``publish`` of a state directory."""
        with explained(self._place):
            self._table.update_incremental()
            self._check(self._table, more=True)
        if self._table.version() != self.version.number:
            self._moved(self._read(self._table, self._writes))
        return self._number(_batches(state, self._own))

    def _enter(
        self,
        entry: str,
        number: int,
        next_row: int,
        positions: Sequence[Position],
        make: Callable[[CommitProperties], None],
    ) -> None:
        """Makes a commit with a number under the name of its entry, unless the table has it."""
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        failed = ""
        with self._versions:
            self._writes += 1
        notes = {_POSITIONS: json.dumps([p.parts for p in positions])} if positions else {}
        numbers = {entry: number, _WRITER: self._writer}
        if not self._schema.key:
            numbers[_ROWS] = max(next_row, self._number(_ROWS) or 0)
        with explained(self._place):
            for _ in range(_TRIES):
                self._table.update_incremental()
                self._check(self._table)
                if self._table.version() != self.version.number:
                    self._moved(self._read(self._table, self._writes))
                if self._number(_WRITER) == self._writer and self._number(entry) == number:
                    break  # it was made, and the answer was lost
                self._check_writer()
                transactions = [Transaction(app, n) for app, n in numbers.items()]
                try:
                    make(CommitProperties(custom_metadata=notes, app_transactions=transactions))
                    break
                except CommitFailedError as error:
                    failed = str(error).strip().partition("\n")[0]
            else:
                check_writable(self._table, self.what)
                raise ConnectionLost(f"{self.what}: others change the same rows: {failed}")
        self._known_writer = self._writer

    def _check_writer(self) -> None:
        if self._number(_WRITER) not in (self._known_writer, self._writer):
            raise ConfigurationIssue(
                f"another app writes to {self.what}: a table has one writer",
                hint="stop the other app, and start this one again",
            )

    def _commit(self, changes: pa.Table, properties: CommitProperties) -> None:
        put = living(changes)
        if not self.version.count or (not self._schema.key and self._are_new(changes)):
            self._append(put, properties)
        else:
            self._merge(changes, properties)

    def _are_new(self, changes: pa.Table) -> bool:
        """Returns whether none of the rows, which have numbers, can be in the table."""
        lowest = pc.min(changes[ROW]).as_py()
        return lowest is None or lowest >= self.next_row

    def _append(self, rows: pa.Table, properties: CommitProperties) -> None:
        library().write_deltalake(
            self._table,
            stored(rows, self.names, self._schema.key),
            mode="append",
            commit_properties=properties,
        )

    def _merge(self, changes: pa.Table, properties: CommitProperties) -> None:
        key = self._schema.key
        rows = stored(changes, self.names, key).append_column(_DELETED, changes[GONE])
        same = same_key(rows, self.names, key or (ROW,), null_keys=self._null_keys)
        gone, written = f"s.{quoted(_DELETED)}", {quoted(n): f"s.{quoted(n)}" for n in self.names}
        merge = self._table.merge(
            rows, same, source_alias="s", target_alias="t", commit_properties=properties
        ).when_matched_delete(gone)
        merge.when_matched_update(written, f"NOT {gone}").when_not_matched_insert(
            written, f"NOT {gone}"
        ).execute()


_ROWS, _WRITER = "millpond rows", "millpond writer"
_FEED = "delta.enableChangeDataFeed"
_POSITIONS = "millpond.positions"
"""What the commit of a flush has in its user metadata, beside the entries."""
_BRING_BACK = "bring it back as it was, or begin with a new state directory"


def _state(identity: str, table: str) -> str:
    return f"millpond state {identity} {table}"


def _batches(identity: str, table: str) -> str:
    return f"millpond batches {identity} {table}"
