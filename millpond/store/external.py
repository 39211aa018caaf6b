"""Checks which tables outside the journal can change in one commit, copies their rows, and restores tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from millpond.changes import Changes
from millpond.errors import Conflict, NotSupported, StateForeign
from millpond.journal.blob_rows import Adapt
from millpond.journal.journal import Journal
from millpond.locks import OwnTurns
from millpond.tables.base import Backend, Database, Snapshot
from millpond.tables.flushed import FlushedTable
from millpond.tables.memory import MemoryTable


def one_database(tables: Iterable[Backend]) -> Database | None:
    """Returns the database of all the tables; None if they are in the journal. Raises NotSupported for a mix."""
    found = dict.fromkeys(table.database for table in tables)
    if len(found) > 1:
        first, second = list(found)[:2]
        known = first or second
        assert known is not None
        other = second if known is first else first
        raise no_common_commit(known, "tables of the journal" if other is None else f"tables of {other.name}")
    return next(iter(found), None)


def no_common_commit(database: Database, other: str) -> NotSupported:
    return NotSupported(
        f"one commit cannot change tables of {database.name} and {other}: a crash in between would leave one behind",
        hint="change them in transactions of their own, or store all in one database, or all in memory",
    )


def unaltered(
    changes: Mapping[str, Changes], made_for: Mapping[str, Backend], now: Mapping[str, Backend]
) -> Mapping[str, Changes]:
    """Returns the changes. Raises Conflict if one of their tables has got other columns since they were made."""
    for name in changes:
        if now.get(name.lower()) is not made_for[name]:
            raise Conflict(
                f'table "{name}" was altered while rows for it were on their way: nothing was written',
                hint="try again",
            )
    return changes


def copied(snapshot: Snapshot) -> Snapshot:
    """Returns a copy of the current rows, in memory."""
    copy = MemoryTable(snapshot.schema)
    copy.apply(Changes(snapshot.scan(rows=not snapshot.schema.key)))
    return copy.snapshot()


def wait_for_room(tables: Mapping[str, Backend], changes: Mapping[str, Changes], writing: OwnTurns) -> None:
    """Waits until the tables with a base can take the changes, unless this thread holds up other commits."""
    for name, table in tables.items():
        if isinstance(table, FlushedTable) and not writing.mine:
            table.wait_for_room(changes[name].rows.nbytes if name in changes else 0)


def extent(changes: Mapping[str, Changes], sent: Mapping[str, pa.Table] | None) -> tuple[int, int]:
    """Returns how many rows and bytes a commit has."""
    tables = [*(change.rows for change in changes.values()), *(sent or {}).values()]
    return sum(t.num_rows for t in tables), sum(t.nbytes for t in tables)


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
