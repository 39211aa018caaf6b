"""Implements one PostgreSQL database: a connection pool, transactions, and the meaning of its errors."""

from __future__ import annotations

import uuid
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from millpond.changes import Position
from millpond.connectors.databases.sql_database import SqlDatabase
from millpond.connectors.databases.sql_transactions import SqlReading, SqlWriting
from millpond.connectors.postgresql import driver as postgres
from millpond.connectors.postgresql.driver import said, trouble
from millpond.errors import (
    AccessRefused,
    Closed,
    Conflict,
    ConnectionLost,
    Error,
    InvalidRecord,
    SourceError,
    UnknownName,
)
from millpond.retry import for_connections

if TYPE_CHECKING:
    import psycopg
    from psycopg import Connection

T = TypeVar("T")

_SET_UP = (
    "CREATE TABLE IF NOT EXISTS millpond_positions"
    " (pipeline TEXT PRIMARY KEY, checkpoint TEXT NOT NULL, batch BIGINT NOT NULL, offsets TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS millpond_tables (name TEXT PRIMARY KEY, next_row BIGINT NOT NULL)",
)


def driver() -> Any:
    return postgres.driver("tables in PostgreSQL")


def spot(url: str) -> str:
    """Returns host, port and database of a URL, without the login."""
    parts = urlsplit(url)
    host = parts.hostname or "localhost"
    return f"postgresql://{host}:{parts.port or 5432}{parts.path or '/'}"


class SecondWriter(Conflict):
    """Reports that another transaction of the database has changed the same rows."""


_RETRIED = (ConnectionLost, SecondWriter)


class Session:
    """Represents a transaction on one connection."""

    def __init__(self, connection: Connection[Any], name: str):
        self.connection = connection
        self.staged: set[str] = set()
        self._name = name
        self.version = 0

    def begin(self, kind: str) -> None:
        psycopg = driver()
        try:
            # Two statements, one round trip. The SELECT fixes the snapshot.
            cursor = self.connection.execute(
                f"BEGIN ISOLATION LEVEL REPEATABLE READ {kind}; SELECT pg_current_snapshot()::text"
            )
            cursor.nextset()
            ((snapshot,),) = cursor.fetchall()
        except psycopg.Error as error:
            raise explained(error, self._name, lost=bool(self.connection.closed)) from error
        # Two snapshots with one number have the same rows: as long as no later transaction has ended, the number of
        # open ones can only decrease.
        _, high, still_open = snapshot.split(":")
        unfinished = len(still_open.split(",")) if still_open else 0
        self.version = (int(high) << 16) + (0xFFFF - min(unfinished, 0xFFFF))

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        psycopg = driver()
        try:
            cursor = self.connection.execute(sql, values, binary=True)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise explained(error, self._name, lost=bool(self.connection.closed)) from error

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        self.query(sql, values)

    def copy_in(self, sql: str, data: bytes | memoryview) -> None:
        psycopg = driver()
        try:
            with self.connection.cursor() as cursor, cursor.copy(sql) as copy:
                copy.write(data)
        except psycopg.Error as error:
            raise explained(error, self._name, lost=bool(self.connection.closed)) from error


