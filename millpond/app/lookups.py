"""Statements that read or change rows by their key or an index: the plans that ``App.sql`` keeps.

A plan is run for whoever sends its text, clients over HTTP too, and asks no gate. So a statement has one only if every
gate would let it through to whoever may read, or write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.errors import Error
from millpond.lookup import Lookup, Run
from millpond.records.values import Unfit
from millpond.sql import statements as st
from millpond.sql.bind import Binder
from millpond.sql.calls import calls_for_everybody
from millpond.sql.checked import Checked
from millpond.sql.keyed import keyed_write_of
from millpond.sql.lookup import lookup_of
from millpond.sql.outside import named_outside
from millpond.sql.parse import parse
from millpond.sql.template import name_of, template_of

if TYPE_CHECKING:
    from millpond.app.app import App


def plan_lookup(app: App, text: str, values: tuple[Any, ...]) -> Run | None:
    """The plan of a statement with parameters ``:__v0``, … for such values, if it is a lookup. One with a mistake has
    none: the long way says what is wrong."""
    lookup = _lookup(app, text, values) if app._evaluator.path == "auto" else None
    if lookup is None:
        return None
    _check_loaded(app, lookup.table)
    return app.table(lookup.table).compile_lookup(lookup)


def plan_write(app: App, text: str, values: tuple[Any, ...]) -> Run | None:
    """As ``plan_lookup``, of a statement that changes one row."""
    plain = app._evaluator.path == "auto" and not app._read_only
    checked = _checked(app, text, values) if plain else None
    write = None if checked is None else keyed_write_of(checked, values)
    if write is None:
        return None
    _check_loaded(app, write.table)
    change = app.table(write.table).compile_write(write)
    # A statement of a block is part of the block.
    return lambda *values: change(*values) if app._transaction is None else None


def _check_loaded(app: App, table: str) -> None:
    """Raises Unfit while a table is being loaded: the long way waits for it."""
    if app._loader.running((table,)):
        raise Unfit("the table is being loaded")


def lookup_columns(app: App, text: str) -> tuple[str, ...]:
    """The columns by which a statement is looked up; none if it goes another way."""
    template = template_of(text) if app._evaluator.path == "auto" else None
    values = None if template is None else template.values(None)
    lookup = None if template is None or values is None else _lookup(app, template.text, values)
    backend = None if lookup is None else app._store.table(lookup.table)
    if lookup is None or backend is None or "lookup" not in backend.abilities:
        return ()
    declared = [i.columns for i in app._catalog.indexes(lookup.table)]
    return lookup.columns(backend.schema.key, declared)


def _lookup(app: App, text: str, values: tuple[Any, ...]) -> Lookup | None:
    checked = _checked(app, text, values)
    if checked is None or checked.resolved is None:
        return None
    statement = checked.statement
    plain = (
        isinstance(statement, st.Select) and statement.query.window is None and statement.query.emit is None
    )
    return lookup_of(checked.resolved, values) if plain else None


def _checked(app: App, text: str, values: tuple[Any, ...]) -> Checked | None:
    """The statement, if it is one, has no mistake, and names and calls nothing that is not for everybody."""
    parsed = parse(text)
    binder = Binder({name_of(at): value for at, value in enumerate(values)})
    try:
        (statement,) = parsed.require()
        bound = binder.bind(statement)
        binder.finish()
        if not calls_for_everybody(bound) or any(named_outside(bound)):
            return None
        return app._checks.one(bound, parsed.script.place)
    except (Error, ValueError):
        return None
