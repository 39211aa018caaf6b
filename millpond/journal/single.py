"""The commit of one small change of one table, as one statement of SQLite.

Each statement lets go of the interpreter, and has to wait for it where other threads compute. A commit of five
statements waits five times.
"""

from __future__ import annotations

import sqlite3

from millpond.journal.blobs import Blob, seal
from millpond.journal.facts import Facts

_SET_UP = """
CREATE TEMP VIEW one_change (name, number, deletes, schema, rows, length, crc, data, seal,
    blobs, total, ledger, last, revision, state) AS
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
CREATE TEMP TRIGGER one_change_is_made INSTEAD OF INSERT ON one_change BEGIN
    INSERT INTO changes (name, number, is_snapshot, has_deletes, schema, rows, length, crc, offset, data, seal)
        VALUES (NEW.name, NEW.number, 0, NEW.deletes, NEW.schema, NEW.rows, NEW.length, NEW.crc, 0, NEW.data, NEW.seal);
    INSERT OR REPLACE INTO tables VALUES (NEW.name, NEW.blobs, NEW.total, NEW.ledger);
    INSERT OR REPLACE INTO state VALUES (1, NEW.last, NEW.revision, 0, NEW.state);
END;
"""
_WRITE = "INSERT INTO one_change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def set_up(connection: sqlite3.Connection) -> None:
    """What ``write`` needs, for the life of the connection."""
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.executescript(_SET_UP)


def write(
    connection: sqlite3.Connection, facts: Facts, name: str, blob: Blob, schema: int, deletes: bool
) -> None:
    """Stores the blob as the next commit, whole or not at all; the facts are then those after it."""
    last, revision = facts.last + 1, facts.revision + 1
    change = (name, last, 0, int(deletes), schema, blob.rows, blob.length, blob.crc, None, 0)
    sealed = seal(*change)
    blobs, total = facts.ledgers.get(name, (0, 0))
    ledger = (name, blobs + 1, (total + sealed) & 0xFFFFFFFF)
    state = (last, revision, 0)
    connection.execute(
        _WRITE,
        (name, last, int(deletes), schema, blob.rows, blob.length, blob.crc, blob.data, sealed)
        + (*ledger[1:], seal(*ledger), last, revision, seal(*state)),
    )
    facts.last, facts.revision = last, revision
    facts.ledgers[name] = ledger[1:]
