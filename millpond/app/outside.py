"""Tables that live outside of the journal: what may change together, and how they are read."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.changes import Changes
from millpond.errors import NotSupported
from millpond.tables.base import Backend, Database, Snapshot
from millpond.tables.memory import MemoryTable


def one_database(tables: Iterable[Backend]) -> Database | None:
    """The database that all the tables live in; None if they are of the journal. Raises NotSupported for a mix."""
    found = dict.fromkeys(table.database for table in tables)
    if len(found) > 1:
        places = " and ".join("the journal" if d is None else d.name for d in found)
        raise NotSupported(
            f"one commit cannot change tables of {places}: a crash in between would leave one of them behind",
            hint="change them in transactions of their own, or keep the tables in one place",
        )
    return next(iter(found), None)


def copied(snapshot: Snapshot) -> Snapshot:
    """The rows as they are now, in memory."""
    copy = MemoryTable(snapshot.schema)
    copy.apply(Changes(snapshot.scan(rows=not snapshot.schema.key)))
    return copy.snapshot()
