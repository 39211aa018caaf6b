"""Statements that read or change rows by their key or an index: the plans that ``App.sql`` keeps.

A plan is run for whoever sends its text, clients over HTTP too, and asks no gate. So a statement has one only if every
gate would let it through to whoever may read, or write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.app.script import Checks
from millpond.app.text_run import TextRun
from millpond.errors import Error
from millpond.loading.loader import Loader
from millpond.lookup import Lookup, Run
from millpond.query.evaluate import Evaluator
from millpond.query.table import Table
from millpond.records.values import Unfit
from millpond.sql import statements as st
from millpond.sql.bind import Binder
from millpond.sql.calls import calls_for_everybody
from millpond.sql.catalog import Catalog
from millpond.sql.checked import Checked
from millpond.sql.keyed import keyed_write_of
from millpond.sql.lookup import lookup_of
from millpond.sql.outside import named_outside
from millpond.sql.parse import parse
from millpond.sql.template import name_of, template_of
from millpond.store.store import Store


@dataclass(frozen=True, eq=False, repr=False)
class Lookups:
    """Makes plans of statements that name rows by their key or an index; ``table`` gives a table."""

    catalog: Catalog
    store: Store
    evaluator: Evaluator
    checks: Checks
    loader: Loader
    text: TextRun
    table: Callable[[str], Table]
    read_only: bool

    def plan_read(self, text: str, values: tuple[Any, ...]) -> Run | None:
        """The plan of a statement with parameters ``:__v0``, … for such values, if it is a lookup. One with a mistake
        has none: the long way says what is wrong."""
        lookup = self._lookup(text, values) if self.evaluator.path == "auto" else None
        if lookup is None:
            return None
        self._check_loaded(lookup.table)
        return self.table(lookup.table).compile_lookup(lookup)

    def plan_write(self, text: str, values: tuple[Any, ...]) -> Run | None:
        """As ``plan_lookup``, of a statement that changes one row."""
        plain = self.evaluator.path == "auto" and not self.read_only
        checked = self._checked(text, values) if plain else None
        write = None if checked is None else keyed_write_of(checked, values)
        if write is None:
            return None
        self._check_loaded(write.table)
        change = self.table(write.table).compile_write(write)
        # A statement of a block is part of the block.
        return lambda *values: change(*values) if self.text.transaction is None else None

    def _check_loaded(self, table: str) -> None:
        """Raises Unfit while a table is being loaded: the long way waits for it."""
        if self.loader.running((table,)):
            raise Unfit("the table is being loaded")

    def columns(self, text: str) -> tuple[str, ...]:
        """The columns by which a statement is looked up; none if it goes another way."""
        template = template_of(text) if self.evaluator.path == "auto" else None
        values = None if template is None else template.values(None)
        lookup = None if template is None or values is None else self._lookup(template.text, values)
        backend = None if lookup is None else self.store.table(lookup.table)
        if lookup is None or backend is None or "lookup" not in backend.abilities:
            return ()
        declared = [i.columns for i in self.catalog.indexes(lookup.table)]
        return lookup.columns(backend.schema.key, declared)

    def _lookup(self, text: str, values: tuple[Any, ...]) -> Lookup | None:
        checked = self._checked(text, values)
        if checked is None or checked.resolved is None:
            return None
        statement = checked.statement
        plain = (
            isinstance(statement, st.Select)
            and statement.query.window is None
            and statement.query.emit is None
        )
        return lookup_of(checked.resolved, values) if plain else None

    def _checked(self, text: str, values: tuple[Any, ...]) -> Checked | None:
        """The statement, if it is one, has no mistake, and names and calls nothing that is not for everybody."""
        parsed = parse(text)
        binder = Binder({name_of(at): value for at, value in enumerate(values)})
        try:
            (statement,) = parsed.require()
            bound = binder.bind(statement)
            binder.finish()
            if not calls_for_everybody(bound) or any(named_outside(bound)):
                return None
            return self.checks.one(bound, parsed.script.place)
        except (Error, ValueError):
            return None
