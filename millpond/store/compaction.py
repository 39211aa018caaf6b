"""Compacts the journal while an app runs, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from millpond import faults
from millpond.changes import ROW
from millpond.errors import Closed, Error
from millpond.store.flusher import Flusher
from millpond.store.store import Store
from millpond.tables.flushed_table import FlushedTable

log = logging.getLogger("millpond")


class Compactor:
    """Replaces the changes of a table by its rows when the changes are larger; those of tables with a base are flushed.

    Commits wait only while it takes a snapshot, which is cheap, and for the small transaction that puts the new rows
    into effect.
    """

    def __init__(self, store: Store, state: str):
        self._store = store
        self.flusher = Flusher(store, state)
        self._due = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Starts compaction once all tables are restored."""
        self._store.journal.when_due(self._wake)
        self.flusher.begin()

    def _wake(self) -> None:
        """Wakes the thread, which starts with the first call."""
        self._due.set()
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._run, name="millpond-compaction", daemon=True)
            self._thread.start()

    def end(self, *, flush: bool = True) -> None:
        """Waits for a running compaction, and stops the thread. Flushes tables that have a base, if ``flush``."""
        self._ended = True
        self._due.set()
        if self._thread is not None:
            self._thread.join()
        self.flusher.end(flush=flush)

    def _run(self) -> None:
        while self._due.wait() and not self._ended:
            self._due.clear()
            for name in self._store.journal.take_due():
                if self._ended:
                    return
                try:
                    self.compact(name)
                except Closed:
                    return
                except Exception as error:
                    why = error.message if isinstance(error, Error) else repr(error)
                    log.warning('the journal of table "%s" stays as large as it is: %s', name, why)

    def compact(self, name: str) -> None:
        """Replaces what the journal contains for the table by its rows."""
        store, journal = self._store, self._store.journal
        with store.writing:
            backend = store.table(name)
            if backend is None or isinstance(backend, FlushedTable) or not store.journals(name):
                return
            commit, snapshot, next_row = journal.boundary(), backend.snapshot(), backend.next_row
        highest = -1

        def parts() -> Iterator[pa.Table]:
            nonlocal highest
            for part in snapshot.parts(rows=next_row is not None):
                if next_row is not None and part.num_rows:
                    highest = max(highest, pc.max(part[ROW]).as_py())
                yield part

        rows = journal.snapshot(parts())
        # If the last rows were deleted, the journal must record that their row numbers are taken.
        gone = next_row - 1 if next_row is not None and next_row - 1 > highest else None
        faults.reach("compaction: scanned")
        with store.writing:
            if store.table(name) is not backend:
                journal.discard(rows)
                return
            journal.compact(name, rows, commit=commit, last_row=gone)
        faults.reach("compaction: swapped")
        more = True
        while more and not self._ended:
            more = journal.sweep(name)
            faults.reach("compaction: swept")
        while not self._ended and journal.shrink():
            pass
