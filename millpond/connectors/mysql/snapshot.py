"""Opens snapshots of a MySQL database: connections whose transactions all see it at one place of its log."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pymysql
import sqlalchemy as sa

from millpond.connectors.mysql.login import Login
from millpond.errors import CaptureRefused, Error, SourceChanged, SourceError

_TRIES = 3
_BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
NO_PRIVILEGE = 1227
NO_COMMAND = 1064


class SharedSnapshot:
    """Contains the connections of one snapshot. MySQL cannot add others later, so they are opened at once; ``place`` is
    the place in the log that they all see. MariaDB reports it for each transaction; elsewhere, and if several
    connections never agree, the database is locked against changes while they begin.
    """

    def __init__(self, engine: sa.Engine, login: Login, values: Mapping[str, Any]):
        self.name = uuid.uuid4().hex
        self.place: tuple[str, int]
        self._patience = values["retry.timeout"]
        self._connections = [engine.connect() for _ in range(max(1, values["parallel.readers"]))]
        self._free: queue.SimpleQueue[sa.Connection] = queue.SimpleQueue()
        try:
            for connection in self._connections:
                set_up(driver_of(connection), values)
                ask(driver_of(connection), "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            self._begin(login)
        except BaseException:
            self.end()
            raise
        for connection in self._connections:
            self._free.put(connection)

    def _begin(self, login: Login) -> None:
        for _ in range(_TRIES):
            places = {self._begun(connection) for connection in self._connections}
            if len(places) == 1 and None not in places:
                self.place = next(p for p in places if p is not None)
                return
        driver = login.open()
        try:
            try:
                ask(driver, "FLUSH TABLES WITH READ LOCK")
            except pymysql.err.OperationalError as error:
                if error.args[0] != NO_PRIVILEGE:
                    raise
                self._alone(login)
                return
            for connection in self._connections:
                self._begun(connection)
            self.place = end_of(partial(ask, driver))
        finally:
            driver.close()  # which unlocks

    def _alone(self, login: Login) -> None:
        """Keeps only one connection, which knows its place if the server reports it."""
        for connection in self._connections[1:]:
            connection.close()
        del self._connections[1:]
        place = self._begun(self._connections[0])
        if place is None:
            raise CaptureRefused(
                f"{login.name}: the rows that are there and the place of the log cannot be read as of one moment",
                hint=f"GRANT RELOAD ON *.* TO '{login.user}'",
            )
        self.place = place

    @staticmethod
    def _begun(connection: sa.Connection) -> tuple[str, int] | None:
        driver = driver_of(connection)
        ask(driver, "ROLLBACK")
        ask(driver, _BEGIN)
        found = dict(ask(driver, "SHOW STATUS LIKE 'binlog\\_snapshot\\_%'"))
        if not found.get("Binlog_snapshot_file"):
            return None
        return str(found["Binlog_snapshot_file"]), int(found["Binlog_snapshot_position"])

    @contextmanager
    def lent(self) -> Iterator[sa.Connection]:
        """Lends one of its connections. One on which something fails is not lent again."""
        try:
            connection = self._free.get(timeout=self._patience)
        except queue.Empty:
            raise SourceChanged("the moment at which rows are read is over") from None
        yield connection
        self._free.put(connection)

    def end(self) -> None:
        for connection in self._connections:
            with suppress(Exception):
                connection.close()


def driver_of(connection: sa.Connection) -> pymysql.Connection[Any]:
    """Returns the connection of PyMySQL below one of SQLAlchemy."""
    found: Any = connection.connection.driver_connection
    assert isinstance(found, pymysql.Connection)
    return found


def ask(driver: pymysql.Connection[Any], query: str, *values: Any) -> list[tuple[Any, ...]]:
    with driver.cursor() as cursor:
        cursor.execute(query, values or None)
        return list(cursor.fetchall())


def end_of(ask: Callable[[str], list[tuple[Any, ...]]]) -> tuple[str, int]:
    """Queries the end of the log from a server. Raises CaptureRefused if it has none."""
    found = status_of(ask)
    return str(found[0]), int(found[1])


def status_of(ask: Callable[[str], list[tuple[Any, ...]]]) -> tuple[Any, ...]:
    """Returns the end of the log, and the databases that are logged, and that are not."""
    try:
        found = ask("SHOW MASTER STATUS")
    except (pymysql.err.ProgrammingError, SourceError) as error:
        if str(NO_COMMAND) not in str(error):
            raise
        found = ask("SHOW BINARY LOG STATUS")  # MySQL from 8.4 on
    if not found:
        raise no_log()
    return found[0]


def no_log() -> Error:
    return CaptureRefused(
        "the server has no binary log, so that changes cannot be followed",
        hint="start it with log_bin=ON (in its configuration: log-bin, and server-id)",
    )


def set_up(driver: pymysql.Connection[Any], values: Mapping[str, Any]) -> None:
    """Configures a connection that reads."""
    timeout = values["query.timeout"]
    with driver.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00', net_write_timeout = 3600")
        if timeout is not None and is_mariadb(driver):
            cursor.execute("SET max_statement_time = %s", (max(timeout, 0.001),))
        elif timeout is not None:
            cursor.execute("SET max_execution_time = %s", (max(1, round(timeout * 1000)),))
        cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {values['transaction.isolation'].upper()}")


def is_mariadb(driver: pymysql.Connection[Any]) -> bool:
    return "mariadb" in str(driver.get_server_info()).lower()
