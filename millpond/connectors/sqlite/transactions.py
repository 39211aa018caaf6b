"""Implements one SQLite file: a connection that writes, and one for each open snapshot, in WAL mode."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from millpond.changes import Position
from millpond.connectors.databases.sql_database import SqlDatabase
from millpond.connectors.databases.sql_transactions import SqlReading, SqlWriting
from millpond.errors import AccessRefused, BadData, Closed, ConnectionLost, Error, SourceError

T = TypeVar("T")

_IDLE = 4
"""Connections for reading that stay open."""

_SET_UP = (
    "CREATE TABLE IF NOT EXISTS millpond_positions"
    " (pipeline TEXT PRIMARY KEY, checkpoint TEXT, batch INTEGER, offsets TEXT) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS millpond_tables (name TEXT PRIMARY KEY, next_row INTEGER) WITHOUT ROWID",
)


def _by_value(a: str, b: str) -> int:
    left, right = Decimal(a), Decimal(b)
    return (left > right) - (left < right)


class Session:
    """Represents a transaction on one connection."""

    def __init__(self, connection: sqlite3.Connection, version: int, name: str):
        self.version = version
        self._connection = connection
        self._name = name

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise explained(error, self._name) from error

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        self.query(sql, values)

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            self._connection.executemany(sql, rows)
        except sqlite3.Error as error:
            raise explained(error, self._name) from error


class SqliteDatabase(SqlDatabase):
    """Represents a file. One thread writes at a time; readers never wait."""

    mark = "?"

    def __init__(self, path: Path, *, sync: bool = True):
        super().__init__()
        self.name = f'the SQLite file "{path}"'
        self._path = path
        self._sync = sync
        self._idle: deque[sqlite3.Connection] = deque()
        self._closed = False
        self._writer = self._connect()
        self._watcher = self._connect()
        self._watching = threading.Lock()
        reading = self.read()  # its connection is returned when nothing refers to it
        if len(reading.session.query(f"SELECT 1 FROM sqlite_schema WHERE name IN {_OURS}")) < 2:
            self.write(_set_up)

    def _connect(self) -> sqlite3.Connection:
        if not self._path.parent.is_dir():
            raise AccessRefused(
                f'there is no directory "{self._path.parent}" for {self.name}',
                hint="create it, or name another",
            )
        try:
            connection = sqlite3.connect(
                self._path, timeout=30, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._sync else 'OFF'}")
            connection.create_collation("millpond_decimal", _by_value)
            return connection
        except sqlite3.Error as error:
            raise explained(error, self.name) from error

    def _take(self) -> sqlite3.Connection:
        if self._closed:
            raise Closed(f"{self.name} is closed")
        try:
            return self._idle.popleft()
        except IndexError:
            return self._connect()

    def read(self) -> SqlReading:
        connection = self._take()
        # The number of the watcher says which commits a snapshot has, if none came while it began.
        while True:
            before = self._version()
            connection.execute("BEGIN")
            connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
            if self._version() == before:
                break
            connection.execute("ROLLBACK")
        reading = SqlReading(Session(connection, before, self.name))
        weakref.finalize(reading, self._release, connection)
        return reading

    def one(self, sql: str, values: Sequence[Any]) -> Sequence[Any] | None:
        connection = self._take()
        try:
            found: Sequence[Any] | None = connection.execute(sql, values).fetchone()
            return found
        except sqlite3.Error as error:
            raise explained(error, self.name) from error
        finally:
            self._release(connection)

    def _version(self) -> int:
        with self._watching:
            return int(self._watcher.execute("PRAGMA data_version").fetchone()[0])

    def _release(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if self._closed or len(self._idle) >= _IDLE:
                connection.close()
            else:
                self._idle.append(connection)

    def write(self, work: Callable[[SqlWriting], T]) -> T:
        with self._writing:
            if self._closed:
                raise Closed(f"{self.name} is closed")
            session = Session(self._writer, 0, self.name)
            session.execute("BEGIN IMMEDIATE")
            try:
                session.version = self._version()
                self._is_writing, writing = True, SqlWriting(self, session)
                answer = work(writing)
                session.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
            finally:
                self._is_writing = False
            for table in writing.touched:
                table.changed()
            return answer

    def position(self, pipeline: str) -> Position | None:
        reading = self.read()
        return self.known_position(reading.session, pipeline)

    def forget(self, pipeline: str) -> None:
        self._forget("pipeline = ?1", pipeline)

    def forget_all(self, start: str) -> None:
        self._forget("substr(pipeline, 1, length(?1)) = ?1", start)

    def _forget(self, where: str, value: str) -> None:
        self.write(
            lambda writing: writing.session.execute(f"DELETE FROM millpond_positions WHERE {where}", [value])
        )

    def close(self) -> None:
        with self._writing:
            self._closed = True
            for connection in (self._writer, self._watcher, *self._idle):
                with suppress(sqlite3.Error):
                    connection.close()
            self._idle.clear()


def _set_up(writing: SqlWriting) -> None:
    for sql in _SET_UP:
        writing.session.execute(sql)


_OURS = "('millpond_positions', 'millpond_tables')"


def explained(error: sqlite3.Error, name: str) -> Error:
    """Translates an error."""
    text = str(error)
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return ConnectionLost(f"{name} is locked by another process", hint="try again when it is done")
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return BadData(f"{name} is damaged, or is no SQLite file: {text}", hint="restore it from a copy")
    if code.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return AccessRefused(
            f"{name} cannot be used: {text}", hint="check that its directory and mode permit it"
        )
    return SourceError(f"{name}: {text}", hint="nothing was changed")
