"""Checks which tables outside the journal can change in one commit, and copies their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from millpond.changes import Changes
from millpond.errors import Conflict, NotSupported
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


def extent(changes: Mapping[str, Changes], sent: Mapping[str, pa.Table] | None) -> tuple[int, int]:
    """Returns how many rows and bytes a commit has."""
    tables = [*(change.rows for change in changes.values()), *(sent or {}).values()]
    return sum(t.num_rows for t in tables), sum(t.nbytes for t in tables)
