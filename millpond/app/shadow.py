"""Builds a table beside the one that it will replace, and swaps both in one commit.

What is built is an ordinary table with its own statement, under a name that only the app can give: ``t$next`` beside
``t``. The old table is served, joined and filled meanwhile. When the new one has everything that the old one has, both
statements stop, and one commit of the journal gives its rows, its state and its position the name of the old one. An
entry of the journal tells a start after a kill what was being built: that is removed, and the old table goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from millpond import allowance, faults
from millpond.app.column_users import RenewedView, User
from millpond.app.declarations import Declarations
from millpond.app.launch import Launcher
from millpond.app.lifetime import Lifetime
from millpond.app.published import Publications
from millpond.app.saved import SavedStatements
from millpond.app.schema_drift import SchemaDrift
from millpond.app.stopping import durable, stopped
from millpond.app.table_handles import TableHandles
from millpond.changes import Offset
from millpond.engine.courtesy import Courtesy
from millpond.errors import Conflict, Error, InUse, TimedOut
from millpond.journal.catalog import Entry
from millpond.journal.journal import Journal
from millpond.journal.revision import Revision
from millpond.loading.file_origins import origins_table
from millpond.loading.followers import Followers
from millpond.loading.load import TableLoads
from millpond.loading.loader import Loader
from millpond.loading.progress import Load
from millpond.plan.plans import LoadPlan, PipelinePlan, Target, ViewPlan
from millpond.plan.statement_plan import plan_statement
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checked import CheckedTableAs
from millpond.sql.errortables import error_table
from millpond.sql.parse import parse
from millpond.sql.printer import print_name
from millpond.sql.reserved_names import SHADOW, difference_of, is_part, shadow_of, without_shadow
from millpond.store.catalog import SavedQuery, SavedRelation
from millpond.store.query_states import QUERY_STATE
from millpond.store.store import Store
from millpond.store.undo import Undo, safely
from millpond.streaming.runner import Runner
from millpond.tables.base import Backend
from millpond.views.materialized_view import Views

if TYPE_CHECKING:
    from millpond.engine.pipeline import Pipeline

BUILDING = "building"
"""The kind of the journal entries for tables that are being built."""
_PAUSE, _LAST = 0.02, 60.0
"""Seconds between two looks whether a table has caught up; and for the last rows, while the old statement stands."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """Represents a table that is being built, and the table that it will replace."""

    relation: Relation
    before: Relation

    @property
    def query(self) -> str:
        """Returns the name of the statement that fills it."""
        return f"table:{self.relation.name}"

    @property
    def replaced(self) -> str:
        """Returns the name of the statement that fills the old table."""
        return f"table:{self.before.name}"


@dataclass(frozen=True, eq=False, repr=False)
class Shadows:
    """Builds tables and swaps them: ``begin``, then ``catch_up``, then ``swap``. Until the commit of ``swap`` the undo
    of the statement removes all that was built. ``go_on`` starts a saved statement again.
    """

    lock: threading.RLock
    lifetime: Lifetime
    catalog: Catalog
    store: Store
    saved: SavedStatements
    declarations: Declarations
    launcher: Launcher
    loader: Loader
    table_loads: TableLoads
    loads: dict[str, Load]
    followers: Followers
    views: Views
    runner: Runner
    drift: SchemaDrift
    tables: TableHandles
    publications: Publications
    go_on: Callable[[SavedRelation | SavedQuery], None]

    def begin(self, checked: CheckedTableAs, before: Relation, undo: Undo) -> Shadow:
        """Begins to build the table of a statement beside ``before``. A load and a view over tables are complete when
        it returns; a statement over a stream has begun to read.
        """
        relation = replace(checked.relation, name=shadow_of(checked.relation.name))
        if relation.name in self.catalog:
            kept = self.saved.relation(f"table:{relation.name}") is not None
            swap = f"ALTER TABLE {print_name(before.name)} SWAP WITH {print_name(relation.name)}"
            raise InUse(
                f'table "{before.name}" has "{relation.name}" beside it'
                if kept
                else f'table "{before.name}" is being replaced by another statement',
                hint=f"{swap}, or DROP TABLE {print_name(relation.name)}, first"
                if kept
                else "wait until that is done, or end it: the table stays as it is then",
                place=checked.statement.place,
            )
        shadow, built = Shadow(relation, before), replace(checked, relation=relation)
        journal = self.store.journal
        undo.on_failure(partial(journal.drop_entry, BUILDING, relation.name))
        journal.put_entry(Entry(relation.name, BUILDING, checked.statement.text))
        faults.reach("replace: begun")
        self.declarations.declare(built, undo)
        plan = plan_statement(built, shadow.query, Target("table", relation.name))
        match plan:
            case PipelinePlan():
                self.launcher.start(plan, built, undo, None)
                self.runner.starter.begin()
            case ViewPlan():
                self.views.add(plan, relation.schema)
            case LoadPlan():
                self._load(plan)
        return shadow

    def _load(self, plan: LoadPlan) -> None:
        if not self.table_loads.is_from_outside(plan):
            self.table_loads.load(plan)
            return
        failed: list[Error] = []
        self.loader.begin(plan, failed.append)
        self.loader.wait([plan.target.name])
        if failed:
            raise failed[0]

    def catch_up(self, shadow: Shadow) -> None:
        """Waits until the table has what its streams have had when this was called. Others may run statements
        meanwhile. Raises the error of what builds it.
        """
        waiting = threading.Condition(self.lock)
        ends: dict[str, Offset] = {}
        with waiting:
            while not self._has_reached(shadow, ends):
                self.runner.starter.start_waiting()
                self.runner.pull(shadow.query)
                if self._has_reached(shadow, ends):
                    break
                allowance.check()
                waiting.wait(_PAUSE)
        self._check_same(shadow)
        faults.reach("replace: caught up")

    def _has_reached(self, shadow: Shadow, ends: dict[str, Offset]) -> bool:
        self.lifetime.check_open()
        if self.catalog.find(shadow.relation.name) is None:
            raise Conflict(
                f'table "{shadow.before.name}" stays as it is: what was built beside it was dropped'
            )
        if (failed := self.runner.starter.failed_starts.get(shadow.query)) is not None:
            raise failed.error
        done = not any(w.plan.query == shadow.query for w in self.runner.starter)
        for pipeline in [p for p in self.runner if p.plan.query == shadow.query]:
            pipeline.check()
            if pipeline.courtesy is None:
                pipeline.courtesy = Courtesy(partial(self._batches_of_others, shadow))
            if pipeline.name not in ends:
                ends[pipeline.name] = pipeline.source.latest(None)
            done = done and pipeline.reached(ends[pipeline.name])
        return done

    def _batches_of_others(self, shadow: Shadow) -> int:
        return sum(p.batches for p in self.runner if p.plan.query != shadow.query)

    def _check_same(self, shadow: Shadow) -> None:
        if self.catalog.find(shadow.before.name) is not shadow.before:
            raise Conflict(
                f'table "{shadow.before.name}" was changed while the new one was built: it stays as it is',
                hint="run the statement again",
            )

    def _check_no_rows(self, shadow: Shadow) -> None:
        """Raises an error if the old table has no query, and has got rows. Nobody can write to it now."""
        entry = self.saved.relation(shadow.replaced)
        declared = None if entry is None else parse(entry.text).require()[0]
        if getattr(declared, "query", None) is None and len(self.store.backend(shadow.before.name)):
            raise Conflict(f'table "{shadow.before.name}" stays as it is: it has got rows meanwhile')

    def swap(
        self, shadow: Shadow, entry: SavedRelation, users: Sequence[User], renewed: Sequence[RenewedView]
    ) -> None:
        """Puts the table in the place of the old one. ``entry`` is its journal entry, with the name of the old one;
        ``users`` are the statements that read it: those over streams continue from their positions. ``renewed`` are
        named views that get other columns.
        """
        old = self._tables_of(shadow.replaced, shadow.before.name)
        own = self._tables_of(shadow.query, shadow.relation.name)
        parts = {p: without_shadow(p) for p, q in self.runner.parts.items() if q == shadow.query}
        gone = [p for p, query in self.runner.parts.items() if query == shadow.replaced]
        with self._stopped(shadow, [u for u in users if u.pipeline]):
            self._end(shadow.query, shadow.relation.name)
            with self.views.between_rounds(), self.store.writing:
                self._check_no_rows(shadow)
                self._journal(shadow, entry, old, own, {*gone, shadow.replaced}, renewed)
                with durable(self.store):
                    faults.reach("replace: journalled")
                    self._show(shadow, entry, old, own, parts, renewed)
                # Those that change in the same commit do so before the next one.
                exchanged = dict.fromkeys((shadow.before.name, *old, *map(without_shadow, own)))
                for live in dict.fromkeys(v for name in exchanged for v in self.views.users(name)):
                    self.drift.follow_table(live)
        self.store.visibility.committed()

    def _tables_of(self, query: str, table: str) -> list[str]:
        """Returns the tables of a statement that exist: its target, and those that it keeps beside it."""
        names = [table, error_table(query), origins_table(query)]
        names += [name for s in self.runner.statements(query) for name in s.owned]
        names += [n for n in self.store.journal.table_names() if _belongs(n, query)]
        found = {name.lower(): name for name in reversed(names)}
        return [name for key, name in found.items() if self.store.table(key) is not None]

    @contextmanager
    def _stopped(self, shadow: Shadow, readers: Sequence[User]) -> Iterator[None]:
        """Runs the code inside while the statements of both tables and those that read them are stopped, and the new
        one has all rows that the old one had. If it fails, the old one goes on.
        """
        with stopped(readers, self.runner, self.go_on) as after:
            before = [p for p in self.runner if p.plan.query == shadow.replaced]
            after.callback(self._resume, shadow.before.name)
            self._end(shadow.replaced, shadow.before.name)
            self._reach(shadow, before)
            yield

    def _resume(self, table: str) -> None:
        entry = self.saved.relation(f"table:{table}")
        if entry is not None:
            self.go_on(entry)

    def _end(self, query: str, table: str) -> None:
        """Stops what fills a table."""
        self.runner.aside.put(query, self.runner)
        self.followers.remove(table.lower())
        self.views.remove(query)

    def _reach(self, shadow: Shadow, before: Sequence[Pipeline]) -> None:
        """Waits until the new table has the last rows that the old one got."""
        deadline = time.monotonic() + _LAST
        ends = {p.plan.batch.stream.relation.name: p.offset for p in before}
        for pipeline in [p for p in self.runner if p.plan.query == shadow.query]:
            end = ends.get(pipeline.plan.batch.stream.relation.name)
            pipeline.courtesy = None
            while end is not None and not pipeline.reached(end):
                self.runner.pull(shadow.query)
                pipeline.check()
                if time.monotonic() > deadline:
                    raise TimedOut(
                        f'table "{shadow.before.name}" stays as it is: the new one is behind',
                        hint="run the statement again when fewer rows come",
                    )
                time.sleep(_PAUSE / 10)

    def _journal(
        self,
        shadow: Shadow,
        entry: SavedRelation,
        old: Sequence[str],
        own: Sequence[str],
        gone: set[str],
        renewed: Sequence[RenewedView],
    ) -> None:
        journal = self.store.journal
        views = [replace(view.entry, schema=view.relation.schema).entry() for view in renewed]
        positions = [p for p in journal.positions() if is_part(p, shadow.query)]
        revision = Revision(
            [entry.entry(), *views],
            drop=[(BUILDING, shadow.relation.name), *((e.kind, e.name) for e in self._kept(shadow))],
            tables=[name for name in old if journal.has_table(name)],
            positions=[p for p in gone if journal.position(p) is not None],
            renames=[(name, without_shadow(name)) for name in own if journal.has_table(name)],
            moved=[(p, without_shadow(p)) for p in positions],
        )
        faults.reach("replace: stopped")
        journal.alter(lambda _: revision)

    def _kept(self, shadow: Shadow) -> list[SavedRelation]:
        """Returns the entries of what is kept beside the old table, and of the view that compares both."""
        names = (shadow.query, f"view:{difference_of(shadow.before.name)}")
        return [entry for name in names if (entry := self.saved.relation(name)) is not None]

    def _show(
        self,
        shadow: Shadow,
        entry: SavedRelation,
        old: Sequence[str],
        own: Sequence[str],
        parts: dict[str, str],
        renewed: Sequence[RenewedView],
    ) -> None:
        """Lets everybody see the new table in the place of the old one."""
        store, catalog, name = self.store, self.catalog, shadow.relation.name
        named = {n: without_shadow(n) for n in own}
        replaced: list[Backend] = []
        for table in old:
            if table.lower() not in {n.lower() for n in named.values()}:
                catalog.remove(table)
                store.drop(table)
        for table, real in named.items():
            if (there := store.table(real)) is not None:
                replaced.append(there)
            backend = store.backend(table)
            backend.rename(real)
            store.replace(table, backend, real)
            if (relation := catalog.find(table)) is not None:
                catalog.add(replace(relation, name=real))
                catalog.remove(table)
        made = catalog.find(entry.name)
        assert made is not None
        self.tables.follow(shadow.before.name, made.name)
        for real in named.values():
            self.tables.follow(real, real)
        for backend in replaced:
            safely(backend.close)
        self.publications.remove(name)
        self.publications.add(made)
        for beside in self._kept(shadow):
            self.saved.forget(beside.id)
            catalog.remove(beside.name)
        self.saved.forget(f"table:{shadow.before.name}")
        self.saved.add(entry)
        for view in renewed:
            view.entry.schema = view.relation.schema
            catalog.add(view.relation)
        self.runner.aside.remove(shadow.replaced)
        self.runner.aside.rename(parts)
        self.runner.starter.recovered(shadow.replaced)
        self.loads.pop(shadow.before.name.lower(), None)
        if (load := self.loads.pop(name.lower(), None)) is not None:
            self.loads[made.name.lower()] = load
        with store.publishing:
            store.feed.lose([real.lower() for real in named.values()], "the table was replaced")
        faults.reach("replace: shown")


def remove_unfinished(journal: Journal) -> None:
    """Removes what a kill has left of tables that were being built."""
    names = [entry.name for entry in journal.entries() if entry.kind == BUILDING]
    queries = [f"table:{name}" for name in names]
    tables = [
        known
        for known in journal.table_names()
        if any(known in (n.lower(), error_table(f"table:{n}").lower()) for n in names)
        or any(_belongs(known, query) for query in queries)
    ]
    positions = [p for p in journal.positions() if any(is_part(p, q) for q in queries)]
    if names:
        paused = [e.name for e in journal.entries() if e.kind == QUERY_STATE and e.name in queries]
        drop = [*((BUILDING, name) for name in names), *((QUERY_STATE, query) for query in paused)]
        journal.revise(Revision(drop=drop, tables=tables, positions=positions))


def _belongs(table: str, query: str) -> bool:
    """Returns whether a statement keeps the table beside its target."""
    rest = table[len(query) :] if table.startswith(f"{query.lower()}$") else ""
    return bool(rest) and rest != SHADOW and not rest.startswith(f"{SHADOW}$")
