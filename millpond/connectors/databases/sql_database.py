"""Implements a SQL database: its transactions, the positions that it stores, and whether a transaction is writing."""

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from millpond.changes import Position
from millpond.tables.base import Database, Reading


class Session(Protocol):
    """Represents a transaction of the database."""

    version: int

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...
    def execute(self, sql: str, values: Sequence[Any] = ()) -> None: ...


class SessionReading(Reading):
    """Represents a transaction that reads. Its session is for queries that read no rows."""

    def __init__(self, session: Any):
        self.session = session


class SqlDatabase(Database):
    """Shares code among the databases. ``_writing`` is held, and ``_is_writing`` set, while a transaction writes."""

    mark: ClassVar[str]
    """How a statement names a parameter."""
    exact = True
    """Whether two snapshots with the same version have the same rows, whoever has written them."""

    def __init__(self) -> None:
        self._writing = threading.RLock()
        self._is_writing = False

    @abstractmethod
    def read(self) -> SessionReading: ...

    @abstractmethod
    def one(self, sql: str, values: Sequence[Any]) -> Sequence[Any] | None:
        """Returns the first row of a standalone query."""

    def end_forgotten(self) -> None:
        """Ends transactions that read and that nobody refers to any more. Called before what waits for them."""
        return

    def when_free(self, work: Callable[[Any], object]) -> bool:
        """Runs like ``write``; returns False if another thread is writing."""
        if not self._writing.acquire(blocking=False):
            return False
        try:
            if self._is_writing:
                return False
            self.write(work)
            return True
        finally:
            self._writing.release()

    def updating(self, key: Sequence[str], names: Sequence[str]) -> str:
        """Returns the end of an INSERT that updates these columns of a row that is there; ``key`` identifies rows."""
        sets = ", ".join(f"{name} = excluded.{name}" for name in names)
        return f"ON CONFLICT ({', '.join(key)}) DO {f'UPDATE SET {sets}' if sets else 'NOTHING'}"

    def known_position(self, session: Session, pipeline: str) -> Position | None:
        found = session.query(
            f"SELECT checkpoint, batch, offsets FROM millpond_positions WHERE pipeline = {self.mark}",
            (pipeline,),
        )
        return Position(pipeline, found[0][0], found[0][1], json.loads(found[0][2])) if found else None
