"""Finds what ALTER TABLE … CASCADE does to the statements that use a column or table.

What uses a renamed one follows: its stored text gets the new name, and means the same. What uses a dropped column is
dropped, with what uses that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from millpond.alter.column_users import ColumnUsers, RenewedView, User
from millpond.alterations import AddedColumn, ColumnChange, DroppedColumn, RenamedColumn
from millpond.errors import Error, InUse, Place
from millpond.journal.revision import Revision
from millpond.sql.blocks import grouped
from millpond.sql.catalog import Catalog, Index, Relation
from millpond.sql.checked import Checked, CheckedCreate, CheckedInsert, CheckedSelect
from millpond.sql.identity import identity
from millpond.sql.meaning import meaning, renamed_query, same_schema
from millpond.sql.parse import parse
from millpond.sql.references import References
from millpond.sql.renames import Renamed, rename_in
from millpond.sql.reserved_names import is_shadow
from millpond.sql.written_rows import around_of, queries_of
from millpond.statements.drop import Removal, Removals
from millpond.statements.saved_statements import SavedStatements
from millpond.store.catalog import Saved, SavedIndex, SavedQuery, SavedRelation, relation_of
from millpond.types import Schema

E = TypeVar("E", bound=Saved)


@dataclass(frozen=True)
class Cascade:
    """Contains what changes with a table. ``entries`` are saved statements with their new texts, ``views`` the named
    ones among them, ``indexes`` those of the table before and after; ``removal`` is what is dropped.
    """

    entries: tuple[Saved, ...] = ()
    views: tuple[RenewedView, ...] = ()
    indexes: tuple[tuple[Index, Index | None], ...] = ()
    removal: Removal | None = None
    removed: tuple[User, ...] = ()
    """The running statements among what is dropped that could go on if it is not."""
    forgets: Revision = field(default_factory=Revision)
    """What the journal forgets."""
    gone: tuple[str, ...] = ()
    """The identities of the statements that are dropped."""

    def revision(self) -> Revision:
        """Returns what changes in the journal."""
        return Revision([e.entry() for e in self.entries]).and_then(self.forgets)

    def table(self) -> pa.Table:
        """Returns what has followed or was dropped as rows."""
        rows = [("follows", e.kind, e.name) for e in self.entries]
        if self.removal is not None:
            own = {f"{r.kind}:{r.name}".lower() for r in self.removal.relations}
            rows += [("dropped", r.kind, r.name) for r in self.removal.relations]
            rows += [("dropped", "query", q) for q in self.removal.queries if q.lower() not in own]
        rows += [("dropped", "index", before.name) for before, after in self.indexes if after is None]
        return pa.Table.from_pylist(
            [dict(zip(SHOWN.names, row, strict=True)) for row in sorted(rows)], schema=SHOWN
        )


SHOWN = pa.schema([("action", pa.string()), ("kind", pa.string()), ("name", pa.string())])


@dataclass(frozen=True, eq=False, repr=False)
class Cascades:
    """Finds what follows a table, and what is dropped with a column."""

    users: ColumnUsers
    removals: Removals

    @property
    def _saved(self) -> SavedStatements:
        return self.users.saved

    def follow(
        self, users: Sequence[User], before: Relation, after: Relation, renamed: Renamed, place: Place | None
    ) -> Cascade:
        """Returns what follows a table with another name, or another name of a column. Raises InUse for a statement
        that cannot.
        """
        catalog = self.users.catalog.copy()
        if after.name.lower() != before.name.lower():
            catalog.remove(before.name)
        catalog.add(after)
        entries: list[Saved] = []
        views: list[RenewedView] = []
        for user in users:
            try:
                made = self._followed(user, catalog, before, renamed)
            except Error as error:
                raise InUse(
                    f'table "{before.name}" is used by {user.shown}, which cannot follow: {error.message}',
                    hint="drop it first, and create it with the new name after the change",
                    place=place,
                ) from error
            if made is None:
                continue
            entries.append(made)
            if isinstance(made, SavedRelation) and made.kind == "view":
                views.append(RenewedView(made, relation_of(made, parse(made.text))))
                catalog.add(views[-1].relation)
        indexes = [
            (i, _renamed_index(i, renamed))
            for i in self.users.catalog.indexes(before.name)
            if _renamed_index(i, renamed) != i
        ]
        for index, _ in indexes:
            entry = self._saved.get(f"index:{index.name}")
            if isinstance(entry, SavedIndex):
                entries.append(_with_text(entry, rename_in(entry.text, renamed, References())))
        return Cascade(tuple(entries), tuple(views), tuple(indexes))

    def _followed(
        self, user: User, catalog: Catalog, table: Relation, renamed: Renamed
    ) -> SavedRelation | SavedQuery | None:
        """Returns the saved statement with its new text; None if that stays."""
        if user.entry is None:
            raise InUse("it is a SELECT that runs until it is stopped")
        if is_shadow(user.entry.name):
            raise InUse("it is built beside another table: swap both, or drop it")
        before, references = self._references(user.entry)
        if any(i.relation.changing for i in before.inputs):
            raise InUse("its changelog has the rows and columns of the table as it is")
        text = rename_in(user.entry.text, renamed, references)
        made = _with_text(user.entry, text)
        after = self.users.checked(made, catalog)
        if not _same(before, after, renamed):
            raise InUse("its text would mean something else with the new name")
        return None if text == user.entry.text else made

    def _references(self, entry: SavedRelation | SavedQuery) -> tuple[Checked, References]:
        """Returns a statement as it is checked now, and what it refers to."""
        noted = self.users.catalog.copy()
        noted.references = References()
        return self.users.checked(entry, noted), noted.references

    def gather(self, users: Sequence[User], table: Relation, column: str) -> Removal:
        """Returns what goes with a column: what reads or writes it, and what uses that."""
        readers = self.users.readers(users, table, column, drops=True)
        readers = [u for u in readers if self._names(u, table, column)]
        named = [u.name.partition(":")[2] for u in readers if u.name.startswith("view:")]
        relations = [r for name in named if (r := self.users.catalog.find(name)) is not None]
        return self.removals.together(relations, [u.name for u in readers if not u.name.startswith("view:")])

    def _names(self, user: User, table: Relation, column: str) -> bool:
        """Returns whether a statement names a column of the table, and not only one of another table."""
        if user.entry is None:
            return True
        checked, references = self._references(user.entry)
        if isinstance(checked, CheckedCreate | CheckedInsert | CheckedSelect):
            return True
        other = Renamed(table.name, f"{column}_", column)
        return rename_in(user.entry.text, other, references) != user.entry.text

    def drop(self, removal: Removal, table: Relation, column: str) -> Cascade:
        """Returns what is dropped with a column."""
        catalog = self.users.catalog
        indexes = [
            (i, None) for i in catalog.indexes(table.name) if column.lower() in (c.lower() for c in i.columns)
        ]
        revision = removal.prepare() if removal.queries else None
        forgets = (revision or Revision()).and_then(Revision(drop=[("index", i.name) for i, _ in indexes]))
        names = {(kind, name.lower()) for kind, name in forgets.drop}
        gone = [e for e in self._saved.entries.values() if (e.kind, e.name.lower()) in names]
        running = [q for q in removal.queries if q in self.users.runner.names]
        stored = [(q, self._saved.relation(q) or self._saved.query(q)) for q in running]
        return Cascade(
            indexes=tuple(indexes),
            removal=removal if removal.queries else None,
            removed=tuple(User(q, f'query "{q}"', e, True) for q, e in stored if e is not None),
            forgets=forgets,
            gone=tuple(one for e in gone for one in (e.identity, *e.replaced)),
        )

    def show(self, cascade: Cascade, table: str) -> None:
        """Lets everybody see what has followed; what is dropped is no longer updated."""
        catalog, store = self.users.catalog, self.removals.store
        for entry in cascade.entries:
            known = self._saved.get(entry.id)
            assert known is not None
            known.text, known.identity, known.replaced = entry.text, entry.identity, entry.replaced
        catalog.add(*(view.relation for view in cascade.views))
        for before, after in cascade.indexes:
            catalog.remove_index(before.name)
            if after is None:
                self._saved.forget(f"index:{before.name}")
            elif store.backend(table).create_index(after.columns):
                catalog.add_index(after)
        for query in cascade.removal.queries if cascade.removal is not None else ():
            self.users.views.remove(query)


def _with_text(entry: E, text: str) -> E:
    made = identity(grouped(parse(text).require())[0])
    replaced = entry.replaced if made == entry.identity else (*entry.replaced, entry.identity)
    return dataclasses.replace(entry, text=text, identity=made, replaced=replaced)


def _renamed_index(index: Index, renamed: Renamed) -> Index:
    if renamed.column is None:
        return dataclasses.replace(index, table=renamed.new)
    old = renamed.column.lower()
    return dataclasses.replace(
        index, columns=tuple(renamed.new if c.lower() == old else c for c in index.columns)
    )


def _same(before: Checked, after: Checked, renamed: Renamed) -> bool:
    """Returns whether a statement means the same with another name."""
    if type(before) is not type(after) or around_of(before) != around_of(after):
        return False
    if not same_schema(_schema_of(before), _schema_of(after)):
        return False
    target = getattr(before.statement, "target", None)
    fills = isinstance(target, str) and target.lower() == renamed.table.lower()
    one, other = (
        [meaning(renamed_query(q, renamed, outputs=fills), lambda _: {}) for q in queries_of(checked)]
        for checked in (before, after)
    )
    return one == other


def _schema_of(checked: Checked) -> Schema:
    return checked.relation.schema if isinstance(checked, CheckedCreate) else Schema(())


def cascaded(entry: SavedRelation, change: ColumnChange, cascade: Cascade) -> dict[str, tuple[str, ...]]:
    """Returns which statements have gone with columns of a table that are still not there after a change."""
    found = dict(entry.cascaded)
    if isinstance(change, AddedColumn | RenamedColumn):
        found.pop((change.new if isinstance(change, RenamedColumn) else change.name).lower(), None)
    if isinstance(change, DroppedColumn) and cascade.gone:
        found[change.name.lower()] = cascade.gone
    return found
