"""Finds statements that depend on a relation, by their texts or through others."""

from __future__ import annotations

import dataclasses

from millpond.alter.column_users import ColumnUsers, User
from millpond.sql.blocks import grouped
from millpond.sql.parse import parse
from millpond.sql.statement_text import place_of_word
from millpond.statements.saved_statements import SavedStatements
from millpond.store.catalog import SavedQuery, SavedRelation
from millpond.streaming.runner import Runner
from millpond.views.materialized_view import Views


def naming(view: str, saved: SavedStatements, users: ColumnUsers, runner: Runner, views: Views) -> list[User]:
    """Returns the statements whose text has the name of a view, or of a view over it. Plans know only what is under
    views.
    """
    over = [r.name for r in users.named_views(view.lower())]
    found: dict[str, User] = {}
    for name in over:
        entry_name = f"view:{name}"
        found[entry_name] = User(entry_name, f'view "{name}"', saved.relation(entry_name), False)
    running = set(runner.names)
    for entry in list(saved.entries.values()):
        if not isinstance(entry, SavedRelation | SavedQuery) or entry.kind == "view":
            continue
        statement = grouped(parse(entry.text).require())[0]
        if not any(place_of_word(statement, name) is not None for name in (view, *over)):
            continue
        query = entry.name if isinstance(entry, SavedQuery) else f"{entry.kind}:{entry.name}"
        shown = f'{entry.kind} "{entry.name}"'
        live = views.get(query) is not None
        user = User(query, shown, entry, query in running)
        found[query] = dataclasses.replace(user, loads=not live and query not in running)
    return list(found.values())


def dependents(table: str, runner: Runner, views: Views) -> set[str]:
    """Returns the names of what is filled from a table, also through others, in lower case."""
    steps = [
        ({n.lower() for n in plan.reads}, {n.lower() for n in plan.writes})
        for plan in [p.plan for p in runner] + [w.plan for w in runner.starter]
    ]
    steps += [(set(v.tables), {v.plan.target.name.lower()}) for v in views]
    found = {table.lower()}
    while more := {n for reads, writes in steps if reads & found for n in writes} - found:
        found |= more
    return found - {table.lower()}
