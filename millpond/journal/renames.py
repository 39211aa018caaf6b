"""Gives the changes of a table, or the rows of a stream, another name, within the caller's transaction."""

from __future__ import annotations

import sqlite3

from millpond.journal.blobs import row_checksum
from millpond.journal.commit_cache import Facts

_FACTS = "number, is_snapshot, has_deletes, schema, rows, length, crc, file, offset"
_SENT = "first, sent, schema, rows, length, crc, file, offset"


def rename_changes(connection: sqlite3.Connection, after: Facts, old: str, new: str) -> None:
    """Renames a table; the checksums of its changes contain the name. Names are in lower case."""
    if old not in after.ledgers:
        return
    found = connection.execute(f"SELECT id, {_FACTS} FROM changes WHERE name = ?", (old,)).fetchall()
    for row, *facts in found:
        seal = row_checksum(new, *facts)
        connection.execute("UPDATE changes SET name = ?, seal = ? WHERE id = ?", (new, seal, row))
    after.drop_ledger(connection, old)
    after.recount(connection, new)


def rename_stream(connection: sqlite3.Connection, after: Facts, old: str, new: str) -> None:
    """Renames a stream, with its numbers, in the place of one that is forgotten. Names are in lower case."""
    found = connection.execute(f"SELECT id, {_SENT} FROM segments WHERE name = ?", (old,)).fetchall()
    for row, *facts in found:
        seal = row_checksum(new, *facts)
        connection.execute("UPDATE segments SET name = ?, seal = ? WHERE id = ?", (new, seal, row))
    end, inline = after.ends.get(old), after.inline.get(old)
    after.drop_end(connection, old)
    if end is not None:
        after.set_end(connection, new, end)
    if inline is not None:
        after.inline[new] = inline
