"""Implements transactions of a SQL database, for readers and for the commit."""

from __future__ import annotations

import json
from typing import Any

from millpond.changes import Changes, Position
from millpond.connectors.databases.sql_database import SessionReading, SqlDatabase
from millpond.connectors.databases.sql_table import SqlSnapshot, SqlTable
from millpond.tables.base import Backend, Writing


class SqlReading(SessionReading):
    """Represents a transaction that stays open while it is referenced."""

    def snapshot(self, table: Backend) -> SqlSnapshot:
        assert isinstance(table, SqlTable)
        return _OpenSnapshot(table, self)


class _OpenSnapshot(SqlSnapshot):
    """Represents a snapshot that keeps its transaction open."""

    def __init__(self, table: SqlTable, reading: SqlReading):
        super().__init__(table, reading.session)
        self._reading = reading


class SqlWriting(Writing):
    def __init__(self, database: SqlDatabase, session: Any):
        self.session = session
        self.touched: list[SqlTable] = []
        self._database = database

    def snapshot(self, table: Backend) -> SqlSnapshot:
        assert isinstance(table, SqlTable)
        return SqlSnapshot(table, self.session, keep=False)

    def apply(self, table: Backend, changes: Changes) -> None:
        assert isinstance(table, SqlTable)
        table.change(self.session, changes)
        self.touched.append(table)

    def advance(self, position: Position) -> bool:
        known = self._database.known_position(self.session, position.pipeline)
        if known is not None and known.covers(position):
            return False
        marks = ", ".join([self._database.mark] * 4)
        rest = self._database.updating(["pipeline"], ["checkpoint", "batch", "offsets"])
        self.session.execute(
            f"INSERT INTO millpond_positions VALUES ({marks}) {rest}",
            (position.pipeline, position.checkpoint, position.batch, json.dumps(dict(position.offsets))),
        )
        return True
