"""Caches small facts of the journal that every commit needs; they are read once at the start.

A transaction works on a copy, which replaces the original when the transaction has succeeded.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from millpond.changes import Position
from millpond.journal.blobs import row_checksum
from millpond.journal.database import LIVE, verified

BLOB_WEIGHT = 1 << 14
"""Bytes that are read in the time that a blob takes, however small it is."""


class Weight(NamedTuple):
    """Counts the bytes of a table's snapshot, and of the changes since, with 16 kB more for each of their blobs."""

    snapshot: int
    changes: int

    def more(self, size: int, blobs: int) -> Weight:
        return Weight(self.snapshot, self.changes + size + blobs * BLOB_WEIGHT)


NO_WEIGHT = Weight(0, 0)


@dataclass(slots=True)
class Facts:
    """Contains the facts: ``ledgers`` are the number of blobs of each table and the total of their checksums; ``ends``
    the next sequence number of each stream; ``inline`` the bytes of each stream that are in SQLite; ``weights`` what a
    restart has to read of each table: its snapshot, and the changes since.
    """

    last: int = 0
    revision: int = 0
    clean: bool = True
    positions: dict[str, Position] = field(default_factory=dict)
    ledgers: dict[str, tuple[int, int]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    inline: dict[str, int] = field(default_factory=dict)
    weights: dict[str, Weight] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    def copy(self) -> Facts:
        return replace(
            self,
            positions=dict(self.positions),
            ledgers=dict(self.ledgers),
            ends=dict(self.ends),
            inline=dict(self.inline),
            weights=dict(self.weights),
            done=set(self.done),
        )

    def write(self, connection: sqlite3.Connection, *, clean: bool) -> None:
        row = (self.last, self.revision, int(clean))
        connection.execute("INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?, ?)", (*row, row_checksum(*row)))

    def set_position(self, connection: sqlite3.Connection, position: Position) -> None:
        self.positions[position.pipeline] = position
        row = (position.pipeline, position.checkpoint, position.batch, json.dumps(position.offsets))
        connection.execute(
            "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?)", (*row, row_checksum(*row))
        )

    def drop_position(self, connection: sqlite3.Connection, pipeline: str) -> None:
        self.positions.pop(pipeline, None)
        connection.execute("DELETE FROM positions WHERE pipeline = ?", (pipeline,))

    def move_position(
        self, connection: sqlite3.Connection, pipeline: str, named: str, streams: Mapping[str, str]
    ) -> None:
        """Gives a position to a pipeline of another name; ``streams`` are those with other names."""
        if (position := self.positions.get(pipeline)) is not None:
            self.drop_position(connection, pipeline)
            offsets = {streams.get(name, name): offset for name, offset in position.offsets.items()}
            self.set_position(connection, replace(position, pipeline=named, offsets=offsets))

    def set_done(self, connection: sqlite3.Connection, statement: str) -> None:
        self.done.add(statement)
        connection.execute("INSERT OR REPLACE INTO done VALUES (?, ?)", (statement, row_checksum(statement)))

    def drop_done(self, connection: sqlite3.Connection, statement: str) -> None:
        self.done.discard(statement)
        connection.execute("DELETE FROM done WHERE id = ?", (statement,))

    def set_end(self, connection: sqlite3.Connection, stream: str, end: int) -> None:
        self.ends[stream] = end
        connection.execute(
            "INSERT OR REPLACE INTO streams VALUES (?, ?, ?)", (stream, end, row_checksum(stream, end))
        )

    def drop_end(self, connection: sqlite3.Connection, stream: str) -> None:
        self.ends.pop(stream, None)
        self.inline.pop(stream, None)
        connection.execute("DELETE FROM streams WHERE name = ?", (stream,))

    def add_blobs(
        self, connection: sqlite3.Connection, table: str, checksums: Sequence[int], size: int
    ) -> None:
        """Counts changes of so many bytes."""
        blobs, total = self.ledgers.get(table, (0, 0))
        self._set_ledger(connection, table, blobs + len(checksums), (total + sum(checksums)) & 0xFFFFFFFF)
        self.weights[table] = self.weights.get(table, NO_WEIGHT).more(size, len(checksums))

    def recount(self, connection: sqlite3.Connection, table: str) -> None:
        """Counts the ledger of a table again that has got another snapshot in this transaction."""
        blobs, total = connection.execute(
            f"SELECT COUNT(*), COALESCE(SUM(seal), 0) FROM changes WHERE name = :name AND {LIVE}",
            {"name": table},
        ).fetchone()
        self._set_ledger(connection, table, blobs, total & 0xFFFFFFFF)
        self.weights.pop(table, None)
        self.weights.update(read_weights(connection, table))

    def drop_ledger(self, connection: sqlite3.Connection, table: str) -> None:
        self.ledgers.pop(table, None)
        self.weights.pop(table, None)
        connection.execute("DELETE FROM tables WHERE name = ?", (table,))

    def _set_ledger(self, connection: sqlite3.Connection, table: str, blobs: int, total: int) -> None:
        self.ledgers[table] = (blobs, total)
        row = (table, blobs, total)
        connection.execute("INSERT OR REPLACE INTO tables VALUES (?, ?, ?, ?)", (*row, row_checksum(*row)))


def read(connection: sqlite3.Connection) -> Facts:
    """Reads all facts, checked. Raises StateCorrupt."""
    facts = Facts()
    for last, revision, clean, stored in connection.execute(
        "SELECT last, revision, clean, seal FROM state WHERE id = 1"
    ):
        verified(stored, "the journal's state", last, revision, clean)
        facts.last, facts.revision, facts.clean = last, revision, bool(clean)
    for pipeline, checkpoint, batch, offsets, stored in connection.execute("SELECT * FROM positions"):
        verified(stored, f'the position of "{pipeline}"', pipeline, checkpoint, batch, offsets)
        facts.positions[pipeline] = Position(pipeline, checkpoint, batch, json.loads(offsets))
    for (name,) in connection.execute("SELECT name FROM tables").fetchall():
        facts.ledgers[name] = read_ledger(connection, name)
        facts.weights.update(read_weights(connection, name))
    for name, end, stored in connection.execute("SELECT * FROM streams"):
        verified(stored, f'the end of stream "{name}"', name, end)
        facts.ends[name] = end
    for name, size in connection.execute(
        "SELECT name, SUM(length) FROM segments WHERE file IS NULL GROUP BY name"
    ):
        facts.inline[name] = size
    for statement, stored in connection.execute("SELECT * FROM done"):
        verified(stored, "a statement that was done", statement)
        facts.done.add(statement)
    return facts


def read_weights(connection: sqlite3.Connection, table: str) -> dict[str, Weight]:
    """Returns what a restart reads of the table; empty if that is nothing."""
    found = connection.execute(
        "SELECT SUM(is_snapshot * length), SUM((1 - is_snapshot) * (length + :weight)) FROM changes"
        f" WHERE name = :name AND {LIVE}",
        {"name": table, "weight": BLOB_WEIGHT},
    ).fetchone()
    return {} if found[0] is None else {table: Weight(*found)}


def read_ledger(connection: sqlite3.Connection, table: str) -> tuple[int, int]:
    row = connection.execute("SELECT blobs, total, seal FROM tables WHERE name = ?", (table,)).fetchone()
    if row is None:
        return (0, 0)
    verified(row[2], f'the ledger of table "{table}"', table, row[0], row[1])
    return (row[0], row[1])
