"""Contains the tables of an app and commits all of their changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast

import pyarrow as pa

from millpond import allowance, faults, steps
from millpond.changes import Changes, Position
from millpond.clock import Clock
from millpond.errors import Conflict, Error, UnknownName
from millpond.journal.blob_rows import Adapt
from millpond.journal.journal import Journal
from millpond.journal.requests import Receipt
from millpond.journal.responses import Answer
from millpond.journal.state import StateDirectory
from millpond.locks import Gate, ReentrantWriteLock
from millpond.sql.catalog import Relation
from millpond.store.change_feed import Feed, Touched, Watcher
from millpond.store.changelogs import Changelogs
from millpond.store.dependents import Dependents, NoDependents, Together
from millpond.store.done_statements import in_database
from millpond.store.external import extent, no_common_commit, one_database, unaltered
from millpond.store.flushed_tables import FlushedTables, restore
from millpond.store.logged_tables import LoggedTables
from millpond.store.snapshot import StoreSnapshot
from millpond.store.visibility import Visibility, interrupt_in
from millpond.tables.base import Backend, Database, Snapshot, Writing
from millpond.tables.cache import behind
from millpond.tables.registry import find_backend
from millpond.types import Schema

log = logging.getLogger("millpond")
T = TypeVar("T")
Durability = Literal["commit", "batch", "none"]


class Store:
    """Contains the tables, and the journal that makes their changes durable.

    One commit runs at a time; ``snapshots`` waits only for the short step in which a commit becomes visible. A commit
    changes tables of the journal, or tables of one database, which then stores the position itself.
    """

    def __init__(self, journal: Journal, state: StateDirectory, clock: Clock):
        self.journal, self._clock, self._state = journal, clock, state
        self._tables: dict[str, Backend] = {}
        self.flushed = FlushedTables()
        self._durability: dict[str, Durability] = {}
        self.options: dict[str, Mapping[str, Any]] = {}  # of declared tables, by their names in lower case
        self.filled: dict[str, str] = {}  # tables in lower case, by the pipelines that fill them
        self.writing = ReentrantWriteLock()  # held for a commit
        self.publishing = threading.Lock()  # held while a commit becomes visible
        self.gate = Gate()  # commits to a database pass it
        self.left: set[str] = set()  # dropped tables that their databases have not removed yet
        self.dependents: Dependents = NoDependents()  # what changes in the same commit as its inputs
        self.feed = Feed()
        self.changelogs = Changelogs(journal, clock)
        self.visibility = Visibility(self._tables, self.feed)
        self.logged = LoggedTables(self._tables, self.visibility, self.feed, self.publishing)

    def create(
        self, relation: Relation, extension: str, values: Mapping[str, object], adapt: Adapt | None = None
    ) -> Backend:
        """Opens the table and restores what the journal contains for it; ``adapt`` is as in ``Journal.restore``."""
        null_keys = bool(values.get("null_keys"))
        backend = find_backend(extension).open(
            relation.name, relation.schema, values, null_keys=null_keys, home=self._state.path
        )
        backend.go_by(self._clock)
        kept = backend.journalled or backend.database is not None
        durability = str(values.get("durability") or "commit") if kept else "none"
        self._durability[relation.name.lower()] = cast(Durability, durability)
        self.journal.time_rows(relation.name, timed=backend.timed)
        restore(backend, relation.name, self.journal, self._state.identity, adapt)
        with self.publishing:
            self._tables[relation.name.lower()] = backend
            self.flushed.put(relation.name.lower(), backend)
        return backend

    def replace(self, name: str, backend: Backend, renamed: str | None = None) -> None:
        """Puts another object in the place of a table, which has its rows; it may have a new name."""
        old, new = name.lower(), (renamed or name).lower()
        with self.publishing:
            del self._tables[old]
            self._tables[new] = backend
            self.flushed.put(new, backend, instead_of=old)
            self._durability[new] = self._durability.pop(old)
            self.options.update({new: self.options.pop(old)} if old in self.options else {})
            self.journal.time_rows(old, timed=False)
            self.journal.time_rows(new, timed=backend.timed)

    def create_hidden(
        self, name: str, schema: Schema, rows: pa.Table | None = None, *, null_keys: bool = False
    ) -> None:
        """Creates a table that belongs to a query: it is filled now, and is not in the journal."""
        backend = find_backend("memory").open(name, schema, {}, null_keys=null_keys)
        if rows is not None:
            backend.apply(Changes(rows))
        self._durability[name.lower()] = "none"
        with self.publishing:
            self._tables[name.lower()] = backend

    def table(self, name: str) -> Backend | None:
        return self._tables.get(name.lower())

    def backend(self, name: str) -> Backend:
        """Returns the table as ``table`` does; raises UnknownName if there is none."""
        found = self.table(name)
        if found is None:
            raise UnknownName(f'there is no table "{name}"')
        return found

    def durability(self, name: str) -> Durability:
        """Returns the durability of the table; "commit" if there is no such table."""
        return self._durability.get(name.lower(), "commit")

    def keeps(self, name: str) -> bool:
        """Returns whether the rows of a table, and the position up to which it was filled, survive a restart."""
        return self.durability(name) != "none"

    def companion_of(self, name: str) -> tuple[str, Mapping[str, Any]]:
        """Returns extension and options for a table that belongs to another one: its database, else the journal."""
        backend = self.table(name)
        if backend is None or backend.database is None:
            return "memory", {"durability": self.durability(name)}
        options = dict(self.options[name.lower()])
        options.pop("table", None)
        return behind(options) if options.get("cache.over") else (str(options["extension"]), options)

    def journals(self, name: str) -> bool:
        """Returns whether changes of the table go to the journal."""
        return self.journal.durable and self.durability(name) != "none"

    def drop(self, name: str) -> None:
        with self.writing:
            self.journal.drop_table(name)
            with self.publishing:
                backend = self._tables.pop(name.lower(), None)
                self.flushed.remove(name.lower())
            self._durability.pop(name.lower(), None)
            if backend is not None:
                self.left.add(name.lower())
                try:
                    backend.remove()
                    self.left.discard(name.lower())
                finally:
                    backend.close()

    def snapshots(
        self, writing: Mapping[Database, Writing] | None = None, *, steady: bool = False
    ) -> StoreSnapshot:
        """Returns a snapshot of all tables. Those of a database in ``writing`` are read in its transaction; with
        ``steady`` a table without stable snapshots is copied when it is first read.
        """
        self.visibility.check_running()
        with self.publishing:
            return StoreSnapshot.of(self._tables, writing or {}, steady=steady)

    def follow(self, tables: Mapping[str, Schema]) -> None:
        """Sets the tables whose changes ``news`` returns."""
        with self.publishing:
            self.feed.follow({name.lower(): schema for name, schema in tables.items()})

    def watch(self, table: str, watcher: Watcher) -> None:
        """Passes each later change of the table to the watcher, while its commit becomes visible."""
        with self.publishing:
            self.feed.watch(table.lower(), watcher)

    def unwatch(self, table: str, watcher: Watcher) -> None:
        with self.publishing:
            self.feed.unwatch(table.lower(), watcher)

    def news(self) -> tuple[StoreSnapshot, dict[str, Touched], int]:
        """Returns a snapshot of all tables, the changes since the last call, and the total number of commits."""
        with self.publishing:
            return StoreSnapshot.of(self._tables), self.feed.take(), self.feed.commits

    def fills(self, pipeline: str, table: str) -> None:
        """Records that the pipeline's position is stored with the table's rows."""
        self.filled[pipeline] = table.lower()

    def position(self, pipeline: str) -> Position | None:
        """Returns the newest position applied for the pipeline."""
        database = self._database_of(pipeline)
        if database is None:
            return self.journal.position(pipeline)
        found = database.position(self._spelled(pipeline))
        return None if found is None else replace(found, pipeline=pipeline)

    def forget(self, pipeline: str) -> None:
        """Deletes the position of a dropped pipeline."""
        database = self._database_of(pipeline)
        if database is not None:
            database.forget(self._spelled(pipeline))
        self.filled.pop(pipeline, None)
        self.journal.forget(pipeline)

    def _database_of(self, pipeline: str) -> Database | None:
        table = self._tables.get(self.filled.get(pipeline, ""))
        return None if table is None else table.database

    def _spelled(self, pipeline: str) -> str:
        """Returns the name of a pipeline with the app's identity: a database stores pipelines of many apps."""
        return f"{self._state.identity}/{pipeline}"

    def commit(
        self,
        changes: Mapping[str, Changes] | None = None,
        position: Position | None = None,
        *,
        others: Sequence[Position] = (),
        sent: Mapping[str, pa.Table] | None = None,
        done: Sequence[str] = (),
        answer: Answer | None = None,
    ) -> bool:
        """Applies everything or nothing; returns False if the position was applied before. ``others`` are positions
        of further pipelines. ``answer`` is stored with sent rows."""
        positions = (*others, *(() if position is None else (position,)))
        given = changes or {}
        tables = {name: self._tables[name.lower()] for name in given}
        database = one_database(tables.values())
        if database is not None:
            if sent:
                raise no_common_commit(database, "a stream")
            return self._write_outside(
                database, lambda _: (unaltered(given, tables, self._tables), None), positions, done
            )[0]
        changes = {name: change for name, change in given.items() if len(change)}
        if not changes:
            # No table changes: commits of several threads may share a sync.
            with allowance.shielded():
                self.visibility.check_running()
                with steps.step("write the journal") as noted:
                    number = self.journal.commit({}, None, sent or {}, done, positions, answer=answer)
                    noted.tell(*extent({}, sent))
                self.visibility.committed()
                self.visibility.sent(sent or ())
            return number is not None
        # What would make ``apply`` fail is found before it is in the journal.
        changes = {name: tables[name].check(change) for name, change in changes.items()}
        self.flushed.wait_for_room(tables, changes, self.writing)
        with self.writing, Together(self.dependents) as together:
            self.visibility.check_running()
            unaltered(changes, tables, self._tables)
            changes |= {n: self._tables[n].check(c) for n, c in together.changes(changes).items()}
            with allowance.shielded():
                for name, change in changes.items():
                    self._tables[name.lower()].admit(change)
                sent = {**(sent or {}), **self.changelogs.sent(changes, self._tables)}
                interrupt, applied = self._commit(changes, positions, sent, done)
                together.settled = applied
        if not applied:
            return False
        self.visibility.committed()
        self.visibility.sent(sent)
        if interrupt is not None:
            raise interrupt
        return True

    def _commit(
        self,
        changes: Mapping[str, Changes],
        positions: Sequence[Position],
        sent: Mapping[str, pa.Table],
        done: Sequence[str],
    ) -> tuple[BaseException | None, bool]:
        """Returns an interrupt that came after it was durable, and whether the position was not applied before."""
        journalled = {n: c for n, c in changes.items() if self.durability(n) != "none"}
        sync = bool(sent) or any(self.durability(n) == "commit" for n in changes)
        committed = (bool(journalled) and self.journal.durable) or bool(positions or sent or done)
        receipt = Receipt()
        try:
            with steps.step("write the journal") as noted:
                self.journal.commit(journalled, None, sent, done, positions, sync=sync, receipt=receipt)
                noted.tell(*extent(journalled, sent))
            if receipt.number is None:
                return None, False
            return self._make_visible(changes, receipt.number, committed=committed), True
        except BaseException as error:
            if receipt.number is None or not committed:
                raise
            # The commit is durable. What remains is done now.
            interrupt = self._make_visible(changes, receipt.number, committed=True)
            return interrupt or interrupt_in(error), True

    def _make_visible(
        self, changes: Mapping[str, Changes], number: int, *, committed: bool
    ) -> BaseException | None:
        with self.publishing:
            interrupt = self.visibility.bring_in(changes, number, committed=committed)
            return self.visibility.notify({name.lower(): c for name, c in changes.items()}) or interrupt

    def check(self, changes: Mapping[str, Changes]) -> None:
        """Raises the error that a commit of the changes would raise."""
        checked = {name: self._tables[name.lower()].check(change) for name, change in changes.items()}
        with self.writing, Together(self.dependents) as together:
            together.changes({name: change for name, change in checked.items() if len(change)})

    def write(
        self,
        find: Callable[[StoreSnapshot], tuple[Mapping[str, Changes], T]],
        position: Position | None = None,
        *,
        sent: Callable[[T], Mapping[str, pa.Table]] | None = None,
        done: Sequence[str] = (),
        into: Iterable[str],
    ) -> T:
        """Commits the changes that ``find`` computes from the newest rows; no other commit comes in between.
        ``into`` are the tables that it may change. ``sent`` makes rows for embedded streams from the result of
        ``find``; they are in the same commit.
        """
        database = one_database(self._tables[name.lower()] for name in into)
        if database is not None:

            def alone(snapshots: StoreSnapshot) -> tuple[Mapping[str, Changes], T]:
                changes, answer = find(snapshots)
                if sent is not None and sent(answer):
                    raise no_common_commit(database, "a stream")
                return changes, answer

            return self._write_outside(database, alone, () if position is None else (position,), done)[1]
        self.flushed.wait_for_room({name: self._tables[name.lower()] for name in into}, {}, self.writing)
        with self.writing:
            changes, answer = find(self.snapshots())
            rows = sent(answer) if sent is not None else {}
            if changes or rows or done or position is not None:
                self.commit(changes, position, sent=rows, done=done)
            return answer

    def _write_outside(
        self,
        database: Database,
        find: Callable[[StoreSnapshot], tuple[Mapping[str, Changes], T]],
        positions: Sequence[Position],
        done: Sequence[str],
    ) -> tuple[bool, T]:
        """Commits to a database: rows, positions and the record of done statements in one transaction of it."""
        marks = [*in_database(done), *positions]
        marks = [replace(mark, pipeline=self._spelled(mark.pipeline)) for mark in marks]

        changed: dict[str, Changes] = {}

        def work(writing: Writing) -> tuple[bool, T]:
            changed.clear()
            changes, answer = find(self.snapshots({database: writing}))
            changing.enter_context(allowance.shielded())
            faults.reach("database: read")
            if not all(moved := [writing.advance(mark) for mark in marks]):
                if any(moved[len(marks) - len(positions) :]):  # rolled back: some have moved, others not
                    raise Conflict("positions of one commit were not committed together")
                return False, answer
            for name, change in changes.items():
                backend = self._tables[name.lower()]
                changed[name.lower()] = fitting = backend.check(change)
                changing.enter_context(backend.changing(fitting))
                writing.apply(backend.behind, fitting)
            faults.reach("database: applied")
            return True, answer

        step = steps.step("commit in the database")
        with self.gate.passing(database), ExitStack() as changing, step as noted:
            applied, answer = database.write(work)
            interrupt = self.visibility.note(changed)
            noted.tell(*extent(changed, None))
        with self.publishing:
            interrupt = self.visibility.notify(self.logged.others(changed)) or interrupt
        try:
            if done:
                self.journal.commit({}, None, {}, done)
        except Exception as error:
            log.warning("a database has committed what the journal could not note as done: %r", error)
        self.visibility.committed()
        if interrupt is not None:
            raise interrupt
        return applied, answer

    def change(self, table: str, find: Callable[[Snapshot], tuple[Changes | None, int]]) -> int:
        """Commits what ``find`` computes from the newest rows of one table, as ``write`` does; returns its count."""

        def found(snapshots: StoreSnapshot) -> tuple[Mapping[str, Changes], int]:
            changes, count = find(snapshots.snapshot(table))
            return ({} if changes is None else {table: changes}), count

        return self.write(found, into=(table,))

    def close(self) -> None:
        used = dict.fromkeys(b.database for b in tuple(self._tables.values()) if b.database is not None)
        for database in used if not self._state.durable else ():
            with suppress(Error):
                database.forget_all(self._spelled(""))
        for backend in tuple(self._tables.values()):
            backend.close()
        self.journal.close()
