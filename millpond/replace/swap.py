"""Puts what was built beside tables and streams in their place, all of it in one commit.

The statements of both, and those that read them, stop. When the new ones have what the old ones had, one commit of the
journal gives their rows, their state and their positions the names of the old ones. If anything fails before it, the
old ones go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millpond import faults
from millpond.alter.column_users import RenewedView, User
from millpond.alter.interruption import durable, stopped
from millpond.alter.schema_drift import SchemaDrift
from millpond.changes import Offset
from millpond.errors import Conflict, TimedOut
from millpond.journal.revision import Revision
from millpond.loading.file_origins import origins_table
from millpond.loading.followers import Followers
from millpond.loading.progress import Load
from millpond.replace.leftovers import BUILDING, belongs
from millpond.replace.shadow import Shadow
from millpond.retry import NO_PATIENCE
from millpond.sql.catalog import Catalog
from millpond.sql.errortables import error_table
from millpond.sql.parse import parse
from millpond.sql.reserved_names import difference_of, is_part, without_shadow
from millpond.statements.publications import Publications
from millpond.statements.saved_statements import SavedStatements
from millpond.store.catalog import SavedQuery, SavedRelation
from millpond.store.store import Store
from millpond.store.undo import safely
from millpond.streaming.runner import Runner
from millpond.tables.base import Backend
from millpond.views.materialized_view import Views

if TYPE_CHECKING:
    from millpond.engine.pipeline import Pipeline

_PAUSE, _LAST = 0.002, 60.0
"""Seconds between two looks for the last rows, and for all of them, while the old statements stand."""


@dataclass(frozen=True)
class Exchange:
    """Contains what takes the place of a table or stream. ``entry`` is its journal entry, with the name of the old one;
    ``users`` are the statements that read the old one, except for what is exchanged with it; ``views`` are named views
    that get other columns.
    """

    shadow: Shadow
    entry: SavedRelation
    users: tuple[User, ...] = ()
    views: tuple[RenewedView, ...] = ()


@dataclass(frozen=True)
class _Tables:
    """Lists the tables of the statements of an exchange, its targets among them, and the parts of both statements."""

    old: list[str]
    own: list[str]
    parts: dict[str, str]
    gone: set[str]


@dataclass(frozen=True, eq=False, repr=False)
class Swaps:
    """Swaps tables and streams. ``go_on`` starts a saved statement again."""

    catalog: Catalog
    store: Store
    saved: SavedStatements
    loads: dict[str, Load]
    followers: Followers
    views: Views
    runner: Runner
    drift: SchemaDrift
    follow: Callable[[str, str], None]
    publications: Publications
    go_on: Callable[[SavedRelation | SavedQuery], None]

    def swap(self, exchanges: Sequence[Exchange]) -> None:
        """Puts what was built in the place of the old ones: each after those that it reads. Running statements that
        read one of the tables continue from their positions; running SELECTs over one of the streams end.
        """
        found = [self._found(exchange.shadow) for exchange in exchanges]
        readers = {u.name: u for e in exchanges for u in e.users if u.pipeline and u.entry is not None}
        with self._stopped([e.shadow for e in exchanges], list(readers.values())):
            for e in exchanges:
                self._end(e.shadow.query, e.shadow.relation.name)
            with self.views.between_rounds(), self.store.writing:
                for e in exchanges:
                    self._check_no_rows(e.shadow)
                self._journal(exchanges, found)
                with durable(self.store):
                    faults.reach("replace: journalled")
                    for e, tables in zip(exchanges, found, strict=True):
                        self._show(e, tables)
                    faults.reach("replace: shown")
                self._follow(exchanges, found)
        self.store.visibility.committed()

    def _found(self, shadow: Shadow) -> _Tables:
        parts = {p: without_shadow(p) for p, q in self.runner.parts.items() if q == shadow.query}
        gone = {p for p, query in self.runner.parts.items() if query == shadow.replaced}
        return _Tables(
            self._tables_of(shadow.replaced, shadow.before.name),
            self._tables_of(shadow.query, shadow.relation.name),
            parts,
            {*gone, shadow.replaced},
        )

    def _tables_of(self, query: str, name: str) -> list[str]:
        """Returns the tables of a statement that exist: its target, and those that it keeps beside it."""
        names = [name, error_table(query), origins_table(query)]
        names += [name for s in self.runner.statements(query) for name in s.owned]
        names += [n for n in self.store.journal.table_names() if belongs(n, query)]
        found = {name.lower(): name for name in reversed(names)}
        return [name for key, name in found.items() if self.store.table(key) is not None]

    # while nothing runs

    @contextmanager
    def _stopped(self, shadows: Sequence[Shadow], readers: Sequence[User]) -> Iterator[None]:
        """Runs the code inside while the statements of both and those that read them are stopped, and the new ones have
        all rows that the old ones had. If it fails, the old ones go on.
        """
        with stopped(readers, self.runner, self.go_on) as after:
            names = {s.replaced for s in shadows}
            before = [p for p in self.runner if p.plan.query in names]
            for shadow in reversed(shadows):
                after.callback(self._resume, shadow.replaced)
            for shadow in shadows:
                self._end(shadow.replaced, shadow.before.name)
            self._reach(shadows, before)
            yield

    def _resume(self, replaced: str) -> None:
        entry = self.saved.relation(replaced)
        if entry is not None:
            self.go_on(entry)

    def _end(self, query: str, name: str) -> None:
        """Stops what fills a table or stream."""
        self.runner.aside.put(query, self.runner)
        self.followers.remove(name.lower())
        self.views.remove(query)

    def _reach(self, shadows: Sequence[Shadow], before: Sequence[Pipeline]) -> None:
        """Waits until the new ones have the last rows that the old ones got: of what is built itself, all that is
        there.
        """
        deadline = time.monotonic() + _LAST
        built = {s.relation.name for s in shadows}
        for shadow in shadows:
            ends = {
                p.plan.batch.stream.relation.name: p.offset for p in before if p.plan.query == shadow.replaced
            }
            for pipeline in [p for p in self.runner if p.plan.query == shadow.query]:
                name = pipeline.plan.batch.stream.relation.name
                end: Offset | None = pipeline.source.latest(None) if name in built else ends.get(name)
                pipeline.courtesy = None
                while end is not None and not pipeline.reached(end):
                    self.runner.pull(shadow.query)
                    pipeline.check()
                    if time.monotonic() > deadline:
                        raise TimedOut(
                            f"{shadow.old} stays as it is: the new one is behind",
                            hint="run the statement again when fewer rows come",
                        )
                    time.sleep(_PAUSE)

    def _check_no_rows(self, shadow: Shadow) -> None:
        """Raises an error if the old table has no query, and has got rows. Nobody can write to it now."""
        entry = self.saved.relation(shadow.replaced)
        declared = None if entry is None else parse(entry.text).require()[0]
        if shadow.before.kind != "table" or getattr(declared, "query", None) is not None:
            return
        if len(self.store.backend(shadow.before.name)):
            raise Conflict(f"{shadow.old} stays as it is: it has got rows meanwhile")

    def _journal(self, exchanges: Sequence[Exchange], found: Sequence[_Tables]) -> None:
        faults.reach("replace: stopped")
        revision = Revision()
        for e, tables in zip(exchanges, found, strict=True):
            revision = revision.and_then(self._revision(e, tables))
        self.store.journal.alter(lambda _: revision)

    def _revision(self, e: Exchange, tables: _Tables) -> Revision:
        journal, shadow = self.store.journal, e.shadow
        views = [replace(view.entry, schema=view.relation.schema).entry() for view in e.views]
        positions = [p for p in journal.positions() if is_part(p, shadow.query)]
        stream = shadow.relation.kind == "stream"
        return Revision(
            [e.entry.entry(), *views],
            drop=[(BUILDING, shadow.relation.name), *((k.kind, k.name) for k in self._kept(shadow))],
            tables=[name for name in tables.old if journal.has_table(name)],
            streams=[shadow.before.name] if stream and journal.stream_end(shadow.before.name) else [],
            positions=[p for p in tables.gone if journal.position(p) is not None],
            renames=[(name, without_shadow(name)) for name in tables.own if journal.has_table(name)],
            flows=[(shadow.relation.name, e.entry.name)] if stream else [],
            moved=[(p, without_shadow(p)) for p in positions],
        )

    def _kept(self, shadow: Shadow) -> list[SavedRelation]:
        """Returns the entries of what is kept beside the old table, and of the view that compares both."""
        names = (shadow.query, f"view:{difference_of(shadow.before.name)}")
        return [entry for name in names if (entry := self.saved.relation(name)) is not None]

    # showing it

    def _show(self, e: Exchange, tables: _Tables) -> None:
        """Lets everybody see the new one in the place of the old one."""
        store, catalog, shadow, name = self.store, self.catalog, e.shadow, e.shadow.relation.name
        named = {n: without_shadow(n) for n in tables.own}
        self._rename(tables.old, named)
        if shadow.relation.kind == "stream":
            catalog.remove(name)
            catalog.add(replace(shadow.relation, name=e.entry.name))
            self._end_selects(shadow)
        made = catalog.find(e.entry.name)
        assert made is not None
        if made.kind == "table":
            self.follow(shadow.before.name, made.name)
        for real in named.values():
            self.follow(real, real)
        self.publications.remove(name)
        self.publications.add(made)
        for beside in self._kept(shadow):
            self.saved.forget(beside.id)
            catalog.remove(beside.name)
        self.saved.forget(shadow.replaced)
        self.saved.add(e.entry)
        for view in e.views:
            view.entry.schema = view.relation.schema
            catalog.add(view.relation)
        self.runner.aside.remove(shadow.replaced)
        self.runner.aside.rename(tables.parts)
        self.runner.starter.recovered(shadow.replaced)
        self.loads.pop(shadow.before.name.lower(), None)
        if (load := self.loads.pop(name.lower(), None)) is not None:
            self.loads[made.name.lower()] = load
        with store.publishing:
            store.feed.lose([real.lower() for real in named.values()], f"the {made.kind} was replaced")

    def _rename(self, old: Sequence[str], named: dict[str, str]) -> None:
        """Gives tables their names, in the place of the ``old`` ones."""
        store, catalog = self.store, self.catalog
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
        for backend in replaced:
            safely(backend.close)

    def _end_selects(self, shadow: Shadow) -> None:
        """Ends what reads the old stream for as long as somebody takes its rows."""
        name = shadow.before.name.lower()
        for pipeline in self.runner:
            if pipeline.plan.batch.stream.relation.name.lower() == name and pipeline.statement.ephemeral:
                told = f"{shadow.old} was replaced: its rows are others, and begin again"
                pipeline.fail(Conflict(told, hint="run the query again"), NO_PATIENCE)

    def _follow(self, exchanges: Sequence[Exchange], found: Sequence[_Tables]) -> None:
        """Lets materialized views follow. Those that change in the same commit do so before the next one."""
        names: dict[str, None] = {}
        for e, tables in zip(exchanges, found, strict=True):
            names |= dict.fromkeys((e.shadow.before.name, *tables.old, *map(without_shadow, tables.own)))
        for live in dict.fromkeys(v for name in names for v in self.views.users(name)):
            self.drift.follow_table(live)
