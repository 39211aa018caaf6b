"""Commits batches that executors have written to the base of a table: the rows are in the base, and the position in the
journal.
"""

from __future__ import annotations

import pyarrow as pa

from millpond import allowance, faults, steps
from millpond.changes import Position
from millpond.connectors.divided_table import DividedTable
from millpond.store.batch_marks import BatchMarks
from millpond.store.store import Store


class DividedCommits:
    """Commits such batches of an app."""

    def __init__(self, store: Store, state: str):
        self._store = store
        self._state = state

    def table(self, name: str) -> DividedTable | None:
        """Returns a table that may get such batches now: nobody follows its changes row by row."""
        store, table = self._store, self._store.table(name)
        if not isinstance(table, DividedTable) or not store.journals(name):
            return None
        low = name.lower()
        followed = store.feed.follows(low) or store.dependents.reads(low) or store.changelogs.captures(low)
        return None if followed else table

    def commit(self, name: str, table: DividedTable, written: pa.Table, position: Position) -> int:
        """Commits what tasks have written, and the position, unless that was done before; returns the rows."""
        store, rows = self._store, int(sum(written["rows"].to_pylist()))
        # No flush runs meanwhile: who waits for one would hold up other commits.
        with table.undisturbed(), store.writing, allowance.shielded():
            store.visibility.check_running()
            known = store.position(position.pipeline)
            if known is None or not known.covers(position):
                if rows:
                    self._publish(name, table, written, position)
                else:
                    store.journal.commit({}, position)
        store.visibility.committed()
        return rows

    def _publish(self, name: str, table: DividedTable, written: pa.Table, position: Position) -> None:
        marks = BatchMarks(table, self._store.journal, self._state)
        number = marks.intend(position)
        with steps.step(f"add to table {name}") as noted:
            noted.tell(sum(written["rows"].to_pylist()), sum(written["bytes"].to_pylist()))
            table.publish(written, self._state, number, [position])
        faults.reach("executors: in the base")
        marks.finish(number, position)
        with self._store.publishing:
            # Who has begun to follow the table meanwhile reads it anew.
            self._store.feed.lose([name.lower()], "executors have written rows")

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
