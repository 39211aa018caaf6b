"""Finds out whether what a query fills can be built again beside the old one, and what has to follow it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from millpond.alter.alter_table import Alters
from millpond.alter.column_users import User
from millpond.errors import InUse, NotSupported, SqlError
from millpond.replace.users_of_names import dependents
from millpond.replace.ways import Kind, Way
from millpond.sql import statements as st
from millpond.sql.catalog import Relation
from millpond.sql.checked import CheckedCreate, CheckedTable, CheckedTableAs
from millpond.sql.printer import print_name
from millpond.sql.reserved_names import difference_of
from millpond.sql.statements import CreateStream, CreateTable, CreateView
from millpond.store.catalog import table_options
from millpond.tables.flushed_table import FlushedTable
from millpond.tables.registry import find_backend


@dataclass(frozen=True, eq=False, repr=False)
class QueryWays:
    """Says what becomes of relations that queries fill. Everything here raises why it cannot, and changes nothing."""

    of: Alters

    def of_table(
        self, checked: CheckedCreate, old: object, before: Relation, built: Collection[str] = ()
    ) -> Way:
        """Returns what becomes of a table that a query fills. ``built`` are the queries of what is built with it."""
        s, table = checked.statement, before.name
        drop = f"DROP TABLE {print_name(table)} first"
        if not isinstance(checked, CheckedTableAs):
            raise NotSupported(f'the rows of table "{table}" come from its query', hint=drop, place=s.place)
        backend = self.of.store.backend(table)
        if isinstance(old, CheckedTable) and len(backend):
            raise NotSupported(
                f'the rows of table "{table}" come from statements: they cannot be built again from a query',
                hint=drop,
                place=s.place,
            )
        made = find_backend(str(table_options(checked).get("extension") or "memory"))
        flushed = isinstance(backend, FlushedTable) or issubclass(made, FlushedTable)
        if flushed or backend.database is not None or checked.relation.stored_in is not None:
            raise NotSupported(
                f'table "{table}" cannot be built again beside the old one: its rows are outside of the journal',
                hint=drop,
                place=s.place,
            )
        inputs = (*checked.inputs, *(old.inputs if isinstance(old, CheckedTableAs) else ()))
        if any(i.relation.captured for i in inputs):
            raise NotSupported(
                f'table "{table}" follows the changes of a database: it cannot be built again beside the old one',
                hint=drop,
                place=s.place,
            )
        refuse_errors_into(s, "table", drop)
        own = (f"table:{table}", f"view:{difference_of(table)}", *built)
        users = [u for u in self.of.users.of(before) if u.name not in own]
        self.refuse([u for u in users if u.writes], before, "which changes its rows", s)
        self._refuse_cycle(checked, before)
        for index in self.of.catalog.indexes(table):
            if missing := [c for c in index.columns if c not in checked.relation.schema]:
                raise InUse(
                    f'column "{missing[0]}" of table "{table}" is used by index "{index.name}"',
                    hint=f"DROP INDEX {print_name(index.name)} first",
                    place=s.place,
                )
        return self.fitting("rebuilt", users, before, checked)

    def fitting(self, kind: Kind, users: Sequence[User], before: Relation, checked: CheckedCreate) -> Way:
        """Returns the way if all that reads the relation can read the new one."""
        s, after = checked.statement, checked.relation
        fits = all(after.schema.find(c.name) == c for c in before.schema)
        self.refuse(
            [u for u in users if u.entry is None and (u.pipeline or not fits)],
            before,
            "which cannot start again by itself",
            s,
        )
        readers, views = self.of.users.renew(
            users, before, after, self.of.drift.can_widen, s.place, again=True, exactly=True
        )
        return Way(kind, users=tuple(users), readers=tuple(readers), views=tuple(views))

    def refuse(self, users: Sequence[User], before: Relation, why: str, s: st.Statement) -> None:
        """Raises an error that names what uses a relation, if something does."""
        if users:
            raise InUse(
                f'{before.kind} "{before.name}" is used by {", ".join(u.shown for u in users)}, {why}',
                hint="drop it first, and create it again after the change",
                place=s.place,
            )

    def _refuse_cycle(self, checked: CheckedTableAs, before: Relation) -> None:
        found = dependents(before.name, self.of.runner, self.of.views)
        through = sorted(name for name in checked.reads if name.lower() in found)
        if through:
            raise SqlError(
                f'table "{before.name}" would depend on itself, through "{through[0]}"',
                place=checked.statement.place,
            )


def refuse_errors_into(s: CreateStream | CreateTable | CreateView, kind: str, drop: str) -> None:
    """Raises an error if the statement of a table or stream that is built again writes its errors elsewhere."""
    if s.errors_into is not None:
        raise NotSupported(
            f"a {kind} whose statement has ERROR INTO cannot be built again: its errors would be there twice",
            hint=drop,
            place=s.place,
        )
