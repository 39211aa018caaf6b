"""A SQL database: its transactions, the positions that it keeps, and whether somebody is writing to it."""

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from millpond.changes import Position
from millpond.tables.base import Database, Reading


class Session(Protocol):
    """A transaction of the database."""

    version: int

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...
    def execute(self, sql: str, values: Sequence[Any] = ()) -> None: ...


class SessionReading(Reading):
    """A transaction that reads. Its session is for questions that are about no rows."""

    def __init__(self, session: Any):
        self.session = session


class SqlDatabase(Database):
    """What the databases share. ``_writing`` is held, and ``_is_writing`` set, while a transaction writes."""

    mark: ClassVar[str]
    """How a statement names a parameter."""

    def __init__(self) -> None:
        self._writing = threading.RLock()
        self._is_writing = False

    @abstractmethod
    def read(self) -> SessionReading: ...

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
