"""Removes what was being built beside a table or stream when the app was killed."""

from __future__ import annotations

from millpond.journal.journal import Journal
from millpond.journal.revision import Revision
from millpond.sql.errortables import error_table
from millpond.sql.reserved_names import SHADOW, is_part
from millpond.store.query_states import QUERY_STATE

BUILDING = "building"
"""The kind of the journal entries for what is being built."""


def remove_unfinished(journal: Journal) -> None:
    """Removes what a kill has left of tables and streams that were being built."""
    names = [entry.name for entry in journal.entries() if entry.kind == BUILDING]
    queries = [f"{kind}:{name}" for name in names for kind in ("table", "stream")]
    own = {n.lower() for n in (*names, *map(error_table, queries))}
    known = journal.table_names()
    tables = [n for n in known if n in own or any(belongs(n, query) for query in queries)]
    streams = [name for name in names if journal.stream_end(name)]
    positions = [p for p in journal.positions() if any(is_part(p, q) for q in queries)]
    if names:
        paused = [e.name for e in journal.entries() if e.kind == QUERY_STATE and e.name in queries]
        drop = [*((BUILDING, name) for name in names), *((QUERY_STATE, query) for query in paused)]
        journal.revise(Revision(drop=drop, tables=tables, streams=streams, positions=positions))


def belongs(table: str, query: str) -> bool:
    """Returns whether a statement keeps the table beside its target."""
    rest = table[len(query) :] if table.startswith(f"{query.lower()}$") else ""
    return bool(rest) and rest != SHADOW and not rest.startswith(f"{SHADOW}$")
