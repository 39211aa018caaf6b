"""Implements the one connection that writes, and its transactions.

The facts in memory are replaced only when a transaction has succeeded, so that memory and file agree.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from millpond import faults
from millpond.changes import Position
from millpond.errors import Closed, StateUnwritable
from millpond.journal import commit_cache, single_change
from millpond.journal.blob_rows import Schemas, files_in_use, write_changes, write_segments
from millpond.journal.blobs import DATA, remove_files
from millpond.journal.commit_cache import Facts
from millpond.journal.database import (
    Mark,
    check,
    guarded,
    open_to_read,
    open_to_write,
    set_sync,
    shrink,
    sync_log,
)
from millpond.journal.late import LateSync
from millpond.journal.pinned import remove_pins
from millpond.journal.read_only import inspect, remove_copies
from millpond.journal.requests import GroupCommit, Request
from millpond.journal.responses import write_answer
from millpond.journal.roll import ROLL_BYTES, roll
from millpond.journal.state import sync_directory

T = TypeVar("T")

COMPACT_AFTER = 8 << 20
"""The weight of the changes of a table above which its rows replace them."""

_SHRINK_PAGES = 500

_log = logging.getLogger(__name__)


class Writer:
    """Writes the journal. Many threads may call it; it writes for one at a time, or for all that wait in one
    transaction.
    """

    def __init__(self, directory: Path, *, durable: bool, read_only: bool):
        self.directory = directory
        self.durable = durable
        self._read_only = read_only
        self._closed = False
        self.schemas = Schemas()
        self._group = GroupCommit(self._write_group)
        self._late = LateSync(self.sync)
        self._waits_for_disk = True
        self._behind = False
        self.compact_after = COMPACT_AFTER
        self._on_due: Callable[[], None] = lambda: None
        self._due: set[str] = set()
        with guarded(directory):
            if durable:
                inspect(directory)
            self._connection = open_to_read(directory) if read_only else open_to_write(directory, durable)
            self._mark = Mark(directory, read_only=read_only)
            try:
                check(self._connection, directory)
                self.facts = commit_cache.read(self._connection)
                self._mark.check(self.facts.revision)
                if not read_only:
                    remove_copies(directory)
                    remove_pins(directory)
                    self._remove_unnamed_files()
                    single_change.set_up(self._connection)
                    if durable:
                        self._begin()
            except BaseException:
                self._mark.close()
                self._connection.close()
                raise

    def _begin(self) -> None:
        """Records in the database itself, and not only in its log, that an app works on it. So a missing log is
        noticed.
        """
        self._transaction(lambda connection, after: None)
        self._connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        sync_directory(self.directory)

    def submit(self, request: Request) -> int | None:
        """Writes the request, together with other waiting ones, and returns its number once it is durable."""
        return self._group.submit(request)

    def number(self) -> int:
        """Returns the next number, for a commit that writes nothing."""
        with self._group.lock:
            self.check_open()
            self._check_writable()
            self.facts.last += 1
            return self.facts.last

    def applied(self, position: Position | None) -> bool:
        return position is not None and _covered(self.facts, position)

    def transaction(self, write: Callable[[sqlite3.Connection, Facts], T], *, sync: bool = True) -> T:
        """Runs ``write`` in a separate transaction. It changes the facts that it gets as it writes."""
        with self._group.lock:
            return self._transaction(write, sync=sync)

    def shrink(self) -> bool:
        """Returns some free pages to the disk; returns whether there are more."""
        with self.reading() as connection:
            self._wait_for_disk(False)
            return shrink(connection, _SHRINK_PAGES)

    def sync(self) -> None:
        """Syncs what was committed without waiting; other commits continue meanwhile."""
        with self._group.lock:
            if self._closed or not self._behind:
                return
            self._behind = False
            revision = self.facts.revision
        try:
            sync_log(self.directory)
        except OSError as e:
            self._behind = True
            raise StateUnwritable(
                f'the journal in "{self.directory}" cannot be synced: {e.strerror or e}'
            ) from e
        with self._group.lock:
            if not self._closed:
                self._mark.write(revision)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Provides the connection, while nothing is being written."""
        with self._group.lock, guarded(self.directory):
            self.check_open()
            yield self._connection

    def remove_unused(self, files: Sequence[str]) -> None:
        """Removes those of the files that the journal does not name."""
        if not files:
            return
        with self._group.lock:
            if self._closed:
                return
            for at in range(0, len(files), 500):
                some = files[at : at + 500]
                remove_files(self.directory, set(some) - files_in_use(self._connection, some))

    def check_open(self) -> None:
        if self._closed:
            raise Closed("the journal is closed")

    def _check_writable(self) -> None:
        if self._read_only:
            raise StateUnwritable(f'the state directory "{self.directory}" is open for reading only')

    def close(self) -> None:
        self._late.end()
        self.sync()
        with self._group.lock:
            if self._closed:
                return
            if not self._read_only:
                with guarded(self.directory):
                    self.facts.write(self._connection, clean=True)
            self._closed = True
            self._connection.close()
            self._mark.close()

    def abandon(self) -> None:
        self._late.end()
        with self._group.lock:
            if not self._closed:
                self._closed = True
                self._connection.close()
                self._mark.close()

    def _write_group(self, group: list[Request]) -> None:
        """Writes a group of requests. Called by one thread at a time, the lock held."""
        self.check_open()
        if all(r.empty for r in group) or (not self.durable and not any(r.sent for r in group)):
            for request in group:
                _number(request, self.facts)
                if request.number is not None:
                    if request.position:
                        self.facts.positions[request.position.pipeline] = request.position
                    self.facts.done.update(request.done)
                request.end()
            return

        if len(group) == 1 and self._write_single(group[0]):
            return

        def write(connection: sqlite3.Connection, after: Facts) -> None:
            sent_at = time.time()
            for request in group:
                _number(request, after)
                if request.number is not None:
                    self._write_request(connection, request, after, sent_at)

        def committed() -> None:
            for request in group:
                request.end()

        self._transaction(write, sync=any(r.sync for r in group), committed=committed)
        self._look_for_due({name for request in group for name in request.changes})
        for stream in {s for r in group for s in r.sent}:
            if self.facts.inline.get(stream, 0) >= ROLL_BYTES:
                self._roll(stream)

    def _write_single(self, request: Request) -> bool:
        """Writes a request that is one small change of one table; returns False if it is not."""
        if len(request.changes) != 1 or request.sent or request.position or request.done or request.answer:
            return False
        ((name, (rows, deletes)),) = request.changes.items()
        schema = self.schemas.known(rows.schema)
        if schema is None or len(rows.blobs) != 1 or rows.blobs[0].data is None:
            return False
        self._check_writable()
        change = single_change.SingleChange(self.facts, name, rows.blobs[0], schema, deletes)
        request.number = change.last

        def committed() -> None:
            change.note(self.facts)
            request.end()

        with guarded(self.directory):
            self._wait_for_disk(request.sync)
            with self._settled(change.revision, committed):
                change.write(self._connection)
                faults.reach("journal: committed")
        self._written(request.sync)
        self._look_for_due((name,))
        return True

    @contextmanager
    def _settled(self, revision: int, committed: Callable[[], None]) -> Iterator[None]:
        """Calls ``committed`` if the code inside has brought the file to the revision, and only then, also if it is
        interrupted. An error after that does not fail the commit.
        """
        try:
            yield
            committed()
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if not self._holds(revision):
                raise
            committed()
            if not isinstance(error, Exception):
                raise
            _log.warning("a commit succeeded, and what came after it failed: %r", error)

    def _holds(self, revision: int) -> bool:
        found = self._connection.execute("SELECT revision FROM state WHERE id = 1").fetchone()
        return found is not None and int(found[0]) == revision

    def _write_request(
        self, connection: sqlite3.Connection, request: Request, after: Facts, sent_at: float
    ) -> None:
        for name, (rows, deletes) in request.changes.items():
            schema = self.schemas.number(connection, rows.schema)
            number = after.last
            checksums = write_changes(connection, name, number, rows, schema, snapshot=False, deletes=deletes)
            after.add_blobs(connection, name, checksums, sum(b.length for b in rows.blobs))
        for name, rows in request.sent.items():
            schema = self.schemas.number(connection, rows.schema)
            first = after.ends.get(name, 0)
            after.set_end(connection, name, write_segments(connection, name, first, sent_at, rows, schema))
            after.inline[name] = after.inline.get(name, 0) + sum(len(b.data or b"") for b in rows.blobs)
        if request.position:
            after.set_position(connection, request.position)
        for statement in request.done:
            after.set_done(connection, statement)
        if request.answer is not None:
            write_answer(connection, request.answer)

    def _transaction(
        self,
        write: Callable[[sqlite3.Connection, Facts], T],
        *,
        sync: bool = True,
        committed: Callable[[], None] = lambda: None,
    ) -> T:
        """Runs a transaction. ``committed`` is called when the file contains it, before anything else happens."""
        self.check_open()
        self._check_writable()
        after = self.facts.copy()
        result: list[T] = []

        def take_note() -> None:
            self.facts = after
            committed()

        with guarded(self.directory):
            self._wait_for_disk(sync)
            try:
                with self._settled(after.revision + 1, take_note):
                    self._connection.execute("BEGIN IMMEDIATE")
                    result.append(write(self._connection, after))
                    after.revision += 1
                    after.write(self._connection, clean=False)
                    faults.reach("journal: written")
                    self._connection.execute("COMMIT")
                    faults.reach("journal: committed")
            except BaseException:
                self.schemas.forget()
                raise
        self._written(sync)
        return result[0]

    def _wait_for_disk(self, sync: bool) -> None:
        if self.durable and sync != self._waits_for_disk:
            set_sync(self._connection, sync)
            self._waits_for_disk = sync

    def _written(self, synced: bool) -> None:
        """Records the outcome of a commit. A sync of the log includes all that was written to it before."""
        if not self.durable:
            return
        self._behind = not synced
        if synced:
            self._mark.write(self.facts.revision)
        else:
            self._late.due()

    def _look_for_due(self, tables: Iterable[str]) -> None:
        """Records which of the tables have changes that weigh more than the rows themselves, and than the minimum."""
        for name in tables:
            weight = self.facts.weights.get(name)
            if weight is not None and weight.changes > max(self.compact_after, weight.snapshot):
                if name not in self._due:
                    self._due.add(name)
                    self._on_due()

    def when_due(self, call: Callable[[], None]) -> None:
        """Calls it when a table is due to be compacted, and now if one is."""
        with self._group.lock:
            self._on_due = call
            self._look_for_due(self.facts.weights)
            if self._due:
                call()

    def take_due(self) -> list[str]:
        """Returns the tables that are due for compaction, each once until it is due again."""
        with self._group.lock:
            due, self._due = self._due, set()
            return sorted(due)

    def _roll(self, stream: str) -> None:
        """Rolls a stream. The commit before has succeeded, so a failure only delays this."""

        def write(connection: sqlite3.Connection, after: Facts) -> None:
            roll(connection, self.directory, stream, self.schemas, durable=self.durable)
            after.inline[stream] = 0

        try:
            faults.reach("stream: rolling")
            self._transaction(write)
        except Exception as e:
            _log.warning('the rows of stream "%s" stay in the journal: %s', stream, e)
            self.facts.inline[stream] = 0

    def _remove_unnamed_files(self) -> None:
        if (self.directory / DATA).exists():
            present = {p.name for p in (self.directory / DATA).iterdir()}
            remove_files(self.directory, present - files_in_use(self._connection))


def _covered(known: Facts, position: Position) -> bool:
    newest = known.positions.get(position.pipeline)
    return newest is not None and newest.covers(position)


def _number(request: Request, after: Facts) -> None:
    """Gives the request the next number, or none if its position was applied before."""
    if request.position is None or not _covered(after, request.position):
        after.last += 1
        request.number = after.last
    else:
        request.number = None
