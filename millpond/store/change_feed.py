"""Reports which rows of a table have changed: since the last call, or with each commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa

from millpond import faults
from millpond.changes import ROW, Changes
from millpond.tables.base import Snapshot
from millpond.types import Schema

MOST_ROWS = 200_000
"""Changed rows that are recorded one by one; if there are more, the whole table counts as changed."""


class Watcher(Protocol):
    """Receives the commits of a table. Both methods must be short: they are called while a commit becomes visible."""

    def committed(self, change: Changes) -> None:
        """Records that a commit has changed the table."""

    def lost(self, why: str) -> None:
        """Records that a commit has changed the table, but that its changes are not known, and why."""


class Touched:
    """Contains the changes of one table: the keys if it has a key, else the rows that were added and the numbers of
    those that were deleted or replaced.

    ``everything`` says that there were too many, or that they are not known.
    """

    def __init__(self, schema: Schema):
        self._schema = schema
        self._parts: list[pa.Table] = []
        self._numbers: list[pa.ChunkedArray] = []
        self._rows = 0
        self.everything = False
        self._between: tuple[Snapshot, Snapshot, tuple[pa.Table, pa.Table] | None] | None = None
        """The last answer of ``between``: several views may ask for it, and one in several ways."""

    def add(self, changes: Changes) -> None:
        self._rows += len(changes)
        self._between = None
        if self.everything or self._rows > MOST_ROWS:
            self.lose()
            return
        key = list(self._schema.key)
        if key:
            self._parts.append(changes.rows.select(key))
            return
        rows = changes.rows
        if ROW in rows.column_names:
            self._numbers.append(rows[ROW].drop_null())
            if len(self._numbers[-1]):
                return  # what was replaced, and what came with it, is found in the table
            rows = rows.drop_columns(ROW)
        self._parts.append(rows.select(list(self._schema.names)))

    def lose(self) -> None:
        """Records that the changes of a commit are not known."""
        self.everything, self._between = True, None
        self._parts, self._numbers = [], []

    def __len__(self) -> int:
        """Returns how many rows commits have changed."""
        return self._rows

    @property
    def only_added(self) -> bool:
        """Returns whether ``rows`` are all that changed in a table without a key."""
        return not self.everything and not any(map(len, self._numbers))

    def between(self, before: Snapshot, now: Snapshot) -> tuple[pa.Table, pa.Table] | None:
        """Returns the rows that ``before`` had and ``now`` has not, and those that came in their place, net: a row that
        came and went in between is in neither. Rows that did not change may be in both. None if only a comparison of
        all rows finds them.
        """
        if self.everything:
            return None
        if self._between is None or self._between[0] is not before or self._between[1] is not now:
            self._between = before, now, self._compared(before, now)
        return self._between[2]

    def _compared(self, before: Snapshot, now: Snapshot) -> tuple[pa.Table, pa.Table] | None:
        key = list(self._schema.key)
        if key:
            keys = self.rows()
            return before.get(key, keys, nulls=True), now.get(key, keys, nulls=True)
        numbers = {n for part in self._numbers for n in part.to_pylist()}
        return now.changed_since(before, sorted(numbers))

    def rows(self) -> pa.Table:
        schema = self._schema.arrow()
        key = list(self._schema.key)
        wanted = pa.schema([schema.field(k) for k in key]) if key else schema
        return (
            pa.concat_tables([p.cast(wanted) for p in self._parts]) if self._parts else wanted.empty_table()
        )


class Feed:
    """Collects what commits change in the followed tables."""

    def __init__(self) -> None:
        self._followed: dict[str, Schema] = {}
        self._touched: dict[str, Touched] = {}
        self._watchers: dict[str, tuple[Watcher, ...]] = {}
        self.commits = 0
        """The number of commits so far that changed a followed table."""

    def follow(self, tables: dict[str, Schema]) -> None:
        """Follows these tables from now on, by name in lower case, and no others."""
        self._followed = tables
        self._touched = {n: t for n, t in self._touched.items() if n in tables}

    def follows(self, table: str) -> bool:
        return table in self._followed or table in self._watchers

    def watch(self, table: str, watcher: Watcher) -> None:
        """Passes each later change of the table to the watcher, in the order of the commits."""
        self._watchers[table] = (*self._watchers.get(table, ()), watcher)

    def unwatch(self, table: str, watcher: Watcher) -> None:
        left = tuple(w for w in self._watchers.pop(table, ()) if w != watcher)
        if left:
            self._watchers[table] = left

    def add(self, changes: dict[str, Changes]) -> None:
        """Adds the changes of one commit, by table name in lower case."""
        found = {n: c for n, c in changes.items() if n in self._followed}
        for name, change in found.items():
            self._touched.setdefault(name, Touched(self._followed[name])).add(change)
        self.commits += bool(found)
        faults.reach("commit: fed")
        for name, change in changes.items() if self._watchers else ():
            for watcher in self._watchers.get(name, ()):
                watcher.committed(change)

    def lose(self, tables: Iterable[str], why: str) -> None:
        """Records that one commit changed these tables, and why it is not known which rows."""
        names = list(tables)
        for name in names:
            if name in self._followed:
                self._touched.setdefault(name, Touched(self._followed[name])).lose()
        self.commits += any(name in self._followed for name in names)
        for name in names:
            for watcher in self._watchers.get(name, ()):
                watcher.lost(why)

    def take(self) -> dict[str, Touched]:
        """Returns what has changed since the last call."""
        touched, self._touched = self._touched, {}
        return touched
