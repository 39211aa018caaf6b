"""Writes the commits of many threads to the journal, in groups."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from millpond import faults
from millpond.changes import Position
from millpond.journal.blob_rows import files_in_use, write_changes, write_segments
from millpond.journal.blobs import DATA, remove_files
from millpond.journal.commit_cache import NO_WEIGHT, Facts, Weight
from millpond.journal.pinned_files import remove_pins
from millpond.journal.read_only import remove_copies
from millpond.journal.requests import GroupCommit, Receipt, Request
from millpond.journal.responses import write_answer
from millpond.journal.roll import ROLL_BYTES, roll
from millpond.journal.small_changes import BlobChange, RowChange, SmallChange, write_pending
from millpond.journal.transactions import Transactions

COMPACT_AFTER = 8 << 20
"""The weight of the changes of a table above which its rows replace them."""

_log = logging.getLogger(__name__)


class Writer(Transactions):
    """Writes the journal. Many threads may call it; it writes for one at a time, or for all that wait in one
    transaction.
    """

    def __init__(self, directory: Path, *, durable: bool, read_only: bool, now: Callable[[], float]):
        self._now = now
        self.compact_after = COMPACT_AFTER
        self._on_due: Callable[[], None] = lambda: None
        self._due: set[str] = set()
        super().__init__(directory, durable=durable, read_only=read_only)
        self._group = GroupCommit(self._write_group, self.lock)

    def _clean_up(self) -> None:
        remove_copies(self.directory)
        remove_pins(self.directory)
        if (self.directory / DATA).exists():
            present = {p.name for p in (self.directory / DATA).iterdir()}
            remove_files(self.directory, present - files_in_use(self._connection))

    def submit(self, request: Request) -> int | None:
        """Writes the request, together with other waiting ones, and returns its number once it is durable."""
        return self._group.submit(request)

    def number(self) -> int:
        """Returns the next number, for a commit that writes nothing."""
        with self.lock:
            self.check_open()
            self._check_writable()
            self.facts.last += 1
            return self.facts.last

    def applied(self, positions: Sequence[Position]) -> bool:
        return _covered(self.facts, positions)

    def remove_unused(self, files: Sequence[str]) -> None:
        """Removes those of the files that the journal does not name."""
        if not files:
            return
        with self.lock:
            if self._closed:
                return
            for at in range(0, len(files), 500):
                some = files[at : at + 500]
                remove_files(self.directory, set(some) - files_in_use(self._connection, some))

    def _write_group(self, group: list[Request]) -> None:
        """Writes a group of requests. Called by one thread at a time, the lock held."""
        self.check_open()
        if all(r.empty for r in group) or (not self.durable and not any(r.sent for r in group)):
            for request in group:
                _number(request, self.facts)
                if request.number is not None:
                    self.facts.positions.update({p.pipeline: p for p in request.positions})
                    self.facts.done.update(request.done)
                request.end()
            return

        if self._log_group(group):
            return

        def write(connection: sqlite3.Connection, after: Facts) -> None:
            sent_at = self._now()
            for request in group:
                _number(request, after)
                if request.number is not None:
                    self._write_request(connection, request, after, sent_at)

        def committed() -> None:
            for request in group:
                request.end()

        self._transaction(write, sync=any(r.sync for r in group), committed=committed)
        self._changed({name for request in group for name in request.changes})
        for stream in {s for r in group for s in r.sent}:
            if self.facts.inline.get(stream, 0) >= ROLL_BYTES:
                self._roll(stream)

    def write_rows(self, changes: Sequence[RowChange], receipt: Receipt, *, sync: bool) -> int:
        """Commits changes of single rows, and returns the commit's number once it is as durable as with ``submit``."""
        with self.lock:
            self.check_open()
            self._check_writable()
            number = self.facts.last + 1
            numbered = [(number, change) for change in changes]

            def committed() -> None:
                receipt.number = number

            logged = self._tail.encoded(numbered, self.facts, number)
            if logged is None:
                self._transaction(partial(self._write_numbered, numbered), sync=sync, committed=committed)
            else:
                self._write_logged(logged, committed, sync=sync)
            return number

    def _write_numbered(
        self, changes: Sequence[tuple[int, SmallChange]], connection: sqlite3.Connection, after: Facts
    ) -> None:
        after.last = changes[-1][0]
        write_pending({0: list(changes)}, connection, after, self.schemas)

    def _log_group(self, group: list[Request]) -> bool:
        """Writes a group to the log, if it consists of small changes of tables; returns False if it does not."""
        changes: list[tuple[int, SmallChange]] = []
        for number, request in enumerate(group, self.facts.last + 1):
            if not self.durable or not request.small:
                return False
            changes += [(number, BlobChange(n, *change)) for n, change in request.changes.items()]
        self._check_writable()
        logged = self._tail.encoded(changes, self.facts, self.facts.last + len(group))
        if logged is None:
            return False

        def committed() -> None:
            for number, request in enumerate(group, logged.last + 1 - len(group)):
                request.number = number
                request.end()

        self._write_logged(logged, committed, sync=any(r.sync for r in group))
        self._changed({name for request in group for name in request.changes})
        return True

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
        for position in request.positions:
            after.set_position(connection, position)
        for statement in request.done:
            after.set_done(connection, statement)
        if request.answer is not None:
            write_answer(connection, request.answer)

    def _changed(self, tables: Iterable[str]) -> None:
        """Records which of the tables have changes that weigh more than the rows themselves, and than the minimum."""
        for name in tables:
            weight = self.weight(name)
            if weight.changes > max(self.compact_after, weight.snapshot):
                if name not in self._due:
                    self._due.add(name)
                    self._on_due()

    def weight(self, table: str) -> Weight:
        """Returns what a restart has to read of the table."""
        snapshot, changes = self.facts.weights.get(table, NO_WEIGHT)
        return Weight(snapshot, changes + self._tail.weight(table))

    def when_due(self, call: Callable[[], None]) -> None:
        """Calls it when a table is due to be compacted, and now if one is."""
        with self.lock:
            self._on_due = call
            self._changed(self.facts.weights)
            if self._due:
                call()

    def take_due(self) -> list[str]:
        """Returns the tables that are due for compaction, each once until it is due again."""
        with self.lock:
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


def _covered(known: Facts, positions: Sequence[Position]) -> bool:
    found = ((known.positions.get(p.pipeline), p) for p in positions)
    return any(newest is not None and newest.covers(position) for newest, position in found)


def _number(request: Request, after: Facts) -> None:
    """Gives the request the next number, or none if one of its positions was applied before."""
    if not _covered(after, request.positions):
        after.last += 1
        request.number = after.last
    else:
        request.number = None
