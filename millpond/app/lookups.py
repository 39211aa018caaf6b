"""Statements that are lookups in a table: the plans that ``App.sql`` keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.app.script import check_one
from millpond.errors import Error
from millpond.lookup import Lookup, Run
from millpond.sql import statements as st
from millpond.sql.bind import Binder
from millpond.sql.lookup import lookup_of
from millpond.sql.parse import parse
from millpond.sql.template import name_of, template_of

if TYPE_CHECKING:
    from millpond.app.app import App


def plan_lookup(app: App, text: str, values: tuple[Any, ...]) -> Run | None:
    """The plan of a statement with parameters ``:__v0``, … for such values, if it is a lookup. One with a mistake has
    none: the long way says what is wrong."""
    lookup = _lookup(app, text, values) if app._evaluator.path == "auto" else None
    return None if lookup is None else app.table(lookup.table).compile_lookup(lookup)


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
    parsed = parse(text)
    binder = Binder({name_of(at): value for at, value in enumerate(values)})
    try:
        (statement,) = parsed.require()
        bound = binder.bind(statement)
        binder.finish()
        checked = check_one(app, bound, app._catalog.copy(), parsed.script.place)
    except (Error, ValueError):
        return None
    plain = isinstance(bound, st.Select) and bound.query.window is None and bound.query.emit is None
    return lookup_of(checked.resolved, values) if plain and checked.resolved is not None else None
