"""A SQL database: its transactions, the positions that it keeps, and whether somebody is writing to it."""

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from millpond.changes import Changes, Position
from millpond.connectors.databases.sql_table import Session, SqlSnapshot, SqlTable
from millpond.tables.base import Backend, Database, Reading, Writing


class SqlReading(Reading):
    """A transaction that is held for as long as somebody refers to it."""

    def __init__(self, session: Any):
        self.session = session

    def snapshot(self, table: Backend) -> SqlSnapshot:
        assert isinstance(table, SqlTable)
        return _HeldSnapshot(table, self)


class _HeldSnapshot(SqlSnapshot):
    """A snapshot that holds the transaction of its moment."""

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
        self.session.execute(
            f"INSERT INTO millpond_positions VALUES ({marks}) ON CONFLICT (pipeline) DO UPDATE SET"
            " checkpoint = excluded.checkpoint, batch = excluded.batch, offsets = excluded.offsets",
            (position.pipeline, position.checkpoint, position.batch, json.dumps(dict(position.offsets))),
        )
        return True


class SqlDatabase(Database):
    """What the databases share. ``_writing`` is held, and ``_is_writing`` set, while a transaction writes."""

    mark: ClassVar[str]
    """How a statement names a parameter."""

    def __init__(self) -> None:
        self._writing = threading.RLock()
        self._is_writing = False

    @abstractmethod
    def read(self) -> SqlReading: ...

    @abstractmethod
    def one(self, sql: str, values: Sequence[Any]) -> Sequence[Any] | None:
        """The first row of a query that stands for itself."""

    def when_free(self, work: Callable[[Any], object]) -> bool:
        """As ``write``; False if somebody is writing."""
        if not self._writing.acquire(blocking=False):
            return False
        try:
            if self._is_writing:
                return False
            self.write(work)
            return True
        finally:
            self._writing.release()

    def known_position(self, session: Session, pipeline: str) -> Position | None:
        found = session.query(
            f"SELECT checkpoint, batch, offsets FROM millpond_positions WHERE pipeline = {self.mark}",
            (pipeline,),
        )
        return Position(pipeline, found[0][0], found[0][1], json.loads(found[0][2])) if found else None
