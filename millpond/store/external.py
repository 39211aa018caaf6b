"""Checks which tables outside the journal can change in one commit, and copies their rows."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.changes import Changes
from millpond.errors import NotSupported
from millpond.tables.base import Backend, Database, Snapshot
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


def copied(snapshot: Snapshot) -> Snapshot:
    """Returns a copy of the current rows, in memory."""
    copy = MemoryTable(snapshot.schema)
    copy.apply(Changes(snapshot.scan(rows=not snapshot.schema.key)))
    return copy.snapshot()
