"""Implements a database on a server: a connection pool, replicas for reading, and transactions that are retried."""

from __future__ import annotations

import gc
import uuid
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, ClassVar, Protocol, TypeVar

from millpond.changes import Position
from millpond.connectors.databases.sql_database import SqlDatabase
from millpond.connectors.databases.sql_transactions import SqlReading, SqlWriting
from millpond.connectors.databases.trouble import SecondWriter
from millpond.errors import Closed, ConnectionLost, UnknownName
from millpond.retry import for_connections

T = TypeVar("T")

_RETRIED = (ConnectionLost, SecondWriter)
_NOT_THERE = (ConnectionLost, SecondWriter, UnknownName)
"""What a replica raises that does not respond, or does not have a new table yet."""


class PooledSession(Protocol):
    """Represents a transaction on one connection."""

    version: int

    def begin(self, *, write: bool) -> None: ...
    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...
    def execute(self, sql: str, values: Sequence[Any] = ()) -> None: ...


class PooledDatabase(SqlDatabase):
    """Represents a database and its replicas: number 0, and the others. Writes of this process are serialized; others
    may write too: the second writer of a row begins again.
    """

    mark = "%s"
    starting: ClassVar[str]
    """The condition that a pipeline's name begins with a value, which it takes as often as it has marks."""

    def __init__(self, names: Sequence[str], *, idle: int, retry_timeout: float):
        super().__init__()
        self.name = names[0]
        self.patience = for_connections(retry_timeout)
        self._names = list(names)
        self._idle: list[deque[Any]] = [deque() for _ in names]
        self._kept = idle
        self._turn = count()
        self._commits = count()
        self._me = f"last/{uuid.uuid4().hex}"
        """The position that contains the number of the last commit of this object."""
        self._last = -1
        self._closed = False
        self.write(self.set_up)

    # the driver

    @abstractmethod
    def set_up(self, writing: SqlWriting) -> None:
        """Creates the tables of positions and of tables, if they do not exist."""

    @abstractmethod
    def connect(self, at: int) -> Any:
        """Opens a connection that commits each statement outside of a transaction."""

    @abstractmethod
    def session(self, connection: Any, at: int) -> PooledSession: ...

    @abstractmethod
    def is_open(self, connection: Any) -> bool: ...

    @abstractmethod
    def in_transaction(self, connection: Any) -> bool: ...

    @abstractmethod
    def roll_back(self, connection: Any) -> None: ...

    def bound_waits(self, session: PooledSession) -> None:
        """Bounds how long the transaction waits for locks, if the server does not."""
        return

    def check_deferred(self, session: PooledSession) -> None:
        """Checks the conditions that the server would check only when the transaction is committed."""
        return

    # connections

    def _take(self, at: int) -> Any:
        if self._closed:
            raise Closed(f"{self.name} is closed")
        while True:
            try:
                connection = self._idle[at].popleft()
            except IndexError:
                return self.connect(at)
            if self.is_open(connection):
                return connection

    def _release(self, at: int, connection: Any) -> None:
        with suppress(Exception):
            if self.is_open(connection) and self.in_transaction(connection):
                self.roll_back(connection)
            if not self.is_open(connection) or self._closed or len(self._idle[at]) >= self._kept:
                connection.close()
            else:
                self._idle[at].append(connection)

    def _drop(self, at: int, connection: Any) -> None:
        """Drops a connection that failed, and with it idle ones: they failed too."""
        with suppress(Exception):
            connection.close()
        while self._idle[at]:
            with suppress(Exception):
                self._idle[at].pop().close()

    # reading

    def read(self) -> SqlReading:
        for at in self._replicas():
            with suppress(*_NOT_THERE):
                reading = self._begin(at)
                if self._has_last_write(reading.session):
                    return reading
        return self.patience.wait_for(lambda: self._begin(0), on=_RETRIED)

    def one(self, sql: str, values: Sequence[Any]) -> Sequence[Any] | None:
        for at in self._replicas():
            with suppress(*_NOT_THERE):
                found = self._one(at, sql, values)
                if found is not None:
                    return found[0] if found else None
        found = self.patience.wait_for(lambda: self._one(0, sql, values), on=_RETRIED)
        return found[0] if found else None

    def _replicas(self) -> list[int]:
        """Returns the numbers of the replicas, beginning with another one each time."""
        replicas = len(self._names) - 1
        first = next(self._turn) if replicas else 0
        return [1 + (first + step) % replicas for step in range(replicas)]

    def _has_last_write(self, session: PooledSession) -> bool:
        """Returns whether the snapshot of a replica contains the last commit of this object."""
        sql = "SELECT batch FROM millpond_positions WHERE pipeline = %s"
        return any(number >= self._last for (number,) in session.query(sql, (self._me,)))

    def _one(self, at: int, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]] | None:
        """Returns the rows of a standalone query; None from a replica without the last commit of this object."""
        connection = self._take(at)
        try:
            session = self.session(connection, at)
            found = session.query(sql, values) if not at or self._has_last_write(session) else None
        except ConnectionLost:
            self._drop(at, connection)
            raise
        except BaseException:
            with suppress(Exception):  # it may be in the middle of an answer
                connection.close()
            raise
        self._release(at, connection)
        return found

    def _begin(self, at: int) -> SqlReading:
        connection = self._take(at)
        session = self.session(connection, at)
        try:
            session.begin(write=False)
        except BaseException:
            self._drop(at, connection)
            raise
        reading = SqlReading(session)
        weakref.finalize(reading, self._release, at, connection)
        return reading

    def end_forgotten(self) -> None:
        gc.collect()  # some are part of a cycle: while this thread waits for the server, no collection would begin

    # writing

    def write(self, work: Callable[[SqlWriting], T]) -> T:
        with self._writing:
            self._is_writing = True
            try:
                return self.patience.wait_for(lambda: self._write(work), on=_RETRIED)
            finally:
                self._is_writing = False

    def _write(self, work: Callable[[SqlWriting], T]) -> T:
        connection = self._take(0)
        session = self.session(connection, 0)
        writing = SqlWriting(self, session)
        number: int | None = None
        done: list[T] = []
        try:
            session.begin(write=True)
            done.append(work(writing))
            mark = next(self._commits)
            self.note_commit(session, self._me, mark)
            number = mark
            session.execute("COMMIT")
        except ConnectionLost:
            self._drop(0, connection)
            if number is None or not self._has_committed(number):
                raise
        except BaseException:
            self._release(0, connection)
            raise
        else:
            self._release(0, connection)
        assert number is not None
        self._last = number
        for table in writing.touched:
            table.changed()
        return done[0]

    def note_commit(self, session: PooledSession, pipeline: str, number: int) -> None:
        """Stores the number of a commit, in its transaction."""
        rest = self.updating(["pipeline"], ["batch"])
        session.execute(
            f"INSERT INTO millpond_positions VALUES (%s, '', %s, '{{}}') {rest}", (pipeline, number)
        )

    def _has_committed(self, number: int) -> bool:
        """Returns whether the transaction whose COMMIT got no response was committed. The server's own number of it
        does not tell: after a crash another transaction may have got it.
        """

        def ask() -> bool:
            connection = self._take(0)
            session = self.session(connection, 0)
            try:
                session.begin(write=True)
                # The lock waits for a transaction that has not ended yet.
                sql = "SELECT batch FROM millpond_positions WHERE pipeline = %s FOR UPDATE"
                return session.query(sql, (self._me,)) == [(number,)]
            finally:
                self._release(0, connection)

        try:
            return self.patience.wait_for(ask, on=_RETRIED)
        except UnknownName:
            return False  # the table itself was not committed
        except ConnectionLost as error:
            error.hint = "whether the last transaction was committed is not known: look before you repeat it"
            raise

    def position(self, pipeline: str) -> Position | None:
        def ask() -> Position | None:
            reading = self._begin(0)  # its connection is returned when nothing refers to it
            return self.known_position(reading.session, pipeline)

        return self.patience.wait_for(ask, on=_RETRIED)

    def forget(self, pipeline: str) -> None:
        self._forget("pipeline = %s", pipeline)

    def forget_all(self, start: str) -> None:
        self._forget(self.starting, start)

    def _forget(self, where: str, value: str) -> None:
        values = [value] * where.count("%s")
        self.write(
            lambda writing: writing.session.execute(f"DELETE FROM millpond_positions WHERE {where}", values)
        )

    def close(self) -> None:
        with self._writing:
            with suppress(Exception):
                connection = self._idle[0].popleft()
                sql = "DELETE FROM millpond_positions WHERE pipeline = %s"
                self.session(connection, 0).execute(sql, (self._me,))
                self._release(0, connection)
            self._closed = True
            for at, idle in enumerate(self._idle):
                while idle:
                    self._release(at, idle.popleft())
