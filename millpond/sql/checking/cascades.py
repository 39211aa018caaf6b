"""Lets the named views of a text follow ALTER TABLE … CASCADE, so that the statements after it can be checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millpond.sql import statements as st
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.parse import parse
from millpond.sql.references import References
from millpond.sql.renames import Renamed, rename_in
from millpond.sql.resolve.resolver import Resolver
from millpond.sql.windowing import lower_window

ResolverOf = Callable[[Catalog], Resolver]


def cascade_views(catalog: Catalog, table: Relation, s: st.AlterTable, resolver_of: ResolverOf) -> Catalog:
    """Returns the catalog, in which the table is as it was, with the views as they are after the statement."""
    made = catalog.copy()
    gone: set[str] = set()
    for view in [r for r in catalog if r.kind == "view" and r.text]:
        found = _references(view, catalog, resolver_of)
        match s.action:
            case st.DropColumn(name, _) if found.read(table.name, name):
                gone.add(view.name.lower())
            case st.RenameColumn(old, new) if found.read(table.name, old):
                made.add(_renamed(view, Renamed(table.name, new, old), found))
            case st.RenameTable(new) if any(t.table == table.name.lower() for t in found.tables.values()):
                made.add(_renamed(view, Renamed(table.name, new), found))
    while gone:
        for name in gone:
            made.remove(name)
        views = [r for r in made if r.kind == "view" and r.text]
        reads = {v.name.lower(): _references(v, catalog, resolver_of).tables.values() for v in views}
        gone = {v for v, tables in reads.items() if any(t.table not in made for t in tables)}
    return made


def _references(view: Relation, catalog: Catalog, resolver_of: ResolverOf) -> References:
    """Returns the names in the text of a view."""
    noted = catalog.copy()
    noted.references = found = References()
    statement = parse(view.text).require()[0]
    if isinstance(statement, st.CreateView):
        expression, _ = lower_window(statement.query, catalog, outputs=True)
        resolver_of(noted).resolve(expression)
    return found


def _renamed(view: Relation, renamed: Renamed, found: References) -> Relation:
    text = rename_in(view.text, renamed, found)
    statement = parse(text).require()[0]
    return replace(view, text=text, query=statement.query) if isinstance(statement, st.CreateView) else view
