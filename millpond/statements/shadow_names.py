"""Finds what is kept beside a table, by its name."""

from __future__ import annotations

from dataclasses import replace

from millpond.sql.catalog import Catalog, Relation
from millpond.sql.reserved_names import difference_of, is_shadow, shadow_of, without_shadow
from millpond.statements.saved_statements import SavedStatements
from millpond.store.catalog import Saved, SavedRelation


def shadows_of(relation: Relation, catalog: Catalog) -> list[Relation]:
    """Returns what goes with a table: what is built beside it, and the view that compares both."""
    if relation.kind != "table":
        return []
    names = [difference_of(without_shadow(relation.name))]
    names += [] if is_shadow(relation.name) else [shadow_of(relation.name)]
    return [found for name in names if (found := catalog.find(name)) is not None]


def without_note(names: set[str], entries: SavedStatements) -> list[SavedRelation]:
    """Returns the entries of the tables that stay as they are, since what was kept beside them is among ``names``."""
    tables = [n for n in names if is_shadow(n) and without_shadow(n).lower() not in names]
    found = [entries.relation(f"table:{without_shadow(n)}") for n in tables]
    return [replace(e, following=None) for e in found if e is not None and e.shadowed]


def without_shadows(saved: SavedStatements) -> dict[str, Saved]:
    """Returns the statements of a state directory without what is kept beside its tables."""
    own = {
        name
        for entry in saved.entries.values()
        if is_shadow(entry.name)
        for name in (entry.id, f"view:{difference_of(without_shadow(entry.name))}".lower())
    }
    return {name: entry for name, entry in saved.entries.items() if name not in own}
