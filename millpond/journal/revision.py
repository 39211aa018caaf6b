"""Changes of what is declared: entries come and go together with the rows and positions that belong to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from millpond.journal.catalog import Entry, remove_entry, write_entry
from millpond.journal.facts import Facts
from millpond.journal.roll import trim
from millpond.journal.stored import remove_rows


@dataclass(frozen=True, slots=True)
class Revision:
    """Entries to put, entries to drop by kind and name, and the tables, streams and positions to forget: what is
    forgotten goes first, so that a statement that is declared finds nothing of one that had its name."""

    put: Sequence[Entry] = ()
    drop: Sequence[tuple[str, str]] = ()
    tables: Sequence[str] = ()
    streams: Sequence[str] = ()
    positions: Sequence[str] = ()


def revise(connection: sqlite3.Connection, after: Facts, revision: Revision) -> list[str]:
    """Writes a revision; answers the files that rows were in that are forgotten."""
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
    for kind, name in revision.drop:
        remove_entry(connection, kind, name)
    for entry in revision.put:
        write_entry(connection, entry)
    return files


def forget_changes(connection: sqlite3.Connection, table: str, up_to: int) -> list[str]:
    """Removes the table's changes of commits up to that number; answers the files that they were in."""
    return remove_rows(connection, "changes", "name = ? AND number <= ?", (table, up_to))
