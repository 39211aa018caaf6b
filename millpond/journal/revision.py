"""Changes the catalog: entries are added and removed together with their rows and positions."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from millpond.journal.blob_rows import remove_rows
from millpond.journal.catalog import Entry, remove_entry, write_entry
from millpond.journal.commit_cache import Facts
from millpond.journal.renames import rename_changes, rename_stream
from millpond.journal.roll import trim

FINDINGS = "views"
"""The kind, and the name, of the entry with what was found of tables as they were: a revision removes it."""


@dataclass(frozen=True, slots=True)
class Revision:
    """Lists entries to put, entries to drop by kind and name, and the tables, streams and positions to forget. Removal
    comes first, so that a new statement finds nothing of an earlier one with the same name. ``renames`` are tables with
    their new names, ``flows`` streams with theirs, ``moved`` pipelines whose positions get another name, also in these
    streams. ``done`` are statements that must not run again, ``undone`` those that must.
    """

    put: Sequence[Entry] = ()
    drop: Sequence[tuple[str, str]] = ()
    tables: Sequence[str] = ()
    streams: Sequence[str] = ()
    positions: Sequence[str] = ()
    renames: Sequence[tuple[str, str]] = ()
    flows: Sequence[tuple[str, str]] = ()
    moved: Sequence[tuple[str, str]] = ()
    done: Sequence[str] = ()
    undone: Sequence[str] = ()

    def dump(self) -> dict[str, Any]:
        """Returns the revision as JSON."""
        put = [[e.name, e.kind, e.text, e.data] for e in self.put]
        return {"put": put} | {f.name: list(getattr(self, f.name)) for f in fields(self) if f.name != "put"}

    @staticmethod
    def load(data: Mapping[str, Any]) -> Revision:
        names = {f.name for f in fields(Revision)} - {"put", "drop"}
        rest = {name: [_pair(item) for item in data.get(name, ())] for name in names}
        drop = [(kind, name) for kind, name in data["drop"]]
        return Revision([Entry(*entry) for entry in data["put"]], drop, **rest)

    def and_then(self, other: Revision) -> Revision:
        """Returns this revision and another one as one."""
        both = {f.name: [*getattr(self, f.name), *getattr(other, f.name)] for f in fields(self)}
        return Revision(**both)


def _pair(item: Any) -> Any:
    return tuple(item) if isinstance(item, list) else item


def revise(connection: sqlite3.Connection, after: Facts, revision: Revision) -> list[str]:
    """Writes a revision; returns the files that contained removed rows."""
    files: list[str] = []
    for table in revision.tables:
        name = table.lower()
        after.drop_ledger(connection, name)
        files += forget_changes(connection, name, after.last)
    for stream in revision.streams:
        name = stream.lower()
        files += trim(connection, name, after.ends.get(name, 0))
        after.drop_end(connection, name)
    for pipeline in revision.positions:
        after.drop_position(connection, pipeline)
    for old, new in revision.renames:
        rename_changes(connection, after, old.lower(), new.lower())
    for old, new in revision.flows:
        rename_stream(connection, after, old.lower(), new.lower())
    for pipeline, named in revision.moved:
        after.move_position(connection, pipeline, named, dict(revision.flows))
    for statement in revision.undone:
        after.drop_done(connection, statement)
    for statement in revision.done:
        after.set_done(connection, statement)
    for kind, name in (*revision.drop, (FINDINGS, FINDINGS)):
        remove_entry(connection, kind, name)
    for entry in revision.put:
        write_entry(connection, entry)
    return files


def forget_changes(connection: sqlite3.Connection, table: str, up_to: int) -> list[str]:
    """Removes the table's changes of commits up to that number; returns the files that contained them."""
    return remove_rows(connection, "changes", "name = ? AND number <= ?", (table, up_to))
