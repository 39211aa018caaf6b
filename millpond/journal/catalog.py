"""Stores the catalog of the app: the statements that created its streams, tables, views and queries."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from typing import Any

from millpond.journal.blobs import row_checksum
from millpond.journal.database import verified


@dataclass(frozen=True, slots=True)
class Entry:
    """Describes a named object of the app: its kind, the text that created it, and JSON data about it."""

    name: str
    kind: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)


def read_entries(connection: sqlite3.Connection) -> list[Entry]:
    """Returns all entries, in the order in which they were first put."""
    found = connection.execute("SELECT kind, name, spelled, text, data, seal FROM entries ORDER BY rowid")
    entries = []
    for kind, name, spelled, text, data, stored in found:
        verified(stored, f'the entry of {kind} "{spelled}"', kind, name, spelled, text, data)
        entries.append(Entry(spelled, kind, text, json.loads(data)))
    return entries


def write_entry(connection: sqlite3.Connection, entry: Entry) -> None:
    """Replaces the entry with the same kind and name, or appends it."""
    row = (entry.kind, entry.name.lower(), entry.name, entry.text, json.dumps(entry.data))
    connection.execute(
        "INSERT INTO entries (kind, name, spelled, text, data, seal) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (kind, name) DO UPDATE SET spelled = excluded.spelled, text = excluded.text,"
        " data = excluded.data, seal = excluded.seal",
        (*row, row_checksum(*row)),
    )


def remove_entry(connection: sqlite3.Connection, kind: str, name: str) -> None:
    connection.execute("DELETE FROM entries WHERE kind = ? AND name = ?", (kind, name.lower()))
