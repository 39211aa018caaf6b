"""Commits batches that executors have written to the base of a table: the rows are in the base, and the position in the
journal.
"""

from __future__ import annotations

from contextlib import suppress

from millpond import allowance, faults, steps
from millpond.changes import Position
from millpond.connectors.divided_table import DividedTable, Merging, Written
from millpond.store.batch_marks import BatchMarks
from millpond.store.flusher import Flusher
from millpond.store.store import Store


class DividedCommits:
    """Commits such batches of an app."""

    def __init__(self, store: Store, state: str, flusher: Flusher):
        self._store = store
        self._state = state
        self._flusher = flusher

    def table(self, name: str) -> DividedTable | None:
        """Returns a table that may get such batches now: nobody follows its changes row by row."""
        store, table = self._store, self._store.table(name)
        if not isinstance(table, DividedTable) or not store.journals(name):
            return None
        low = name.lower()
        followed = store.feed.follows(low) or store.dependents.reads(low) or store.changelogs.captures(low)
        return None if followed else table

    def commit(self, name: str, table: DividedTable, written: Written, position: Position) -> int | None:
        """Commits what tasks have written, and the position, unless that was done before; returns the rows. None if
        the table may not get them any more, or they were merged with a version that does not have all changes.
        """
        store = self._store
        # No flush runs meanwhile: who waits for one would hold up other commits.
        with table.undisturbed(), store.writing, allowance.shielded():
            store.visibility.check_running()
            changed = written.version is not None and table.has_changed(written.version)
            if changed or self.table(name) is not table:
                return None
            known = store.position(position.pipeline)
            if known is None or not known.covers(position):
                if written.rows:
                    self._publish(name, table, written, position)
                else:
                    store.journal.commit({}, position)
        store.visibility.committed()
        self._flusher.look_after(name)
        return written.rows

    def _publish(self, name: str, table: DividedTable, written: Written, position: Position) -> None:
        marks = BatchMarks(table, self._store.journal, self._state)
        number = marks.intend(position)
        with steps.step(f"add to table {name}") as noted:
            noted.tell(written.rows, written.bytes)
            try:
                table.publish(written, self._state, number, [position])
            except Exception:
                with suppress(Exception):
                    marks.settle()  # the base may have it, and the answer was lost
                raise
        faults.reach("executors: in the base")
        marks.finish(number, position)
        with self._store.publishing:
            # Who has begun to follow the table meanwhile reads it anew.
            self._store.feed.lose([name.lower()], "executors have written rows")

    def merging(self, name: str, table: DividedTable, *, local: bool) -> Merging | None:
        """Returns what tasks merge a batch with, after a flush of the changes before it."""
        if table.merging(local=local) is None:
            return None
        if table.pending.rows:
            self._flusher.flush(name)
        return table.merging(local=local)

    def settle(self, name: str) -> None:
        """Commits the position of a batch of which only the base knows whether it was committed."""
        table = self._store.table(name)
        if isinstance(table, DividedTable) and self._store.journals(name):
            marks = BatchMarks(table, self._store.journal, self._state)
            if marks.open:
                with table.undisturbed(), self._store.writing:
                    marks.settle()

    def leave(self, name: str, pipeline: str) -> None:
        """Forgets what was intended for a pipeline that is dropped."""
        table = self._store.table(name)
        if isinstance(table, DividedTable):
            with self._store.writing:
                BatchMarks(table, self._store.journal, self._state).leave(pipeline)
