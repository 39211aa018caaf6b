"""Implements one PostgreSQL database: a connection pool, transactions, and the meaning of its errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from millpond.connectors.databases.connection_pool import PooledDatabase, PooledSession
from millpond.connectors.databases.sql_transactions import SqlWriting
from millpond.connectors.databases.trouble import explained
from millpond.connectors.postgresql import driver as postgres
from millpond.connectors.postgresql.driver import said, trouble
from millpond.errors import Error

if TYPE_CHECKING:
    import psycopg
    from psycopg import Connection

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


class Session:
    """Represents a transaction on one connection."""

    def __init__(self, connection: Connection[Any], name: str):
        self.connection = connection
        self.staged: set[str] = set()
        self._name = name
        self.version = 0

    def begin(self, *, write: bool) -> None:
        psycopg, kind = driver(), "READ WRITE" if write else "READ ONLY"
        try:
            # Two statements, one round trip. The SELECT fixes the snapshot.
            cursor = self.connection.execute(
                f"BEGIN ISOLATION LEVEL REPEATABLE READ {kind}; SELECT pg_current_snapshot()::text"
            )
            cursor.nextset()
            ((snapshot,),) = cursor.fetchall()
        except psycopg.Error as error:
            raise _explained(error, self._name, lost=bool(self.connection.closed)) from error
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
            raise _explained(error, self._name, lost=bool(self.connection.closed)) from error

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        self.query(sql, values)

    def copy_in(self, sql: str, data: bytes | memoryview) -> None:
        psycopg = driver()
        try:
            with self.connection.cursor() as cursor, cursor.copy(sql) as copy:
                copy.write(data)
        except psycopg.Error as error:
            raise _explained(error, self._name, lost=bool(self.connection.closed)) from error


class PostgresDatabase(PooledDatabase):
    """Represents a database of PostgreSQL."""

    starting = "starts_with(pipeline, %s)"

    def __init__(
        self, url: str, replicas: Sequence[str], *, idle: int, retry_timeout: float, connect_timeout: float
    ):
        self._urls = (url, *replicas)
        self._connect_timeout = connect_timeout
        names = [f"the database {spot(url)}", *(f"the replica {spot(r)}" for r in replicas)]
        super().__init__(names, idle=idle, retry_timeout=retry_timeout)

    def set_up(self, writing: SqlWriting) -> None:
        there = writing.session.query(
            "SELECT to_regclass('millpond_positions') IS NOT NULL AND to_regclass('millpond_tables') IS NOT NULL"
        )
        if not there[0][0]:
            for sql in _SET_UP:
                writing.session.execute(sql)

    def bound_waits(self, session: PooledSession) -> None:
        session.execute(f"SET LOCAL lock_timeout = {round(max(1, self.patience.timeout) * 1000)}")

    def check_deferred(self, session: PooledSession) -> None:
        session.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def connect(self, at: int) -> Connection[Any]:
        psycopg = driver()
        try:
            connection: Any = psycopg.connect(
                self._urls[at], autocommit=True, connect_timeout=max(2, round(self._connect_timeout))
            )
            connection.execute("SET TIME ZONE 'UTC'")
            made: Connection[Any] = connection
            return made
        except psycopg.Error as error:
            raise _explained(error, self._names[at], lost=True) from error

    def session(self, connection: Connection[Any], at: int) -> Session:
        return Session(connection, self._names[at])

    def is_open(self, connection: Connection[Any]) -> bool:
        return not connection.closed

    def in_transaction(self, connection: Connection[Any]) -> bool:
        return bool(connection.info.transaction_status)

    def roll_back(self, connection: Connection[Any]) -> None:
        connection.execute("ROLLBACK")


def _explained(error: psycopg.Error, name: str, *, lost: bool) -> Error:
    return explained(trouble(error, lost=lost), name, said(error), error.diag.message_detail)
