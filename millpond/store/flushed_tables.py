"""Knows the tables that have a base outside, restores tables, and lets commits wait for a flush."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from millpond.changes import Changes
from millpond.connectors.divided_table import DividedTable
from millpond.errors import StateForeign
from millpond.journal.blob_rows import Adapt
from millpond.journal.journal import Journal
from millpond.locks import ReentrantWriteLock
from millpond.store.batch_marks import BatchMarks
from millpond.tables.base import Backend
from millpond.tables.flushed_table import FlushedTable


class FlushedTables:
    """Contains the tables with a base, by name. Every commit looks here, and most apps have none."""

    def __init__(self) -> None:
        self._tables: dict[str, FlushedTable] = {}

    def __bool__(self) -> bool:
        return bool(self._tables)

    def items(self) -> list[tuple[str, FlushedTable]]:
        return list(self._tables.items())

    def put(self, name: str, table: Backend, *, instead_of: str = "") -> None:
        """Adds a table if it has a base."""
        self.remove(instead_of)
        if isinstance(table, FlushedTable):
            self._tables[name] = table

    def remove(self, name: str) -> None:
        self._tables.pop(name, None)

    def wait_for_room(
        self, tables: Mapping[str, Backend], changes: Mapping[str, Changes], writing: ReentrantWriteLock
    ) -> None:
        """Waits until the tables can take the changes, unless this thread holds up other commits."""
        if not self._tables or writing.mine:
            return
        for name, table in tables.items():
            if isinstance(table, FlushedTable):
                table.wait_for_room(changes[name].rows.nbytes if name in changes else 0)


def restore(table: Backend, name: str, journal: Journal, state: str, adapt: Adapt | None) -> None:
    """Applies what the journal has of a table that is in no database: to one with a base, what that does not have.
    Raises StateForeign if the base has later commits of this state directory than the journal, or not all that the
    journal has left to it.
    """
    if table.database is not None:
        return
    after, newest = -1, journal.last_commit()
    if isinstance(table, FlushedTable):
        found, left = table.flushed(state), journal.compacted(name)
        after = -1 if found is None else found
        if left is not None and after < left:
            table.close()
            raise StateForeign(
                f"{table.what} has lost commits of this state directory: it is older than the directory",
                hint="bring it back as it was, or begin with a new state directory",
            )
        if after > newest:
            table.close()
            raise StateForeign(
                f"{table.what} has commit {after} of this state directory, which ends with commit {newest}: the "
                "directory is older than the table",
                hint="use the newest state directory; a new one goes on from the rows of the table",
            )
    last = after

    def noted(number: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal last
        last = max(last, number)
        return rows if adapt is None else adapt(number, rows)

    for changes in journal.restore(name, noted if isinstance(table, FlushedTable) else adapt, after=after):
        table.restore(changes)
    if isinstance(table, FlushedTable) and last > after:
        table.restored(last)
    if isinstance(table, DividedTable) and not journal.read_only:
        marks = BatchMarks(table, journal, state)
        try:
            marks.check()
            marks.settle()
        except BaseException:
            table.close()
            raise
