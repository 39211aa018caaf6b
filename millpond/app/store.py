"""The tables of an app and the one way in which they change: a commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar, cast

import pyarrow as pa

from millpond.app.feed import Feed, Touched
from millpond.changes import ROW, Changes, Position
from millpond.journal.journal import Journal
from millpond.sql.catalog import Relation
from millpond.tables._single import NOTHING, Edit
from millpond.tables._turns import OwnTurns
from millpond.tables.base import Backend, Snapshot, find_backend
from millpond.tables.memory import MemoryTable
from millpond.types import Schema

T = TypeVar("T")
Durability = Literal["commit", "batch", "none"]

COMPACT_AFTER = 1_000
"""Changes of a table after which a start replaces them by one snapshot."""


class Moment:
    """All tables as of one commit."""

    def __init__(self, snapshots: Mapping[str, Snapshot], versions: Mapping[str, int]):
        self._snapshots = snapshots
        self._versions = versions

    def snapshot(self, table: str) -> Snapshot:
        return self._snapshots[table.lower()]

    def version(self, table: str) -> int:
        return self._versions[table.lower()]


class Store:
    """Tables, and the journal that makes their changes durable.

    One commit at a time; ``moment`` waits only for the short step in which a commit becomes visible.
    """

    def __init__(self, journal: Journal):
        self.journal = journal
        self._tables: dict[str, Backend] = {}
        self._durability: dict[str, Durability] = {}
        self._writing = OwnTurns()
        self._publishing = threading.Lock()
        self.on_commit: Callable[[], None] = lambda: None
        self.feed = Feed()

    def create(self, relation: Relation, extension: str, values: Mapping[str, object]) -> Backend:
        """Opens the table and puts back what the journal holds of it."""
        null_keys = bool(values.get("null_keys"))
        backend = find_backend(extension).open(relation.name, relation.schema, values, null_keys=null_keys)
        self._durability[relation.name.lower()] = cast(Durability, values.get("durability") or "commit")
        for changes in self.journal.restore(relation.name):
            backend.apply(changes)
        if self.journal.pending(relation.name) > COMPACT_AFTER:
            self._compact(relation.name, backend)
        with self._publishing:
            self._tables[relation.name.lower()] = backend
        return backend

    def _compact(self, name: str, backend: Backend) -> None:
        """Replaces what the journal holds of a table by its rows. One without a key keeps their numbers; if the
        last ones are of rows that are gone, a delete of the last says that they are taken."""
        if backend.next_row is None:
            self.journal.compact(name, backend.scan())
            return
        rows = backend.scan(rows=True)
        self.journal.compact(name, rows)
        last = backend.next_row - 1
        if last >= 0 and (not rows.num_rows or rows.column(ROW)[-1].as_py() < last):
            gone = pa.table({ROW: pa.array([last], pa.int64())})
            self.journal.commit({name: backend.check(Changes(gone, pa.array([True])))})

    def create_hidden(
        self, name: str, schema: Schema, rows: pa.Table | None = None, *, null_keys: bool = False
    ) -> None:
        """A table that belongs to a query: filled now, not kept in the journal."""
        backend = find_backend("memory").open(name, schema, {}, null_keys=null_keys)
        if rows is not None:
            backend.apply(Changes(rows))
        self._durability[name.lower()] = "none"
        with self._publishing:
            self._tables[name.lower()] = backend

    def table(self, name: str) -> Backend | None:
        return self._tables.get(name.lower())

    def durability(self, name: str) -> Durability:
        """What becomes of the table's commits; "commit" for a table that is not there."""
        return self._durability.get(name.lower(), "commit")

    def drop(self, name: str) -> None:
        with self._writing:
            self.journal.drop_table(name)
            with self._publishing:
                backend = self._tables.pop(name.lower(), None)
            self._durability.pop(name.lower(), None)
            if backend is not None:
                backend.close()

    def empty(self, name: str, relation: Relation, extension: str, values: Mapping[str, object]) -> None:
        """Takes all rows out of a table that will be loaded again."""
        self.drop(name)
        self.create(relation, extension, values)

    def moment(self) -> Moment:
        """All tables as of now."""
        with self._publishing:
            return self._moment()

    def _moment(self) -> Moment:
        return Moment(
            {n: t.snapshot() for n, t in self._tables.items()},
            {n: t.version for n, t in self._tables.items()},
        )

    def follow(self, tables: Mapping[str, Schema]) -> None:
        """Names the tables whose changes ``news`` tells."""
        with self._publishing:
            self.feed.follow({name.lower(): schema for name, schema in tables.items()})

    def news(self) -> tuple[Moment, dict[str, Touched], int]:
        """All tables as of now, what has changed since the last time, and how many commits that are in all."""
        with self._publishing:
            return self._moment(), self.feed.take(), self.feed.commits

    def commit(
        self,
        changes: Mapping[str, Changes] | None = None,
        position: Position | None = None,
        *,
        sent: Mapping[str, pa.Table] | None = None,
        done: Sequence[str] = (),
    ) -> bool:
        """Applies everything or nothing; False when the position was applied before."""
        changes = changes or {}
        if not changes:
            # Nothing of a table: commits of many threads may share a sync.
            applied = self.journal.commit({}, position, sent or {}, done) is not None
            self.on_commit()
            return applied
        # What would make ``apply`` fail is found before the journal holds it.
        changes = {name: self._tables[name.lower()].check(change) for name, change in changes.items()}
        with self._writing:
            journalled = {n: c for n, c in changes.items() if self.durability(n) != "none"}
            sync = bool(sent) or any(self.durability(n) == "commit" for n in changes)
            number = self.journal.commit(journalled, position, sent or {}, done, sync=sync)
            if number is None:
                return False
            with self._publishing:
                for name, change in changes.items():
                    self._tables[name.lower()].apply(change, commit=number)
                self.feed.add({name.lower(): change for name, change in changes.items()})
        self.on_commit()
        return True

    def write(
        self,
        find: Callable[[Moment], tuple[Mapping[str, Changes], T]],
        position: Position | None = None,
        *,
        sent: Callable[[T], Mapping[str, pa.Table]] | None = None,
        done: Sequence[str] = (),
    ) -> T:
        """Commits the changes that ``find`` makes of the newest rows; no other commit comes in between.

        ``sent`` makes rows for embedded streams of what ``find`` answers; they are in the same commit.
        """
        with self._writing:
            changes, answer = find(self.moment())
            rows = sent(answer) if sent is not None else {}
            if changes or rows or done or position is not None:
                self.commit(changes, position, sent=rows, done=done)
            return answer

    def edit(self, table: str, make: Callable[[MemoryTable], Edit | None]) -> int | None:
        """Commits an edit of one row of the newest rows and answers how many rows it touches; None if the table, or
        what is asked, needs the long way."""
        name = table.lower()
        with self._writing:
            backend = self._tables.get(name)
            if not isinstance(backend, MemoryTable):
                return None
            edit = make(backend)
            if edit is None or edit is NOTHING:
                return None if edit is None else 0
            durability = self._durability[name]
            journalled = self.journal.durable and durability != "none"
            changes = {name: backend.edit_changes(edit)} if journalled or self.feed.follows(name) else {}
            if journalled:
                number = self.journal.commit(changes, sync=durability == "commit")
                assert number is not None
            else:
                number = self.journal.number()
            with self._publishing:
                backend.apply_edit(edit, number)
                self.feed.add(changes)
        self.on_commit()
        return 1

    def change(self, table: str, find: Callable[[Snapshot], tuple[Changes | None, int]]) -> int:
        """Commits what ``find`` makes of the newest rows of one table, as ``write`` does; answers its count."""

        def found(moment: Moment) -> tuple[Mapping[str, Changes], int]:
            changes, count = find(moment.snapshot(table))
            return ({} if changes is None else {table: changes}), count

        return self.write(found)

    def close(self) -> None:
        for backend in self._tables.values():
            backend.close()
        self.journal.close()