class PostgresDatabase(SqlDatabase):
    """Represents a database and its replicas. Writes of this process are serialized; others may write too: the second
    writer of a row begins again.
    """

    mark = "%s"

    def __init__(
        self, url: str, replicas: Sequence[str], *, idle: int, retry_timeout: float, connect_timeout: float
    ):
        super().__init__()
        self.name = f"the database {spot(url)}"
        self.patience = for_connections(retry_timeout)
        self._urls = (url, *replicas)
        self._names = [self.name, *(f"the replica {spot(r)}" for r in replicas)]
        self._idle: list[deque[Connection[Any]]] = [deque() for _ in self._urls]
        self._kept = idle
        self._connect_timeout = connect_timeout
        self._turn = count()
        self._commits = count()
        self._me = f"last/{uuid.uuid4().hex}"
        """The position that contains the number of the last commit of this object."""
        self._closed = False
        self.write(_set_up)

    # connections

    def _take(self, at: int) -> Connection[Any]:
        if self._closed:
            raise Closed(f"{self.name} is closed")
        while True:
            try:
                connection = self._idle[at].popleft()
            except IndexError:
                return self._connect(at)
            if not connection.closed:
                return connection

    def _connect(self, at: int) -> Connection[Any]:
        psycopg = driver()
        try:
            connection: Any = psycopg.connect(
                self._urls[at], autocommit=True, connect_timeout=max(2, round(self._connect_timeout))
            )
            connection.execute("SET TIME ZONE 'UTC'")
            made: Connection[Any] = connection
            return made
        except psycopg.Error as error:
            raise explained(error, self._names[at], lost=True) from error

    def _release(self, at: int, connection: Connection[Any]) -> None:
        with suppress(Exception):
            if not connection.closed and connection.info.transaction_status:
                connection.execute("ROLLBACK")
            if connection.closed or self._closed or len(self._idle[at]) >= self._kept:
                connection.close()
            else:
                self._idle[at].append(connection)

    # reading

    def read(self) -> SqlReading:
        replicas = len(self._urls) - 1
        if replicas:
            first = next(self._turn)
            for step in range(replicas):
                with suppress(ConnectionLost):
                    return self._begin(1 + (first + step) % replicas)
        return self.patience.wait_for(lambda: self._begin(0), on=_RETRIED)

    def one(self, sql: str, values: Sequence[Any]) -> Sequence[Any] | None:
        replicas = len(self._urls) - 1
        if replicas:
            with suppress(ConnectionLost):
                return self._one(1 + next(self._turn) % replicas, sql, values)
        return self.patience.wait_for(lambda: self._one(0, sql, values), on=_RETRIED)

    def _one(self, at: int, sql: str, values: Sequence[Any]) -> Sequence[Any] | None:
        connection = self._take(at)
        try:
            found = Session(connection, self._names[at]).query(sql, values)
        except BaseException:
            self._drop(at, connection)
            raise
        self._release(at, connection)
        return found[0] if found else None

    def _begin(self, at: int) -> SqlReading:
        connection = self._take(at)
        session = Session(connection, self._names[at])
        try:
            session.begin("READ ONLY")
        except BaseException:
            self._drop(at, connection)
            raise
        reading = SqlReading(session)
        weakref.finalize(reading, self._release, at, connection)
        return reading

    def _drop(self, at: int, connection: Connection[Any]) -> None:
        """Drops a connection that failed, and with it idle ones: they failed too."""
        with suppress(Exception):
            connection.close()
        while self._idle[at]:
            with suppress(Exception):
                self._idle[at].pop().close()

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
        session = Session(connection, self.name)
        writing = SqlWriting(self, session)
        number: int | None = None
        done: list[T] = []
        try:
            session.begin("READ WRITE")
            done.append(work(writing))
            mark = next(self._commits)
            session.execute(
                "INSERT INTO millpond_positions VALUES (%s, '', %s, '{}')"
                " ON CONFLICT (pipeline) DO UPDATE SET batch = excluded.batch",
                (self._me, mark),
            )
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
        for table in writing.touched:
            table.changed()
        return done[0]

    def _has_committed(self, number: int) -> bool:
        """Returns whether the transaction whose COMMIT got no response was committed. The server's own number of it
        does not tell: after a crash another transaction may have got it.
        """

        def ask() -> bool:
            connection = self._take(0)
            session = Session(connection, self.name)
            try:
                session.begin("READ WRITE")
                # The lock waits for a transaction that has not ended yet.
                sql = "SELECT batch FROM millpond_positions WHERE pipeline = %s FOR UPDATE"
                return session.query(sql, (self._me,)) == [(number,)]
            finally:
                self._release(0, connection)

        try:
            return self.patience.wait_for(ask, on=_RETRIED)
        except UnknownName:
            return False  # the table itself was not committed

    def position(self, pipeline: str) -> Position | None:
        return self.patience.wait_for(
            lambda: self.known_position(self._begin(0).session, pipeline), on=_RETRIED
        )

    def forget(self, pipeline: str) -> None:
        self._forget("pipeline = %s", pipeline)

    def forget_all(self, start: str) -> None:
        self._forget("starts_with(pipeline, %s)", start)

    def _forget(self, where: str, value: str) -> None:
        self.write(
            lambda writing: writing.session.execute(f"DELETE FROM millpond_positions WHERE {where}", (value,))
        )

    def close(self) -> None:
        with self._writing:
            with suppress(Exception):
                self._idle[0][0].execute("DELETE FROM millpond_positions WHERE pipeline = %s", (self._me,))
            self._closed = True
            for at, idle in enumerate(self._idle):
                while idle:
                    self._release(at, idle.popleft())


def _set_up(writing: SqlWriting) -> None:
    there = writing.session.query(
        "SELECT to_regclass('millpond_positions') IS NOT NULL AND to_regclass('millpond_tables') IS NOT NULL"
    )
    if not there[0][0]:
        for sql in _SET_UP:
            writing.session.execute(sql)


def explained(error: psycopg.Error, name: str, *, lost: bool) -> Error:
    """Translates an error: who can do something about it, and what."""
    text = said(error)
    match trouble(error, lost=lost):
        case "conflict":
            return SecondWriter(f"{name}: another writer was first", hint="try again")
        case "login" | "privilege":
            return AccessRefused(f"{name} refuses: {text}", hint="check user, password and rights")
        case "database":
            return UnknownName(f"{name} is not there", hint="create it, or correct the URL")
        case "user":
            return AccessRefused(f"{name} refuses: {text}", hint="check the user")
        case "lost" | "timeout":
            return ConnectionLost(
                f"{name} does not answer: {text}", hint="check that it runs and can be reached"
            )
        case "locked":
            return Conflict(
                f"{name}: the table is in use: {text}", hint="release its snapshots, then try again"
            )
        case "name":
            return UnknownName(f"{name}: {text}", hint="its tables were changed since they were declared")
        case "value":
            detail = error.diag.message_detail
            return InvalidRecord(f"{name} refuses a row: {text}", hint=detail or "nothing was changed")
        case _:
            return SourceError(f"{name}: {text}", hint="nothing was changed")
