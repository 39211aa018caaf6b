"""DROP: what goes with a relation or a query, and what must not.

All that goes is gathered first. The journal forgets all of it in one transaction, and then the app lets go of it: a
failure before that leaves everything as it was, a kill after it finds nothing. A statement that fails is taken back in
the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from millpond import faults
from millpond.app.indexes import let_go_index
from millpond.errors import InUse, Place, UnknownName
from millpond.journal.catalog import Entry
from millpond.journal.revision import Revision
from millpond.loading.bulk_load import Filling
from millpond.loading.capture_streams import Tapping
from millpond.loading.capture_tables import release_kept
from millpond.loading.file_origins import origins_table
from millpond.plan.plans import PipelinePlan
from millpond.sql.catalog import Relation
from millpond.sql.errortables import error_table
from millpond.sql.printer import print_name
from millpond.sql.reads import names_read
from millpond.store.query_states import DROPPED, HELD, entry
from millpond.store.undo import safely

if TYPE_CHECKING:
    from millpond.app.app import App


class Removal:
    """Relations and queries that go together."""

    def __init__(self, app: App):
        self._app = app
        self._relations: dict[str, Relation] = {}
        self._queries: dict[str, None] = {}
        self._marks: list[Entry] = []

    def add(self, relation: Relation) -> None:
        """A stream, table or view, with the query that fills it and all that uses it."""
        if relation.name.lower() in self._relations:
            return
        self._relations[relation.name.lower()] = relation
        self._queries[_own(relation)] = None
        for query in users_of(self._app, relation):
            self.add_query(query)
        for view in views_of(self._app, relation):
            self.add(view)

    def add_query(self, query: str) -> None:
        """A query, with the table or stream that is its own."""
        self._queries[query] = None
        kind, _, filled = query.partition(":")
        own = self._app._catalog.find(filled) if filled else None
        if own is not None and own.kind == kind:
            self.add(own)

    def mark_dropped(self, query: str) -> None:
        """A restart does not bring the query back, though its text may be in the file."""
        self._marks.append(entry(query, DROPPED))

    def go(self, *, failed: bool = False) -> None:
        """Takes all of it away. Raises if a database does not answer that has rows of it: then everything is as
        before; not if it goes because a statement has ``failed``."""
        app = self._app
        outside = [n for n in self._tables() if (t := app._store.table(n)) is not None and t.database]
        for name in outside if not failed else ():
            app._store.backend(name).snapshot()
        faults.reach("drop gathered")
        revision = self._revision(outside)
        if revision is not None:
            app._journal.revise(revision)
        safely(lambda: faults.reach("drop journalled"))
        for query in self._queries:
            safely(partial(self._end_query, query))
        for relation in reversed(self._relations.values()):
            self._let_go(relation)
        for mark in self._marks:
            app._held.note(mark.name, DROPPED)
        safely(lambda: app._leaving.removed(n for n in outside if n.lower() not in app._store.left))
        safely(partial(drop_unread, app))
        safely(app._columns.forget_unused)
        safely(lambda: faults.reach("drop done"))

    def _tables(self) -> list[str]:
        """The tables of the relations, and those beside them."""
        app = self._app
        tables = [r.name for r in self._relations.values() if r.kind == "table"]
        for relation in self._relations.values():
            if relation.kind == "table":
                tables += [error_table(_own(relation)), origins_table(_own(relation))]
        for query in self._queries:
            tables += [name for s in app._runner.statements(query) for name in s.owned]
        return list(dict.fromkeys(tables))

    def _leaving(self, outside: list[str]) -> list[Entry]:
        """The tables that databases are to remove."""
        app, homes = self._app, {r.name: r.name for r in self._relations.values()}
        homes |= {origins_table(_own(r)): r.name for r in self._relations.values()}
        for query in self._queries:
            homes |= {n: s.plan.target.name for s in app._runner.statements(query) for n in s.owned}
        found = []
        for name in outside:
            home = homes.get(name, "")
            entry = app._saved.get(f"table:{home.lower()}")
            options = dict(app._store.options.get(home.lower(), {}))
            if entry is not None and options:
                if name != home:
                    extension, others = app._store.companion_of(home)
                    options = {**others, "extension": extension, "null_keys": True}
                found.append(app._leaving.entry(name, app._store.backend(name).schema, options, entry.text))
        return found

    def _revision(self, outside: list[str]) -> Revision | None:
        """What the journal is to forget; None if it has nothing of it."""
        app, names = self._app, set(self._queries)
        kept = {e.id: e for e in app._saved.values()}
        drop = [(e.kind, e.name) for r in self._relations.values() if (e := kept.get(_own(r).lower()))]
        drop += [("index", i.name) for r in self._relations.values() for i in app._catalog.indexes(r.name)]
        drop += [(e.kind, e.name) for q in names if (e := kept.get(f"query:{q.lower()}"))]
        drop += [(HELD, query) for query in names if query in app._held]
        tables = [name for name in self._tables() if app._journal.has_table(name)]
        streams = [r.name for r in self._relations.values() if r.kind == "stream"]
        streams = [name for name in streams if app._journal.stream_end(name)]
        parts = [part for part, query in app._runner.parts.items() if query in names]
        positions = [p for p in {*parts, *names} if app._journal.position(p) is not None]
        put = self._marks + self._leaving(outside)
        if not (drop or tables or streams or positions or put):
            return None
        return Revision(put, drop, tables, streams, positions)

    def _end_query(self, query: str) -> None:
        app = self._app
        parts = [part for part, owner in app._runner.parts.items() if owner == query]
        app._runner.remove(query)
        app._views.remove(query)
        for part in (*parts, query):
            safely(partial(app._store.forget, part))
        app._saved.pop(f"query:{query.lower()}", None)
        app._unclaimed.pop(f"query:{query.lower()}", None)
        app._held.note(query, None)
        app._emitted.results.pop(query, None)
        faults.reach("query ended")

    def _let_go(self, relation: Relation) -> None:
        app, own = self._app, _own(relation)
        steps: list[Callable[[], object]] = [partial(self._end_following, relation)]
        steps += [partial(let_go_index, app, index) for index in app._catalog.indexes(relation.name)]
        steps += [
            partial(app._catalog.remove, relation.name),
            partial(app._publications.remove, relation.name),
            partial(app._loads.pop, relation.name.lower(), None),
        ]
        if relation.kind == "table":
            errors = error_table(own)
            steps += [partial(app._catalog.remove, errors)] if errors in app._catalog else []
            steps += [partial(app._store.drop, name) for name in (errors, origins_table(own), relation.name)]
            steps.append(partial(app._store.options.pop, relation.name.lower(), None))
        elif relation.kind == "stream":
            steps.append(partial(app._sources.values.pop, relation.name.lower(), None))
            if app._journal.stream_end(relation.name):
                steps.append(partial(app._journal.drop_stream, relation.name))
        for step in steps:
            safely(step)
        app._saved.pop(own.lower(), None)
        app._unclaimed.pop(own.lower(), None)
        safely(lambda: faults.reach("relation let go"))

    def _end_following(self, relation: Relation) -> None:
        """What a source outside keeps for it goes too."""
        app, name = self._app, relation.name.lower()
        followed = f"stream:{name}" if relation.kind == "stream" else name
        kept = app._living.kept(followed)
        app._living.remove(followed)
        if isinstance(kept, Filling | Tapping):
            kept.release()
        else:
            saved = app._saved.get(_own(relation).lower())
            release_kept(saved, relation.kind, relation.name, app._state.identity, app._mask)


def drop(app: App, relation: Relation, *, cascade: bool, place: Place | None) -> None:
    """Drops a stream, table or view with the query that fills it; with ``cascade`` also what uses it."""
    queries, views = users_of(app, relation), views_of(app, relation)
    if (queries or views) and not cascade:
        listed = [_described(app, query) for query in queries] + [f'view "{v.name}"' for v in views]
        raise InUse(
            f'{relation.kind} "{relation.name}" is used by {", ".join(listed)}',
            hint=f"DROP {relation.kind.upper()} {print_name(relation.name)} CASCADE drops them too",
            place=place,
        )
    removal = Removal(app)
    removal.add(relation)
    removal.go()


def drop_query(app: App, name: str, *, if_exists: bool, place: Place | None) -> None:
    """Ends a running statement for good. One that fills a table or stream of its own goes with that."""
    try:
        name = app._queries.find(name)
    except UnknownName as error:
        if if_exists:
            return
        error.place = place
        raise
    kind, _, filled = name.partition(":")
    if filled and app._catalog.find(filled) is not None:
        raise InUse(
            f'query "{name}" fills {kind} "{filled}"',
            hint=f"DROP {kind.upper()} {print_name(filled)} drops both; PAUSE or STOP QUERY holds it",
            place=place,
        )
    removal = Removal(app)
    removal.add_query(name)
    if f"query:{name.lower()}" in app._saved or not all(s.ephemeral for s in app._runner.statements(name)):
        removal.mark_dropped(name)
    removal.go()


def take_back(app: App, relation: Relation) -> None:
    """A statement failed: what it declared goes, with all that was made for it."""
    removal = Removal(app)
    removal.add(relation)
    removal.go(failed=True)


def take_back_query(app: App, query: str) -> None:
    """As ``take_back``, for a statement that runs under that name; also for one that nobody needs any more."""
    removal = Removal(app)
    removal.add_query(query)
    removal.go(failed=True)


def drop_unread(app: App) -> None:
    """Tables that nobody sees, kept for statements that read what is outside, go when none reads them any more, and
    what databases keep for them."""
    kept = list(app._living.beside)
    plans = [p.plan for p in app._runner] + [w.plan for w in app._runner.starter] if kept else []
    met = {name for plan in plans for name in plan.beside}
    for name in kept:
        if name not in met and not app._views.users(name):
            app._living.beside.discard(name)
            app._living.remove(name)
            app._store.drop(name)


def users_of(app: App, relation: Relation) -> list[str]:
    """The queries that use a relation, beside the one that fills it."""
    plans = [p.plan for p in app._runner] + [w.plan for w in app._runner.starter]
    found = [plan.query for plan in plans if plan.query != _own(relation) and uses(plan, relation)]
    return list(dict.fromkeys(found + [v.plan.name for v in app._views.users(relation.name)]))


def views_of(app: App, relation: Relation) -> list[Relation]:
    """The views, which are named queries, that read a relation."""
    return [r for r in app._catalog if r.query is not None and view_reads(r, relation)]


def uses(plan: PipelinePlan, relation: Relation) -> bool:
    names = {n.lower() for n in (*plan.reads, *plan.writes, plan.errors)}
    return relation.name.lower() in names


def view_reads(view: Relation, relation: Relation) -> bool:
    return view.query is not None and relation.name.lower() in names_read(view.query)


def _own(relation: Relation) -> str:
    """The query that fills a relation."""
    return f"{relation.kind}:{relation.name}"


def _described(app: App, query: str) -> str:
    view = app._views.get(query)
    if view is not None and view.emit is None:
        return f'table "{view.plan.target.name}"'
    return f'query "{query}"'
