"""Runs ALTER TABLE.

The journal records the change in a commit of its own, and then the table gets it. A table of a database is changed
there in between: the journal first records that the change is pending, so a start after a kill makes it, or finds that
it is made. Statements that must see other columns stop before the change, and continue from their position after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from millpond import faults
from millpond.alter.cascades import Cascade, Cascades, cascaded
from millpond.alter.column_changes import change_of
from millpond.alter.column_users import ColumnUsers, RenewedView, User
from millpond.alter.interruption import durable, stopped
from millpond.alter.live_options import check_live, options_of
from millpond.alter.pending_changes import refuse_new_name, refuse_pending, settled
from millpond.alter.schema_drift import SchemaDrift
from millpond.alterations import (
    ColumnChange,
    DefaultedColumn,
    DroppedColumn,
    RenamedColumn,
)
from millpond.errors import ConnectionLost, Error, InvalidOption, NotSupported, Place
from millpond.journal.revision import Revision
from millpond.options import find_option, read_options
from millpond.query.evaluate import Evaluator
from millpond.query.result import Result
from millpond.sql import statements as st
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checked_commands import CheckedAlter
from millpond.sql.checking.alters import not_alterable
from millpond.sql.options import ttl_of
from millpond.sql.parse import parse
from millpond.sql.renames import Renamed
from millpond.statements.drop import Removals
from millpond.statements.handlers import NOTHING, Handlers, WithTypes, handle
from millpond.statements.publications import Publications
from millpond.statements.saved_statements import SavedStatements
from millpond.statements.script import Checks
from millpond.statements.text_run import TextRun
from millpond.store.catalog import SavedQuery, SavedRelation, without_secrets
from millpond.store.done_statements import marks_of, note
from millpond.store.store import Store
from millpond.store.undo import Undo
from millpond.streaming.runner import Runner
from millpond.tables.base import Backend
from millpond.views.materialized_view import Views


@dataclass(frozen=True, eq=False, repr=False)
class Alters:
    """Changes tables while they are used. ``go_on`` starts a saved statement again, or retries that later."""

    text: TextRun
    catalog: Catalog
    store: Store
    saved: SavedStatements
    checks: Checks
    with_types: WithTypes
    runner: Runner
    views: Views
    drift: SchemaDrift
    follow: Callable[[str, str], None]
    """Gives the object that programs use the columns and the name that a table has now, by its old and new name."""
    publications: Publications
    removals: Removals
    evaluator: Evaluator
    go_on: Callable[[SavedRelation | SavedQuery], None]
    read_only: bool

    @cached_property
    def users(self) -> ColumnUsers:
        return ColumnUsers(self.catalog, self.saved, self.checks, self.runner, self.views, self.with_types)

    @cached_property
    def cascades(self) -> Cascades:
        return Cascades(self.users, self.removals)

    @property
    def handlers(self) -> Handlers:
        return dict((handle(CheckedAlter, self.alter),))

    def alter(self, checked: CheckedAlter, undo: Undo) -> Result:
        s, before, after = checked.statement, checked.relation, checked.after
        entry = self.saved.relation(f"table:{before.name}")
        done = (self.text.count(s),) if self.text.in_file else ()
        if entry is not None and not self.read_only:
            entry = dataclasses.replace(entry, altered_by=(*entry.altered_by, *done))
        if checked.changes_nothing:
            if done and entry is not None and not self.read_only:
                self.store.journal.revise(Revision([entry.entry()], done=done))
                self.saved.add(entry)
            return Result(NOTHING, count=0)
        if entry is None or self.read_only:
            raise NotSupported(f'table "{before.name}" cannot be changed: the app keeps it', place=s.place)
        declared = parse(entry.text).require()[0]
        if getattr(declared, "query", None) is not None:
            raise not_alterable(before.name, s)
        users, cascade = self.users.of(before), Cascade()
        if isinstance(s.action, st.SetOptions):
            refuse_pending(entry, s)
            self._set(s.action, entry, before, [u for u in users if u.pipeline and u.writes], done)
        elif isinstance(s.action, st.RenameTable):
            refuse_pending(entry, s)
            refuse_new_name(before, self.store, s)
            if s.cascade:
                renamed = Renamed(before.name, after.name)
                cascade = self.cascades.follow(users, before, after, renamed, s.place)
            else:
                self.users.refuse_any(users, before, s.place)
            self._rename(entry, before, after, done, users, cascade)
        else:
            cascade = self._change(s, entry, before, after, users, done)
        return Result(cascade.table() if s.cascade else NOTHING, count=0)

    # columns

    def _change(
        self,
        s: st.AlterTable,
        entry: SavedRelation,
        before: Relation,
        after: Relation,
        users: Sequence[User],
        done: tuple[str, ...],
    ) -> Cascade:
        change = change_of(s.action, after, self.evaluator)
        refuse_pending(entry, s, change)
        backend = self.store.backend(before.name)
        if "alter" not in backend.abilities:
            raise NotSupported(
                f'the columns of table "{before.name}" cannot change: its rows are outside of the app',
                hint="create another table, and copy the rows: INSERT INTO … SELECT …",
                place=s.place,
            )
        cascade, views, again = Cascade(), list[RenewedView](), list[User]()
        if s.cascade and isinstance(change, RenamedColumn):
            renamed = Renamed(before.name, change.new, change.old)
            cascade = self.cascades.follow(users, before, after, renamed, s.place)
            again = [u for u in users if u.pipeline]
        elif s.cascade and isinstance(change, DroppedColumn):
            removal = self.cascades.gather(users, before, change.name)
            staying = [u for u in users if not removal.has(u.name)]
            again, views = self.users.renew(staying, before, after, self.drift.can_widen, s.place, again=True)
            cascade = self.cascades.drop(removal, before, change.name)
            users = staying
        else:
            again, views = self.users.refuse(users, before, after, s, self.drift.can_widen)
        entry = dataclasses.replace(entry, cascaded=cascaded(entry, change, cascade))
        made = settled(entry, schema=after.schema, changed=True)
        self._make([change], (entry, made), (before, after), users, again, views, done, cascade)
        return cascade

    def change_columns(
        self,
        changes: Sequence[ColumnChange],
        entries: tuple[SavedRelation, SavedRelation],
        tables: tuple[Relation, Relation],
        place: Place | None,
    ) -> None:
        """Changes columns of a table in one commit. ``entries`` and ``tables`` are before and after it."""
        before, after = tables
        backend = self.store.backend(before.name)
        if "alter" not in backend.abilities or (backend.database is not None and len(changes) > 1):
            raise NotSupported(
                f'the columns of table "{before.name}" cannot change in one step: they are in a database',
                hint="use ALTER TABLE, a column at a time",
                place=place,
            )
        users = self.users.of(before)
        again, views = self.users.renew(users, before, after, self.drift.can_widen, place, again=True)
        self._make(changes, entries, tables, users, again, views, (), Cascade())

    def _make(
        self,
        changes: Sequence[ColumnChange],
        entries: tuple[SavedRelation, SavedRelation],
        tables: tuple[Relation, Relation],
        users: Sequence[User],
        again: Sequence[User],
        views: Sequence[RenewedView],
        done: tuple[str, ...],
        cascade: Cascade,
    ) -> None:
        """Makes changes of columns while the running statements ``again`` are stopped; named ``views`` follow."""
        (entry, made), (before, after) = entries, tables
        backend = self.store.backend(before.name)
        faults.reach("alter: checked")
        outside = backend.database is not None
        with stopped([*again, *cascade.removed], self.runner, self._resume), self.views.between_rounds():
            with self._alone(backend):
                # What would make it fail is found before it is in the journal.
                for change in changes:
                    backend = (
                        self._change_outside(entry, change, done, cascade)
                        if outside
                        else backend.alter(change)
                    )
                self._journal(made, () if outside else changes, (*entry.pending_by, *done), views, cascade)
                with durable(self.store):
                    faults.reach("alter: journalled")
                    self._show(before, after, backend)
                    self.saved.add(made)
                    for view in views:
                        view.entry.schema = view.relation.schema
                        self.catalog.add(view.relation)
                    self.cascades.show(cascade, after.name)
                self._follow_views(users)
            if cascade.removal is not None:
                cascade.removal.finish()
        self.store.visibility.committed()

    def _follow_views(self, users: Sequence[User]) -> None:
        """Lets materialized views find the new columns, also through named ones, before the next commit."""
        for live in [live for user in users if (live := self.views.get(user.name)) is not None]:
            self.drift.follow_table(live)

    def _resume(self, entry: SavedRelation | SavedQuery) -> None:
        """Starts a statement again with the text that it has now, if it is not dropped."""
        found = self.saved.get(entry.id)
        if isinstance(found, SavedRelation | SavedQuery):
            self.go_on(found)

    @contextmanager
    def _alone(self, table: Backend) -> Iterator[None]:
        """Runs the code inside while nobody else writes the table. A later writer finds its new columns."""
        database = table.database
        with nullcontext() if database is None else self.store.gate.closed(database), self.store.writing:
            yield

    def _change_outside(
        self, entry: SavedRelation, change: ColumnChange, done: tuple[str, ...], cascade: Cascade
    ) -> Backend:
        """Changes a table in its database. If the answer is lost, the next start, or the same statement again, makes
        the change, or finds that it is made.
        """
        backend, journal = self.store.backend(entry.name), self.store.journal
        begun = dataclasses.replace(
            entry, pending=change, pending_by=(*entry.pending_by, *done), pending_with=cascade.revision()
        )
        journal.put_entry(begun.entry())
        self.saved.add(begun)
        faults.reach("alter: pending")
        try:
            made = backend.alter(change)
        except ConnectionLost:
            raise
        except Error:
            refused = settled(entry)
            journal.put_entry(refused.entry())
            self.saved.add(refused)
            raise
        faults.reach("alter: changed in the database")
        return made

    def _journal(
        self,
        made: SavedRelation,
        changes: Sequence[ColumnChange],
        done: tuple[str, ...],
        views: Sequence[RenewedView],
        cascade: Cascade,
    ) -> None:
        altered = made.altered
        renewed = [dataclasses.replace(view.entry, schema=view.relation.schema).entry() for view in views]

        def revision(number: int) -> Revision:
            made.altered = altered
            for change in changes:
                if not isinstance(change, DefaultedColumn):  # rows stay as they are
                    made.altered = made.altered.and_then(number, change)
            return Revision([made.entry(), *renewed], done=done).and_then(cascade.revision())

        self.store.journal.alter(revision)

    def _show(self, before: Relation, after: Relation, backend: Backend) -> None:
        """Lets everybody see the table as it is now."""
        self.store.replace(before.name, backend, after.name)
        # A waiting writer must find out, when it is its turn, that the table has other columns.
        if after.name != before.name:
            self.catalog.remove(before.name)
        self.catalog.add(dataclasses.replace(after, stored_in=before.stored_in))
        self.follow(before.name, after.name)
        if after.name != before.name:
            self.publications.remove(before.name)
        self.publications.add(after)
        why = "the columns of the table have changed"
        if after.name != before.name:
            why = f'the table has a new name: "{after.name}"'
        with self.store.publishing:
            self.store.feed.lose([before.name.lower()], why)
        faults.reach("alter: shown")

    # names and options

    def _rename(
        self,
        entry: SavedRelation,
        before: Relation,
        after: Relation,
        done: tuple[str, ...],
        users: Sequence[User],
        cascade: Cascade,
    ) -> None:
        backend = self.store.backend(before.name)
        options = dict(entry.options)
        if (stored := backend.behind.stored_name) is not None:
            options["table"] = stored
        made = dataclasses.replace(
            entry, name=after.name, options=options, first_name=entry.first_name or before.name
        )
        moves = before.name.lower() != after.name.lower()
        again = stopped([u for u in users if u.pipeline], self.runner, self._resume)
        with again, self.views.between_rounds(), self._alone(backend):
            drop = [(entry.kind, entry.name)] if moves else []
            renames = [(before.name, after.name)] if moves else []
            journal = self.store.journal
            ran = marks_of(journal, before.name) if moves else []
            done = (*done, *(note(m, after.name) for m in ran))
            undone = [note(m, before.name) for m in ran]
            revision = Revision([made.entry()], drop, renames=renames, done=done, undone=undone)
            journal.alter(lambda _: revision.and_then(cascade.revision()))
            with durable(self.store):
                faults.reach("alter: journalled")
                backend.rename(after.name)
                known = self.store.options[before.name.lower()]
                self.store.options[before.name.lower()] = {**known, "table": options.get("table")}
                self._show(before, after, backend)
                self.saved.forget(entry.id)
                self.saved.add(made)
                self.cascades.show(cascade, after.name)
            self._follow_views(users)
        self.store.visibility.committed()

    def check_live_options(self, table: Relation, names: Iterable[str], place: Place | None) -> None:
        """Raises an error for an option that cannot change while the table is used."""
        check_live(options_of(table, self.store), table, names, place)

    def _set(
        self,
        action: st.SetOptions,
        entry: SavedRelation,
        table: Relation,
        writers: Sequence[User],
        done: tuple[str, ...],
    ) -> None:
        declared = options_of(table, self.store)
        for setting in action.settings:
            if (option := find_option(declared, setting.name)) is not None:
                self.check_live_options(table, [option.name], setting.place)
        read = read_options(f'table "{table.name}"', declared, action.settings)
        named = {o.name for x in action.settings if (o := find_option(declared, x.name)) is not None}
        self.set_options({name: read[name] for name in named}, entry, table, writers, done)

    def set_options(
        self,
        changed: Mapping[str, Any],
        entry: SavedRelation,
        table: Relation,
        writers: Sequence[User],
        done: tuple[str, ...],
    ) -> None:
        """Gives a table other values of options that may change while it is used; ``entry`` has the others."""
        known, named = self.store.options[table.name.lower()], changed.keys()
        values = {**known, **changed}
        made = dataclasses.replace(entry, options=without_secrets({**entry.options, **values}))
        strict = values.get("on.conflict") == "error"
        if strict and not table.schema.key:
            raise InvalidOption(f"table \"{table.name}\" has no primary key: 'on.conflict' has no meaning")
        ttl = ttl_of(values)
        for name in named & {"ttl", "max_memory"}:
            if not values.get(name) or not known.get(name):
                raise InvalidOption(f"table \"{table.name}\" was created without '{name}'")
        # Nothing else than this option is compiled into statements that write the table.
        with stopped(writers if strict != table.strict else (), self.runner, self.go_on), self.store.writing:
            self.store.journal.alter(lambda _: Revision([made.entry()], done=done))
            with durable(self.store):
                faults.reach("alter: journalled")
                self.store.options[table.name.lower()] = values
                self.store.backend(table.name).set_options(values)
                self.catalog.add(dataclasses.replace(table, strict=strict, ttl=ttl))
                self.follow(table.name, table.name)
                self.saved.add(made)
