"""Flushes tables that have a base outside, in a thread of its own.

A flush sets the changes of a table apart, writes them to its base in one commit there, and then removes them from the
journal. The base has the number of the last commit in it, so whatever step a crash comes after, a restart applies
exactly the later changes.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from millpond import faults
from millpond.changes import Position
from millpond.errors import Closed, Error
from millpond.store.store import Store
from millpond.tables.base import Backend
from millpond.tables.flushed_table import FlushedTable
from millpond.tables.versioned_table import VersionedTable

log = logging.getLogger("millpond")
_AGAIN = 1.0
"""The minimum number of seconds after which a failed flush is tried again."""

CLOSING = 30.0
"""The maximum number of seconds that closing an app waits for stores, if a journal has the changes."""


class Flusher:
    """Flushes each table not before its ``flush.interval`` or ``flush.size``, and one table at a time."""

    def __init__(self, store: Store, state: str):
        self._store = store
        self._state = state
        self._wake = threading.Event()
        self._starting = threading.Lock()
        self._turns: WeakKeyDictionary[Backend, threading.Lock] = WeakKeyDictionary()
        self._next = math.inf
        """When the thread looks at the tables again; infinite while it looks."""
        self._ended = False
        self._failed: dict[str, float] = {}
        self._changed: set[str] = set()
        """Tables whose bases others than flushes have changed."""
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Starts flushing once all tables are restored."""
        self._store.visibility.listen(self._look)
        self._look()

    def _look(self) -> None:
        """Wakes the thread, which starts when it is first needed, if a table is due before it looks again."""
        if not self._store.flushed or self._ended or self._store.journal.read_only:
            return
        for name, table in self._store.flushed.items():
            wait = self._wait(name, table)
            if wait is not None and time.monotonic() + wait < self._next:
                self._wake.set()
                self._start()
                return

    def look_after(self, name: str) -> None:
        """Has the thread look after the files of a table that got some without a flush."""
        if not self._ended:
            self._changed.add(name.lower())
            self._wake.set()
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="millpond-flush", daemon=True)
                    thread.start()
                    self._thread = thread

    def _run(self) -> None:
        while not self._ended:
            self._wake.clear()
            self._next, waits = math.inf, []
            if self._ended:
                return
            for name, table in self._store.flushed.items():
                if name in self._changed:
                    self._changed.discard(name)
                    self._look_after(name, table)
                wait = self._wait(name, table)
                if wait is not None and wait <= 0:
                    self._try(name, table)
                    self._look_after(name, table)
                    wait = self._wait(name, table)
                if wait is not None:
                    waits.append(max(wait, 0.0))
            wait = min(waits, default=None)
            self._next = math.inf if wait is None else time.monotonic() + wait
            self._wake.wait(wait)

    def _wait(self, name: str, table: FlushedTable) -> float | None:
        """Returns the seconds until the table is due; None if it has nothing to flush."""
        pending = table.pending
        if not pending.rows or pending.since is None or self._ended:
            return None
        now = time.monotonic()
        failed = self._failed.get(name)
        if failed is not None:
            return failed + max(_AGAIN, min(table.flush_interval, 30.0)) - now
        return 0.0 if pending.bytes >= table.flush_size else pending.since + table.flush_interval - now

    def _try(self, name: str, table: FlushedTable) -> None:
        try:
            self.flush(name)
            self._failed.pop(name, None)
            table.flush_ended(None)
        except Closed:
            return
        except Exception as error:
            why = error.message if isinstance(error, Error) else repr(error)
            log.warning('the changes of table "%s" stay in the journal: %s', name, why)
            self._failed[name] = time.monotonic()
            table.flush_ended(why)

    def flush(self, name: str) -> None:
        """Flushes a table now, all that was committed before."""
        store = self._store
        table = store.table(name)
        if not isinstance(table, FlushedTable) or store.journal.read_only:
            return
        with self.undisturbed(table):
            last = None
            while True:
                with store.writing:
                    boundary = store.journal.boundary()
                    last = table.last_commit if last is None else last
                    # The base gets the number of a commit that the journal has: others may have written nothing.
                    frozen = table.freeze(boundary, self._positions(name))
                if frozen is None:
                    return
                self._write(name, table, frozen)
                if frozen >= last:
                    return

    def _positions(self, name: str) -> list[Position]:
        """Returns how far the statements that fill a table have come."""
        store = self._store
        filled_by = [pipeline for pipeline, table in list(store.filled.items()) if table == name.lower()]
        return [known for pipeline in filled_by if (known := store.journal.position(pipeline)) is not None]

    def _look_after(self, name: str, table: FlushedTable) -> None:
        """Does what is due of OPTIMIZE and VACUUM. If it fails, it is tried again after another flush."""
        if self._ended or not isinstance(table, VersionedTable):
            return
        try:
            with self.undisturbed(table):
                table.care()
        except Closed:
            return
        except Exception as error:
            why = error.message if isinstance(error, Error) else repr(error)
            log.warning('the files of table "%s" stay as they are: %s', name, why)

    @contextmanager
    def undisturbed(self, table: Backend) -> Iterator[None]:
        """Keeps a table from being flushed."""
        with self._turns.setdefault(table, threading.Lock()):
            yield

    def _write(self, name: str, table: FlushedTable, commit: int) -> None:
        store, journal = self._store, self._store.journal
        journal.sync()  # what the base contains must never be newer than the journal
        faults.reach("flush: set apart")
        table.flush(self._state)
        faults.reach("flush: in the base")
        if store.journals(name):
            nothing = journal.snapshot([table.schema.arrow().empty_table()])
            journal.compact(name, nothing, commit=commit)
            faults.reach("flush: forgotten")
            while journal.sweep(name):
                pass
            while not self._ended and journal.shrink():
                pass

    def end(self, *, flush: bool = True) -> None:
        """Waits for a running flush, and stops the thread; then flushes all tables once more. What cannot be flushed
        stays in the journal, as what takes too long does: a restart applies it if the base has not got it.
        """
        self._ended = True
        self._wake.set()
        if self._thread is None and not self._store.flushed:
            return
        last = threading.Thread(target=self._end, args=(flush,), name="millpond-last-flush", daemon=True)
        last.start()
        kept = all(self._store.journals(name) for name, _ in self._store.flushed.items())
        last.join(CLOSING if kept else None)
        if last.is_alive():
            log.warning("changes of tables stay in the journal: their store took more than %g s", CLOSING)

    def _end(self, flush: bool) -> None:
        if self._thread is not None:
            self._thread.join()
        for name, table in self._store.flushed.items() if flush else ():
            self._try(name, table)
