"""Runs CREATE OR REPLACE of what exists: finds out what has to happen, and does it.

``way_of`` says what, and changes nothing; ``replace`` does it. What reads the old one is checked with the new one
first: if something would not fit, the statement is refused with its name.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, assert_never

from millpond import faults
from millpond.alter.alter_table import Alters
from millpond.alter.interruption import durable, stopped
from millpond.alter.pending_changes import refuse_pending
from millpond.errors import Conflict, Error, NotSupported
from millpond.journal.revision import Revision
from millpond.loading.open_sources import Sources
from millpond.query.result import Result
from millpond.replace.chains import Chains, Link
from millpond.replace.columns import as_spelled, changed_options, changes_of, column_changes
from millpond.replace.meaning import means_the_same
from millpond.replace.shadow import Shadow, Shadows
from millpond.replace.swap import Exchange, Swaps
from millpond.replace.users_of_names import naming
from millpond.replace.ways import Way
from millpond.sql import statements as st
from millpond.sql.catalog import Relation
from millpond.sql.checked import (
    Checked,
    CheckedCapture,
    CheckedCreate,
    CheckedStream,
    CheckedStreamAs,
    CheckedTable,
    CheckedTableAs,
)
from millpond.sql.identity import identity
from millpond.sql.parse import parse
from millpond.sql.printer import print_name
from millpond.sql.variable_values import has_values
from millpond.statements.declarations import Declarations
from millpond.statements.handlers import NOTHING
from millpond.store.catalog import SavedRelation, saved, table_options
from millpond.store.undo import Undo


@dataclass(eq=False, repr=False)
class Replacements:
    """Replaces relations. ``alters`` changes tables and has what both use, ``shadows`` builds others beside them, which
    ``swaps`` puts in their place; ``chains`` does so with streams and what reads them.
    """

    alters: Alters
    shadows: Shadows
    swaps: Swaps
    chains: Chains
    declarations: Declarations
    sources: Sources

    def __post_init__(self) -> None:
        of = self.alters
        self.catalog, self.store, self.saved, self.users = of.catalog, of.store, of.saved, of.users
        self.runner, self.views, self.drift, self.go_on = of.runner, of.views, of.drift, of.go_on
        self.ways = self.chains.ways

    def there(self, checked: CheckedCreate) -> Relation | None:
        """Returns what a statement would replace."""
        return self.catalog.find(checked.relation.name)

    def replace(self, checked: CheckedCreate, undo: Undo, *, remember: bool = True) -> Result:
        """Replaces what has the name of the statement. With ``remember`` a file that still has the old statement goes
        on with the new one.
        """
        checked = self.alters.with_types(checked)
        before = self.there(checked)
        assert before is not None
        entry = self._entry(before, checked.statement)
        way = self.way_of(checked)
        made = saved(checked, identity(checked.statement))
        made.of_file = entry.of_file
        known = dict.fromkeys((*entry.replaced, entry.identity)) if remember else {}
        made.replaced = tuple(i for i in known if i != made.identity)
        self.saved.unclaimed.pop(entry.id, None)
        match way.kind:
            case "kept":
                self._rewrite(checked, entry, made)
            case "altered":
                assert isinstance(checked, CheckedTable)
                self._alter(checked, way, entry, made)
            case "renewed":
                self._renew(checked, before, way, made, undo)
            case "rebuilt":
                assert isinstance(checked, CheckedTableAs)
                self.swap(self.shadows.begin(checked, before, undo), checked, made)
            case "chained":
                self.chains.replace([Link(entry, checked.statement.text, made)], undo)
            case "emptied":
                self._empty(checked, before, made, undo)
            case other:
                assert_never(other)
        return Result(NOTHING, count=0)

    def swap(self, shadow: Shadow, checked: CheckedTableAs, made: SavedRelation) -> None:
        """Puts what a statement has built in the place of the old table, when it has caught up."""
        self.shadows.catch_up(shadow)
        self._check_meaning(checked)
        way = self.way_of(checked)  # others may have come to use it meanwhile
        self._index(shadow.relation.name, shadow.before)
        self.swaps.swap([Exchange(shadow, made, way.users, way.views)])

    def explain(self, checked: Checked) -> list[str]:
        """Returns a line that says what a statement replaces, and how. Raises an error if it would be refused."""
        before = self.there(checked) if isinstance(checked, CheckedCreate) else None
        if before is None or not isinstance(checked, CheckedCreate):
            return []
        way = self.way_of(self.alters.with_types(checked))
        return [f'replaces: {before.kind} "{before.name}", which {way}']

    def _entry(self, before: Relation, s: st.Statement) -> SavedRelation:
        entry = self.saved.relation(f"{before.kind}:{before.name}")
        if entry is None or self.alters.read_only:
            raise NotSupported(f'"{before.name}" cannot be replaced: the app keeps it', place=s.place)
        return entry

    # what has to happen

    def way_of(self, checked: CheckedCreate) -> Way:
        """Returns what becomes of the relation that a statement replaces. Raises an error if it cannot be replaced;
        nothing is changed.
        """
        before = self.there(checked)
        assert before is not None
        entry = self._entry(before, checked.statement)
        old = self.users.checked(entry, self.catalog)
        if isinstance(checked, CheckedTable) and isinstance(old, CheckedTable):
            return self._way_of_table(checked, before, entry)
        if has_values(checked.statement, entry.fingerprint):
            if entry.identity == identity(checked.statement):
                return Way("kept")
            if isinstance(old, CheckedCreate) and means_the_same(old, checked):
                return Way("kept")
        if before.kind == "view":
            return self._way_of_view(checked, before)
        if before.kind == "stream":
            return self._way_of_stream(checked, old, before)
        return self.ways.of_table(checked, old, before)

    def _way_of_table(self, checked: CheckedTable, before: Relation, entry: SavedRelation) -> Way:
        refuse_pending(entry, checked.statement)
        columns = column_changes(before, checked.relation, checked.statement)
        options = changed_options(self.store.options[before.name.lower()], checked.table_options)
        if columns and options:
            raise NotSupported(
                f'columns and options of table "{before.name}" cannot change in one statement',
                hint=f"ALTER TABLE {print_name(before.name)} SET (…) first",
                place=checked.statement.place,
            )
        if not columns and not options:
            return Way("kept")
        self.alters.check_live_options(before, options, checked.statement.place)
        return Way("altered", tuple(columns), tuple(options.items()))

    def _way_of_view(self, checked: CheckedCreate, before: Relation) -> Way:
        """Checks what reads a view that is replaced. Named views and materialized views follow it, and so do joins
        with it. A statement whose stream is read through the view would have to begin again.
        """
        users = naming(before.name, self.saved, self.users, self.runner, self.views)
        running = before.running or checked.relation.running
        self.ways.refuse(
            [u for u in users if (u.pipeline and running) or (not u.pipeline and u.loads)],
            before,
            "whose rows came from the old one",
            checked.statement,
        )
        return self.ways.fitting("renewed", users, before, checked)

    def _way_of_stream(self, checked: CheckedCreate, old: object, before: Relation) -> Way:
        users = [u for u in self.users.of(before) if u.name != f"stream:{before.name}"]
        same = dataclasses.replace(
            checked.relation, name=before.name, limits=before.limits, retention=before.retention
        )
        plain = type(checked) is CheckedStream and type(old) is CheckedStream
        if plain and same == before and self._same_source(checked):
            return self.ways.fitting("renewed", users, before, checked)
        if isinstance(old, CheckedStreamAs) and isinstance(checked, CheckedStreamAs):
            return self.chains.way_of(checked, before)
        self.ways.refuse(users, before, "which has read it up to its position", checked.statement)
        if isinstance(checked, CheckedCapture) or isinstance(old, CheckedCapture):
            raise NotSupported(
                f'stream "{before.name}" has the changes of a table of a database: it cannot be replaced',
                hint=f"DROP STREAM {print_name(before.name)}, and create it again",
                place=checked.statement.place,
            )
        return Way("emptied")

    def _same_source(self, checked: CheckedCreate) -> bool:
        assert isinstance(checked, CheckedStream)
        return all(self.sources.values.get(name) == v for name, v in checked.source_options.items())

    def _check_meaning(self, checked: CheckedTableAs) -> None:
        """Raises an error if the statement has another meaning by now: views that it reads may have changed."""
        parsed = parse(checked.statement.text)
        why = "something that its query reads was changed while it was built"
        try:
            again = self.alters.with_types(self.alters.checks.anew(parsed.require()[0], parsed.script.place))
        except Error as error:
            why, again = error.message, None
        if not isinstance(again, CheckedTableAs) or not means_the_same(checked, again):
            raise Conflict(
                f'table "{checked.relation.name}" stays as it is: {why}',
                hint="run the statement again",
                place=checked.statement.place,
            )

    # doing it

    def _rewrite(self, checked: CheckedCreate, entry: SavedRelation, made: SavedRelation) -> None:
        """Gives what stays as it is the new text: a star in it follows columns that come later."""
        if made.identity == entry.identity:
            return
        text: dict[str, Any] = {"text": made.text, "identity": made.identity, "replaced": made.replaced}
        text["fingerprint"] = made.fingerprint
        kept = dataclasses.replace(entry, **text, changed=False)
        with self.store.writing:
            self.store.journal.alter(lambda _: Revision([kept.entry()]))
            with durable(self.store):
                faults.reach("replace: journalled")
                self.saved.add(kept)
                if entry.kind == "view":
                    self.catalog.add(checked.relation)

    def _alter(self, checked: CheckedTable, way: Way, entry: SavedRelation, made: SavedRelation) -> None:
        before = self.there(checked)
        assert before is not None
        s = checked.statement
        text: dict[str, Any] = {
            "text": made.text,
            "identity": made.identity,
            "replaced": made.replaced,
            "changed": False,
        }
        if way.options:
            writers = [u for u in self.users.of(before) if u.pipeline and u.writes]
            self.alters.set_options(
                dict(way.options), dataclasses.replace(entry, **text), before, writers, ()
            )
            return
        after = dataclasses.replace(before, schema=as_spelled(checked.relation.schema, before.schema))
        changes = changes_of(list(way.columns), before, after, s, self.alters.evaluator)
        altered = dataclasses.replace(entry, schema=after.schema, **text)
        self.alters.change_columns(changes, (entry, altered), (before, after), s.place)

    def _renew(
        self, checked: CheckedCreate, before: Relation, way: Way, made: SavedRelation, undo: Undo
    ) -> None:
        """Gives a view or stream its new definition, and lets what reads it follow."""
        faults.reach("replace: begun")
        renewed = [dataclasses.replace(v.entry, schema=v.relation.schema).entry() for v in way.views]
        with stopped(way.readers, self.runner, self.go_on), self.views.between_rounds(), self.store.writing:
            if isinstance(checked, CheckedStream):
                undo.put(self.sources.values, checked.source_options)
            self.store.journal.alter(lambda _: Revision([made.entry(), *renewed]))
            with durable(self.store):
                faults.reach("replace: journalled")
                self.saved.forget(f"{before.kind}:{before.name}")
                self.saved.add(made)
                self.catalog.add(checked.relation)
                self.declarations.old_rows.watch(checked.relation)
                for view in way.views:
                    view.entry.schema = view.relation.schema
                    self.catalog.add(view.relation)
            for live in [v for u in way.users if (v := self.views.get(u.name)) is not None]:
                self.drift.follow_table(live)
        self.store.visibility.committed()

    def _index(self, table: str, before: Relation) -> None:
        """Creates the indexes of the old table on the new one."""
        for index in self.catalog.indexes(before.name):
            self.store.backend(table).create_index(index.columns)

    def _empty(self, checked: CheckedCreate, before: Relation, made: SavedRelation, undo: Undo) -> None:
        """Lets a stream that nothing reads begin again with its new definition."""
        name, query, journal = before.name, f"stream:{before.name}", self.store.journal
        owned = [n for s in self.runner.statements(query) for n in s.owned]
        parts = [p for p, owner in self.runner.parts.items() if owner == query]
        revision = Revision(
            [made.entry()],
            tables=[n for n in owned if journal.has_table(n)],
            streams=[name] if journal.stream_end(name) else [],
            positions=[p for p in {*parts, query} if journal.position(p) is not None],
        )
        faults.reach("replace: begun")
        with stopped((), self.runner, self.go_on) as after:
            self.runner.aside.put(query, self.runner)
            after.callback(
                lambda: self.go_on(self._entry(self.catalog.find(name) or before, checked.statement))
            )
            with self.store.writing:
                journal.alter(lambda _: revision)
                with durable(self.store):
                    faults.reach("replace: journalled")
                    for statement in self.runner.aside.remove(query):
                        statement.drop()
                    self.saved.forget(query)
                    self.saved.add(made)
                    if isinstance(checked, CheckedStream):
                        undo.put(self.sources.values, checked.source_options)
                    self.declarations.publications.remove(name)
                    self.declarations.open(checked.relation, table_options(checked))
