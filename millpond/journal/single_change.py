"""Commits one small change of one table, as one SQLite statement.

Each statement releases the interpreter lock, and waits to get it back if other threads compute. A commit of five
statements waits five times.
"""

from __future__ import annotations

import sqlite3

from millpond.journal.blobs import Blob, row_checksum
from millpond.journal.commit_cache import NO_WEIGHT, Facts

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
    """Prepares the connection for single changes."""
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.executescript(_SET_UP)


class SingleChange:
    """Contains one small change of one table as the next commit: what is written, and what is then cached in memory."""

    __slots__ = ("_ledger", "_name", "_size", "last", "revision", "values")

    def __init__(self, facts: Facts, name: str, blob: Blob, schema: int, deletes: bool):
        self._name, self._size = name, blob.length
        self.last, self.revision = last, revision = facts.last + 1, facts.revision + 1
        change = (name, last, 0, int(deletes), schema, blob.rows, blob.length, blob.crc, None, 0)
        checksum = row_checksum(*change)
        blobs, total = facts.ledgers.get(name, (0, 0))
        self._ledger = (blobs + 1, (total + checksum) & 0xFFFFFFFF)
        self.values = (
            (name, last, int(deletes), schema, blob.rows, blob.length, blob.crc, blob.data, checksum)
            + (*self._ledger, row_checksum(name, *self._ledger))
            + (last, revision, row_checksum(last, revision, 0))
        )

    def write(self, connection: sqlite3.Connection) -> None:
        """Stores it, completely or not at all."""
        connection.execute(_WRITE, self.values)

    def note(self, facts: Facts) -> None:
        """Updates the facts to the state after it."""
        facts.last, facts.revision = self.last, self.revision
        facts.ledgers[self._name] = self._ledger
        facts.weights[self._name] = facts.weights.get(self._name, NO_WEIGHT).more(self._size, 1)
