"""Finds what uses a table, and which of it a change of its columns would break."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from millpond.errors import Error, InUse, NotSupported, Place
from millpond.plan.plans import PipelinePlan
from millpond.sql import statements as st
from millpond.sql.blocks import grouped
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checked import Checked, CheckedWrite
from millpond.sql.parse import parse
from millpond.sql.reads import names_read
from millpond.sql.uses import uses_column
from millpond.statements.handlers import WithTypes
from millpond.statements.saved_statements import SavedStatements
from millpond.statements.script import Checks
from millpond.store.catalog import SavedQuery, SavedRelation
from millpond.streaming.runner import Runner
from millpond.views.materialized_view import Views


@dataclass(frozen=True)
class User:
    """Represents a statement that uses a table. ``entry`` is its saved statement, None for a running SELECT;
    ``writes`` says that it changes the table, ``loads`` that it has rows of it, and does not follow it.
    """

    name: str
    shown: str
    entry: SavedRelation | SavedQuery | None
    pipeline: bool
    writes: bool = False
    loads: bool = False


@dataclass(frozen=True)
class RenewedView:
    """Contains a named view with the columns that its query has after a change, and its saved statement."""

    entry: SavedRelation
    relation: Relation


@dataclass(frozen=True, eq=False, repr=False)
class ColumnUsers:
    """Finds the statements that use a table."""

    catalog: Catalog
    saved: SavedStatements
    checks: Checks
    runner: Runner
    views: Views
    with_types: WithTypes

    def of(self, table: Relation) -> list[User]:
        """Returns named views, running statements and materialized views that use a table, each once."""
        name = table.name.lower()
        found: dict[str, User] = {}
        for view in self.named_views(name):
            entry_name = f"view:{view.name}"
            found[entry_name] = User(
                entry_name, f'view "{view.name}"', self.saved.relation(entry_name), False
            )
        plans = [p.plan for p in self.runner] + [w.plan for w in self.runner.starter]
        for plan in plans:
            if name in _names(plan):
                writes = name in {n.lower() for n in (*plan.writes, plan.errors)}
                entry = self.saved.relation(plan.query) or self.saved.query(plan.query)
                found[plan.query] = User(plan.query, f'query "{plan.query}"', entry, True, writes)
        for live in self.views.users(table.name):
            plan_name = live.plan.name
            shown = f'table "{live.plan.target.name}"' if live.emit is None else f'query "{plan_name}"'
            found[plan_name] = User(plan_name, shown, self.saved.relation(plan_name), False)
        return list(found.values())

    def named_views(self, name: str) -> list[Relation]:
        """Returns the named views that read a table, also through other views: each after those that it reads."""
        names, found = {name}, dict[str, Relation]()
        more = True
        while more:
            more = False
            for relation in self.catalog:
                if relation.query is not None and relation.name.lower() not in found:
                    if names & names_read(relation.query):
                        found[relation.name.lower()] = relation
                        names.add(relation.name.lower())
                        more = True
        ordered: dict[str, Relation] = {}
        while len(ordered) < len(found):
            for known, relation in found.items():
                if relation.query is not None and not names_read(relation.query) & (
                    found.keys() - ordered.keys() - {known}
                ):
                    ordered.setdefault(known, relation)
        return list(ordered.values())

    def refuse_any(self, users: Sequence[User], table: Relation, place: Place | None) -> None:
        """Raises InUse if a statement names the table."""
        listed = [u.shown for u in users] + [f'index "{i.name}"' for i in self.catalog.indexes(table.name)]
        if listed:
            raise InUse(
                f'table "{table.name}" is used by {", ".join(listed)}, which would not find it under another name',
                hint="drop them first, and create them with the new name after it; with CASCADE at its end, the"
                " statement gives them the new name",
                place=place,
            )

    def refuse(
        self,
        users: Sequence[User],
        before: Relation,
        after: Relation,
        s: st.AlterTable,
        can_widen: Callable[[Relation, CheckedWrite], bool],
    ) -> tuple[list[User], list[RenewedView]]:
        """Raises InUse if the change would break a statement. Returns those that must start again with new columns, and
        named views that get other columns.
        """
        column = _changed_column(s.action)
        if column is not None:
            self._refuse_readers(users, before, column, s)
        return self.renew(users, before, after, can_widen, s.place, again=column is not None)

    def renew(
        self,
        users: Sequence[User],
        before: Relation,
        after: Relation,
        can_widen: Callable[[Relation, CheckedWrite], bool],
        place: Place | None,
        *,
        again: bool,
        exactly: bool = False,
    ) -> tuple[list[User], list[RenewedView]]:
        """Works as ``refuse``, for any change of a relation. With ``again`` all running statements start again; with
        ``exactly`` what a statement fills must be able to get the columns that it has then.
        """
        starting, renewed = list[User](), list[RenewedView]()
        catalog = self.catalog.copy()
        catalog.add(after)
        for user in users:
            if user.entry is None:
                continue
            try:
                checked = self.checked(user.entry, catalog)
                if any(i.relation.changing for i in checked.inputs):
                    raise NotSupported("its changelog has the rows and columns of the table as it is")
                schema = [query.schema for query in checked.queries]
                was = [query.schema for query in self.checked(user.entry, self.catalog).queries]
                tables = ("table", "stream") if exactly else ("table",)
                filled = catalog.find(user.entry.name) if user.entry.kind in tables else None
                if filled is not None and (user.pipeline or exactly):
                    _check_filled(filled, checked, can_widen)
            except Error as error:
                raise InUse(
                    f'{before.kind} "{before.name}" is used by {user.shown}, which would fail: {error.message}',
                    hint=error.hint or "drop it first, and create it again after the change",
                    place=place,
                ) from error
            self._refuse_in_commit(user, before, catalog, place)
            if user.pipeline and (again or user.writes or schema != was):
                starting.append(user)
            known = catalog.find(user.entry.name) if user.entry.kind == "view" else None
            if known is not None and known.schema != schema[0] and not _names_given(user.entry):
                assert isinstance(user.entry, SavedRelation)
                renewed.append(RenewedView(user.entry, dataclasses.replace(known, schema=schema[0])))
                catalog.add(renewed[-1].relation)  # what reads it is checked with its new columns
        return starting, renewed

    def _refuse_in_commit(self, user: User, table: Relation, catalog: Catalog, place: Place | None) -> None:
        """Raises InUse for a table that changes in the commits of this one and would get other columns: that is not
        one commit.
        """
        live = self.views.get(user.name)
        if live is None or not live.plan.in_commit or user.entry is None:
            return
        if self.checked(user.entry, catalog, {}).queries[0].schema != live.schema:
            raise InUse(
                f'table "{table.name}" is used by {user.shown}, which changes in the same commit and would get other'
                " columns",
                hint="drop it first, and create it again after the change",
                place=place,
            )

    def _refuse_readers(self, users: Sequence[User], table: Relation, column: str, s: st.AlterTable) -> None:
        listed = [
            f'index "{i.name}"'
            for i in self.catalog.indexes(table.name)
            if column.lower() in (c.lower() for c in i.columns)
        ]
        drops = isinstance(s.action, st.DropColumn)
        listed += [user.shown for user in self.readers(users, table, column, drops=drops)]
        if listed:
            with_it = {st.DropColumn: "drops them too", st.RenameColumn: "gives them the new name"}
            effect = with_it.get(type(s.action))
            raise InUse(
                f'column "{column}" of table "{table.name}" is used by {", ".join(listed)}',
                hint="drop them first, and create them again after the change"
                + (f"; with CASCADE at its end, the statement {effect}" if effect else ""),
                place=s.place,
            )

    def readers(self, users: Sequence[User], table: Relation, column: str, *, drops: bool) -> list[User]:
        """Returns those that use a column, or of which that cannot be known: they cannot start again."""
        found = []
        for user in users:
            checked = None if user.entry is None else self.checked(user.entry, self.catalog)
            if checked is None or uses_column(checked, table.name, column, drops=drops):
                found.append(user)
        return found

    def checked(
        self, entry: SavedRelation | SavedQuery, catalog: Catalog, widths: Mapping[str, int] | None = None
    ) -> Checked:
        parsed = parse(entry.text)
        statement = grouped(parsed.require())[0]
        known = entry.widths if widths is None else widths
        return self.with_types(self.checks.kept(entry, statement, parsed.script.place, known, catalog))


def _check_filled(
    filled: Relation, checked: Checked, can_widen: Callable[[Relation, CheckedWrite], bool]
) -> None:
    """Raises an error if what a statement fills cannot get the columns that it has now."""
    if not isinstance(checked, CheckedWrite) or checked.changes.schema == filled.schema:
        return
    if filled.kind != "table" or not can_widen(filled, checked):
        raise NotSupported(f'its {filled.kind} "{filled.name}" cannot get the new columns')


def _changed_column(action: st.AlterAction) -> str | None:
    """Returns the column that is no longer the same after the statement."""
    match action:
        case st.RenameColumn(old, _):
            return old
        case st.DropColumn(name, _) | st.RetypeColumn(name, _):
            return name
    return None


def _names_given(entry: SavedRelation | SavedQuery) -> tuple[str, ...]:
    """Returns the names that a view gives to its columns."""
    statement = parse(entry.text).require()[0]
    return statement.names if isinstance(statement, st.CreateView) else ()


def _names(plan: PipelinePlan) -> set[str]:
    return {n.lower() for n in (*plan.reads, *plan.writes, plan.errors)}
