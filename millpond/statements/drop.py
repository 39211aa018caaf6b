"""Drops relations and queries with what depends on them, or refuses to.

It first collects all that is dropped. The journal forgets all of it in one transaction, and then the app removes it: a
failure before that leaves everything as it was, and after a kill nothing of it is restored. A statement that fails is
undone in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from millpond import faults
from millpond.errors import InUse, Place, UnknownName
from millpond.journal.catalog import Entry
from millpond.journal.revision import Revision
from millpond.loading.bulk_load import LoadedTable
from millpond.loading.capture_streams import CapturedStream
from millpond.loading.capture_tables import release_kept
from millpond.loading.discovered_columns import KeptColumns
from millpond.loading.file_origins import origins_table
from millpond.loading.followers import Followers, Mask
from millpond.loading.open_sources import Sources
from millpond.loading.progress import Load
from millpond.loading.stored_changes import StoredLogs
from millpond.plan.plans import PipelinePlan
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.errortables import error_table
from millpond.sql.printer import print_name
from millpond.sql.reads import names_read
from millpond.statements.indexes import Indexes
from millpond.statements.publications import Publications
from millpond.statements.queries import Queries
from millpond.statements.saved_statements import SavedStatements
from millpond.statements.shadow_names import shadows_of, without_note
from millpond.store.catalog import SavedRelation
from millpond.store.done_statements import in_database, marks_of, with_notes
from millpond.store.dropped_tables import DroppedTables
from millpond.store.query_states import DROPPED, QUERY_STATE, QueryStates, entry
from millpond.store.store import Store
from millpond.store.undo import safely
from millpond.streaming.emitted_rows import Emitted
from millpond.streaming.runner import Runner
from millpond.tables.flushed_table import FlushedTable
from millpond.views.materialized_view import Views


@dataclass(frozen=True, eq=False, repr=False)
class Removals:
    """Removes relations and queries. ``identity`` identifies this app in databases that store something for it."""

    catalog: Catalog
    store: Store
    saved: SavedStatements
    indexes: Indexes
    runner: Runner
    views: Views
    queries: Queries
    query_states: QueryStates
    dropped_tables: DroppedTables
    columns: KeptColumns
    publications: Publications
    sources: Sources
    followers: Followers
    stored_logs: StoredLogs
    loads: dict[str, Load]
    emitted: Emitted
    identity: str
    mask: Mask

    def drop(self, relation: Relation, *, cascade: bool, place: Place | None) -> None:
        """Drops a stream, table or view with the query that fills it; with ``cascade`` also what uses it."""
        going = [relation, *shadows_of(relation, self.catalog)]
        names = {own(r) for r in going}
        queries = [q for r in going for q in self.users_of(r) if q not in names]
        views = [v for r in going for v in self.views_of(r) if own(v) not in names]
        if (queries or views) and not cascade:
            listed = [self._described(query) for query in queries] + [f'view "{v.name}"' for v in views]
            listed = list(dict.fromkeys(listed))
            raise InUse(
                f'{relation.kind} "{relation.name}" is used by {", ".join(listed)}',
                hint=f"DROP {relation.kind.upper()} {print_name(relation.name)} CASCADE drops them too",
                place=place,
            )
        removal = Removal(self)
        removal.add(relation)
        removal.go()

    def together(self, relations: Iterable[Relation], queries: Iterable[str]) -> Removal:
        """Returns what is dropped with relations and queries, and has not been yet."""
        removal = Removal(self)
        for relation in relations:
            removal.add(relation)
        for query in queries:
            removal.add_query(query)
        return removal

    def drop_all(self, relations: Iterable[Relation]) -> None:
        """Drops streams, tables and views together, with what fills and uses them."""
        self.together(relations, ()).go()

    def drop_query(self, name: str, *, if_exists: bool, place: Place | None) -> None:
        """Ends a running statement for good. If it fills a table or stream of its own, that is dropped too."""
        try:
            name = self.queries.find(name)
        except UnknownName as error:
            if if_exists:
                return
            error.place = place
            raise
        kind, _, filled = name.partition(":")
        if filled and self.catalog.find(filled) is not None:
            raise InUse(
                f'query "{name}" fills {kind} "{filled}"',
                hint=f"DROP {kind.upper()} {print_name(filled)} drops both; PAUSE or STOP QUERY holds it",
                place=place,
            )
        removal = Removal(self)
        removal.add_query(name)
        if self.saved.get(f"query:{name}") is not None or not all(
            s.ephemeral for s in self.runner.statements(name)
        ):
            removal.mark_dropped(name)
        removal.go()

    def take_back(self, relation: Relation) -> None:
        """Removes what a failed statement declared, and all that was made for it."""
        removal = Removal(self)
        removal.add(relation)
        removal.go(failed=True)

    def take_back_query(self, query: str) -> None:
        """Works as ``take_back``, for a statement that runs under that name; also for one that is no longer needed."""
        removal = Removal(self)
        removal.add_query(query)
        removal.go(failed=True)

    def drop_unread(self) -> None:
        """Drops hidden tables, stored for statements that read outside sources, when none reads them any more, and what
        databases store for them.
        """
        kept = list(self.followers.side_tables)
        plans = [p.plan for p in self.runner] + [w.plan for w in self.runner.starter] if kept else []
        met = {name for plan in plans for name in plan.joined_tables}
        for name in kept:
            if name not in met and not self.views.users(name):
                self.followers.side_tables.discard(name)
                self.followers.remove(name)
                self.store.drop(name)

    def users_of(self, relation: Relation) -> list[str]:
        """Returns the queries that use a relation, except the one that fills it."""
        plans = [p.plan for p in self.runner] + [w.plan for w in self.runner.starter]
        found = [plan.query for plan in plans if plan.query != own(relation) and uses(plan, relation)]
        return list(dict.fromkeys(found + [v.plan.name for v in self.views.users(relation.name)]))

    def views_of(self, relation: Relation) -> list[Relation]:
        """Returns the views, which are named queries, that read a relation."""
        return [r for r in self.catalog if r.query is not None and view_reads(r, relation)]

    def _described(self, query: str) -> str:
        view = self.views.get(query)
        if view is not None and view.emit is None:
            return f'table "{view.plan.target.name}"'
        return f'query "{query}"'


class Removal:
    """Collects relations and queries that are dropped together."""

    def __init__(self, of: Removals):
        self._of = of
        self._relations: dict[str, Relation] = {}
        self._queries: dict[str, None] = {}
        self._marks: list[Entry] = []
        self._outside: list[str] = []
        """The tables whose rows databases have."""
        self._staying: list[SavedRelation] = []
        """The entries of tables that stay as they are, since what was kept beside them is dropped."""
        self._parts: dict[str, str] = {}
        """The parts of the queries, with the queries."""

    def add(self, relation: Relation) -> None:
        """Adds a stream, table or view, with the query that fills it and all that uses it."""
        if relation.name.lower() in self._relations:
            return
        self._relations[relation.name.lower()] = relation
        self._queries[own(relation)] = None
        for query in self._of.users_of(relation):
            self.add_query(query)
        for other in (*self._of.views_of(relation), *shadows_of(relation, self._of.catalog)):
            self.add(other)

    def add_query(self, query: str) -> None:
        """Adds a query, with its own table or stream."""
        self._queries[query] = None
        kind, _, filled = query.partition(":")
        made = self._of.catalog.find(filled) if filled else None
        if made is not None and made.kind == kind:
            self.add(made)

    def mark_dropped(self, query: str) -> None:
        """Records that a restart does not restore the query, though its text may be in the file."""
        self._marks.append(entry(query, DROPPED))

    def go(self, *, failed: bool = False) -> None:
        """Drops all of it. If a database with rows of it does not respond, or rows that wait in a sink cannot be
        written, this raises and everything is as before; it does not raise if the drop follows a ``failed`` statement.
        """
        revision = self.prepare(failed=failed)
        if revision is not None:
            self._of.store.journal.revise(revision)
        self.finish()

    @property
    def queries(self) -> tuple[str, ...]:
        """Returns the names of the queries that are dropped."""
        return tuple(self._queries)

    @property
    def relations(self) -> tuple[Relation, ...]:
        """Returns the streams, tables and views that are dropped."""
        return tuple(self._relations.values())

    def has(self, user: str) -> bool:
        """Returns whether a query, or the view of ``view:name``, is dropped."""
        kind, _, name = user.partition(":")
        return user in self._queries or (kind == "view" and name.lower() in self._relations)

    def prepare(self, *, failed: bool = False) -> Revision | None:
        """Returns what the journal has to forget, None if it contains nothing of it. Raises as ``go``."""
        of = self._of
        tables = {n: t for n in self._tables() if (t := of.store.table(n)) is not None}
        outside = [n for n, t in tables.items() if t.database or isinstance(t, FlushedTable)]
        self._outside, self._parts = outside, dict(of.runner.parts)
        self._staying = [] if failed else without_note(set(self._relations), of.saved)
        for name in outside if not failed else ():
            tables[name].snapshot()
            of.dropped_tables.flush(name, tables[name])
        for query in self._queries if not failed else ():
            of.runner.make_visible(query)
        marks = self._marks_of_statements()
        for name, found in marks.items() if not failed else ():
            run_again(of.store, name, found)
        faults.reach("drop gathered")
        return self._revision(outside, marks)

    def finish(self) -> None:
        """Removes all of it, of which the journal contains nothing any more."""
        of, outside = self._of, self._outside
        safely(lambda: faults.reach("drop journalled"))
        for query in self._queries:
            safely(partial(self._end_query, query))
        for relation in reversed(self._relations.values()):
            self._let_go(relation)
        for stays in self._staying:
            of.saved.add(stays)
        for mark in self._marks:
            of.query_states.note(mark.name, DROPPED)
        safely(lambda: of.dropped_tables.removed(n for n in outside if n.lower() not in of.store.left))
        safely(of.drop_unread)
        safely(of.columns.forget_unused)
        safely(lambda: faults.reach("drop done"))

    def _tables(self) -> list[str]:
        """Returns the tables of the relations, and those that belong to them."""
        of = self._of
        tables = [r.name for r in self._relations.values() if r.kind == "table"]
        for relation in self._relations.values():
            if relation.kind == "table":
                tables += [error_table(own(relation)), origins_table(own(relation))]
        for query in self._queries:
            tables += [name for s in of.runner.statements(query) for name in s.owned]
        return list(dict.fromkeys(tables))

    def _leaving(self, outside: list[str]) -> list[Entry]:
        """Returns the journal entries of the tables that databases have to remove."""
        of, homes = self._of, {r.name: r.name for r in self._relations.values()}
        homes |= {origins_table(own(r)): r.name for r in self._relations.values()}
        for query in self._queries:
            homes |= {n: s.plan.target.name for s in of.runner.statements(query) for n in s.owned}
        found = []
        for name in outside:
            home = homes.get(name, "")
            entry = of.saved.get(f"table:{home}")
            options = dict(of.store.options.get(home.lower(), {}))
            if entry is not None and options:
                if name != home:
                    extension, others = of.store.companion_of(home)
                    options = {**others, "extension": extension, "null_keys": True}
                found.append(
                    of.dropped_tables.entry(name, of.store.backend(name).schema, options, entry.text)
                )
        return found

    def _revision(self, outside: list[str], marks: Mapping[str, list[str]]) -> Revision | None:
        """Returns what the journal has to forget; None if it contains nothing of it."""
        of, names = self._of, set(self._queries)
        kept = {e.id: e for e in of.saved.entries.values()}
        drop = [(e.kind, e.name) for r in self._relations.values() if (e := kept.get(own(r).lower()))]
        drop += [("index", i.name) for r in self._relations.values() for i in of.catalog.indexes(r.name)]
        drop += [(e.kind, e.name) for q in names if (e := kept.get(f"query:{q.lower()}"))]
        drop += [(QUERY_STATE, query) for query in names if query in of.query_states]
        tables = [name for name in self._tables() if of.store.journal.has_table(name)]
        streams = [r.name for r in self._relations.values() if r.kind == "stream"]
        streams = [name for name in streams if of.store.journal.stream_end(name)]
        parts = [part for part, query in of.runner.parts.items() if query in names]
        positions = [p for p in {*parts, *names} if of.store.journal.position(p) is not None]
        put = self._marks + self._leaving(outside) + [e.entry() for e in self._staying]
        if not (drop or tables or streams or positions or put or marks):
            return None
        noted = [stored for name, found in marks.items() for stored in with_notes(found, name)]
        return Revision(put, drop, tables, streams, positions, undone=[*self._alters(), *noted])

    def _marks_of_statements(self) -> dict[str, list[str]]:
        """Returns the marks of the statements of the file that changed rows: they run again as ALTER TABLE does."""
        journal = self._of.store.journal
        return {r.name: found for r in self._relations.values() if (found := marks_of(journal, r.name))}

    def _alters(self) -> list[str]:
        """Returns the statements of the file that changed the tables: they run again if it creates them again."""
        entries = (self._of.saved.relation(own(r)) for r in self._relations.values())
        return [done for e in entries if e is not None for done in (*e.altered_by, *e.pending_by)]

    def _end_query(self, query: str) -> None:
        of = self._of
        parts = [part for part, owner in self._parts.items() if owner == query]
        of.runner.remove(query)
        of.views.remove(query)
        for part in (*parts, query):
            safely(partial(of.store.forget, part))
        of.saved.forget(f"query:{query}")
        of.query_states.note(query, None)
        of.emitted.results.pop(query, None)
        faults.reach("query ended")

    def _let_go(self, relation: Relation) -> None:
        of, own_query = self._of, own(relation)
        steps: list[Callable[[], object]] = [partial(self._end_following, relation)]
        steps += [partial(of.indexes.let_go, index) for index in of.catalog.indexes(relation.name)]
        steps += [
            partial(of.catalog.remove, relation.name),
            partial(of.publications.remove, relation.name),
            partial(of.loads.pop, relation.name.lower(), None),
        ]
        if relation.kind == "table":
            errors = error_table(own_query)
            steps += [partial(of.catalog.remove, errors)] if errors in of.catalog else []
            steps += [
                partial(of.store.drop, name) for name in (errors, origins_table(own_query), relation.name)
            ]
            steps.append(partial(of.store.options.pop, relation.name.lower(), None))
        elif relation.kind == "stream":
            steps.append(partial(of.sources.values.pop, relation.name.lower(), None))
            if of.store.journal.stream_end(relation.name):
                steps.append(partial(of.store.journal.drop_stream, relation.name))
        for step in steps:
            safely(step)
        of.saved.forget(own_query)
        safely(lambda: faults.reach("relation let go"))

    def _end_following(self, relation: Relation) -> None:
        """Removes what an outside source stores for it."""
        of, name = self._of, relation.name.lower()
        if relation.kind == "table":
            of.stored_logs.end(relation.name)
        followed = f"stream:{name}" if relation.kind == "stream" else name
        kept = of.followers.kept(followed)
        of.followers.remove(followed)
        if isinstance(kept, LoadedTable | CapturedStream):
            kept.release()
        else:
            saved = of.saved.get(own(relation))
            release_kept(saved, relation.kind, relation.name, of.identity, of.mask)


def run_again(store: Store, name: str, marks: Iterable[str]) -> None:
    """Lets the database of a table, if it has one, forget that statements have run; the journal still knows it."""
    for position in in_database(marks):
        store.fills(position.pipeline, name)
        store.forget(position.pipeline)


def uses(plan: PipelinePlan, relation: Relation) -> bool:
    names = {n.lower() for n in (*plan.reads, *plan.writes, plan.errors)}
    return relation.name.lower() in names


def view_reads(view: Relation, relation: Relation) -> bool:
    return view.query is not None and relation.name.lower() in names_read(view.query)


def own(relation: Relation) -> str:
    """Returns the query that fills a relation."""
    return f"{relation.kind}:{relation.name}"
