"""Implements one MySQL or MariaDB database that has tables: connections, transactions, and the meaning of errors.

Rows are read in snapshots (REPEATABLE READ). What is written is decided on rows that are locked until the commit
(SERIALIZABLE): a snapshot would not tell that another program has changed them since.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from itertools import count
from typing import Any

import pymysql
from pymysql import converters
from pymysql.constants import ER, FIELD_TYPE, SERVER_STATUS

from millpond.connectors.databases.connection_pool import PooledDatabase, PooledSession
from millpond.connectors.databases.options import LOGIN_OPTIONS, SOCKET_OPTION
from millpond.connectors.databases.sql_transactions import SqlWriting
from millpond.connectors.databases.trouble import Trouble, explained
from millpond.connectors.databases.uri import address_of, options_in
from millpond.connectors.mysql.login import LOGIN, LOST, PRIVILEGE, TIMES, Login
from millpond.errors import (
    AccessRefused,
    Error,
    InvalidOption,
    InvalidRecord,
    NotSupported,
    without_passwords,
)

_MODES = (
    "ANSI_QUOTES,STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO"
)
_PATIENCE = 10
"""Seconds to wait for a lock."""
_WEEK = 604_800
_SESSION = (
    f"SET sql_mode = '{_MODES}', time_zone = '+00:00', wait_timeout = {_WEEK},"
    f" innodb_lock_wait_timeout = {_PATIENCE}, lock_wait_timeout = {_PATIENCE}",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
_COLLATIONS = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
"""Those that compare texts byte by byte, spaces at the end included: MariaDB's and MySQL's."""
_ALL = "last/all"
"""The position that counts the commits of all apps."""

_NAMES = frozenset({ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR, ER.BAD_TABLE_ERROR})
_CONFLICTS = frozenset(
    {
        ER.LOCK_DEADLOCK,
        ER.LOCK_WAIT_TIMEOUT,
        ER.CHECKREAD,
        ER.TABLE_EXISTS_ERROR,  # it was not there a moment ago
        1412,
    }
)
_PASSING = frozenset({1047, 1203, 1226, 1290, 1836})
"""The node is not ready; the user has too many connections, or used its share; the server is read-only."""
_VALUES = frozenset(
    {
        ER.BAD_NULL_ERROR,
        ER.DUP_ENTRY,
        ER.WARN_DATA_OUT_OF_RANGE,
        ER.WARN_DATA_TRUNCATED,
        ER.TRUNCATED_WRONG_VALUE,
        ER.TRUNCATED_WRONG_VALUE_FOR_FIELD,
        ER.DATA_TOO_LONG,
        ER.NO_DEFAULT_FOR_FIELD,
        ER.ROW_IS_REFERENCED,
        ER.ROW_IS_REFERENCED_2,
        ER.NO_REFERENCED_ROW,
        ER.NO_REFERENCED_ROW_2,
        1644,  # a trigger refuses it
        3819,  # a CHECK of MySQL
        4025,  # a CHECK of MariaDB
    }
)
_SCHEMA_CHANGES = ("CREATE ", "DROP ", "ALTER ")


class Session:
    """Represents a transaction on one connection. Many threads may read in it."""

    def __init__(self, connection: pymysql.Connection[Any], database: MysqlTables, name: str):
        self.version = -1
        self.began = 0
        self._connection = connection
        self._database = database
        self._name = name
        self._asking = threading.Lock()

    def begin(self, *, write: bool) -> None:
        self.began = self._database.sequence_number()
        if write:
            # What it reads may be newer than its beginning: no version says which rows there were.
            self.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            self.execute("START TRANSACTION READ WRITE")
        elif self._database.exact:
            self.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            (_, file), (_, at) = sorted(self.query("SHOW STATUS LIKE 'binlog_snapshot_%%'"))
            self.version = (int(file.rpartition(".")[2]) << 40) + int(at)
        else:
            self.execute("START TRANSACTION READ ONLY")
            # This fixes the snapshot.
            sql = "SELECT batch FROM millpond_positions WHERE pipeline = %s"
            self.version = sum(n for (n,) in self.query(sql, (_ALL,)))

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            with self._asking, self._connection.cursor() as cursor:
                text = cursor.mogrify(sql, values)
                self._check_size(text)
                cursor.execute(text)
                return list(cursor.fetchall())
        except (pymysql.MySQLError, OSError) as error:
            raise _explained(error, self._name, changes_schema=sql.startswith(_SCHEMA_CHANGES)) from error

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        self.query(sql, values)

    def _check_size(self, text: str) -> None:
        most = self._database.packet
        if len(text) * 4 >= most and (size := len(text.encode())) >= most:
            raise InvalidRecord(
                f"{self._name} takes statements of {most:,} bytes, and one with this row has {size:,}",
                hint="raise max_allowed_packet of the server, then restart",
            )

    @contextmanager
    def waiting(self, seconds: int) -> Iterator[None]:
        """Sets how long to wait for those who use a table that is changed inside."""
        self.execute("SET lock_wait_timeout = %s", (seconds,))
        try:
            yield
        finally:
            with suppress(Error):
                self.execute("SET lock_wait_timeout = %s", (_PATIENCE,))


class MysqlTables(PooledDatabase):
    """Represents a database of MySQL or MariaDB that has tables."""

    starting = "left(pipeline, char_length(%s)) = %s"
    exact = False
    collation = ""
    """The collation of texts."""
    folds = False
    """Whether names of tables ignore case."""
    packet = 1 << 20
    """The size of a statement, at most."""
    no_wait = 1
    """The shortest time, in seconds, to wait for a table that others use."""

    def __init__(
        self, url: str, replicas: Sequence[str], *, idle: int, retry_timeout: float, connect_timeout: float
    ):
        self._logins = [_login(u, connect_timeout) for u in (url, *replicas)]
        database, *others = (login.name for login in self._logins)
        self._may_be_exact = not replicas
        self._home = str(self._logins[0].database)
        self._sequence = count()
        names = [f"the database {database}", *(f"the replica {name}" for name in others)]
        super().__init__(names, idle=idle, retry_timeout=retry_timeout)

    @property
    def home(self) -> str:
        """Returns the database of the URL, as names of tables have it."""
        return self._home.lower() if self.folds else self._home

    def sequence_number(self) -> int:
        """Returns a number that grows: it orders beginnings of transactions and new indexes, in this process."""
        return next(self._sequence)

    def set_up(self, writing: SqlWriting) -> None:
        session = writing.session
        ((version, log, packet, folding),) = session.query(
            "SELECT version(), @@log_bin, @@max_allowed_packet, @@lower_case_table_names"
        )
        is_mariadb = "mariadb" in version.lower()
        self.packet = packet
        self.folds = bool(folding)
        self.no_wait = 0 if is_mariadb else 1
        # Only MariaDB tells which position of its log a snapshot has.
        self.exact = bool(is_mariadb and log and self._may_be_exact) and _logs_all(session)
        marks = ", ".join(["%s"] * len(_COLLATIONS))
        found = session.query(
            f"SELECT collation_name FROM information_schema.collations WHERE collation_name IN ({marks})",
            _COLLATIONS,
        )
        if not found:
            raise NotSupported(
                f"{self.name} cannot compare texts byte by byte: its version is {version}",
                hint="MariaDB 10.3 and MySQL 8.0.17 can, and newer ones",
            )
        self.collation = found[0][0]
        there = session.query(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = database()"
            " AND table_name IN ('millpond_positions', 'millpond_tables')"
        )
        if there[0][0] < 2:
            end = f"ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {self.collation}"
            session.execute(
                "CREATE TABLE IF NOT EXISTS millpond_positions (pipeline VARCHAR(700) PRIMARY KEY,"
                f" checkpoint LONGTEXT NOT NULL, batch BIGINT NOT NULL, offsets LONGTEXT NOT NULL) {end}"
            )
            session.execute(
                "CREATE TABLE IF NOT EXISTS millpond_tables"
                f" (name VARCHAR(200) PRIMARY KEY, next_row BIGINT NOT NULL) {end}"
            )

    def connect(self, at: int) -> pymysql.Connection[Any]:
        try:
            connection = self._logins[at].open(autocommit=True, conv=_CONVERTERS)
            with connection.cursor() as cursor:
                for sql in _SESSION:
                    cursor.execute(sql)
            return connection
        except (pymysql.MySQLError, OSError) as error:
            raise _explained(error, self._names[at]) from error

    def session(self, connection: pymysql.Connection[Any], at: int) -> Session:
        return Session(connection, self, self._names[at])

    def is_open(self, connection: pymysql.Connection[Any]) -> bool:
        return bool(connection.open)

    def in_transaction(self, connection: pymysql.Connection[Any]) -> bool:
        return bool(connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)

    def roll_back(self, connection: pymysql.Connection[Any]) -> None:
        connection.rollback()

    def updating(self, key: Sequence[str], names: Sequence[str]) -> str:
        sets = ", ".join(f"{n} = VALUES({n})" for n in names) or f"{key[0]} = {key[0]}"
        return f"ON DUPLICATE KEY UPDATE {sets}"

    def note_commit(self, session: PooledSession, pipeline: str, number: int) -> None:
        # The count is locked last, and for no longer than the commit takes.
        session.execute(
            "INSERT INTO millpond_positions VALUES (%s, '', %s, '{}'), (%s, '', 1, '{}')"
            " ON DUPLICATE KEY UPDATE batch = IF(pipeline = %s, batch + 1, VALUES(batch))",
            (pipeline, number, _ALL, _ALL),
        )


def _logs_all(session: PooledSession) -> bool:
    """Returns whether the log of a MariaDB server has every change of its tables, as far as the user may know."""
    settings = dict(
        session.query("SHOW GLOBAL VARIABLES WHERE variable_name IN ('log_slave_updates', 'wsrep_on')")
    )
    if settings.get("wsrep_on", "OFF") == "ON":
        return False
    try:
        filters = [value for row in session.query("SHOW MASTER STATUS") for value in row[2:4]]
        logged = settings["log_slave_updates"] == "ON" or not session.query("SHOW ALL SLAVES STATUS")
    except AccessRefused:
        return False
    return logged and not any(filters)


def _login(url: str, connect_timeout: float) -> Login:
    declared = (*LOGIN_OPTIONS, SOCKET_OPTION)
    given, rest = options_in(url, declared)
    address = address_of(url, names_rows=True)
    if rest:
        known = ", ".join(o.name for o in declared)
        raise InvalidOption(
            f'"{rest[0][0]}" in the URL of a database is no option of MySQL', hint=f"known: {known}"
        )
    values: Mapping[str, Any] = {**{o.name: None for o in declared}, **given}
    login = Login(address, {**values, "connect.timeout": connect_timeout})
    if login.database is None:
        raise InvalidOption(
            f'"{without_passwords(url)}" names no database', hint="mysql://user@host:3306/DATABASE"
        )
    return login


_CONVERTERS: dict[Any, Any] = {
    **converters.encoders,
    Decimal: lambda value, _: format(value, "f"),  # an exponent would make it a DOUBLE
    **dict.fromkeys(
        (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG), int
    ),
    **dict.fromkeys((FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE), float),
}
"""Values of other types are read as texts."""


def _explained(error: BaseException, name: str, *, changes_schema: bool = False) -> Error:
    code, *said = error.args or (0, "")
    if not isinstance(code, int) or isinstance(error, OSError):
        return explained("lost", name, str(error))
    text = without_passwords(str(said[0] if said else error))
    return explained(_trouble(code, changes_schema), name, f"{text} ({code})")


def _trouble(code: int, changes_schema: bool) -> Trouble:
    if code == ER.LOCK_WAIT_TIMEOUT and changes_schema:
        return "locked"
    kinds: tuple[tuple[frozenset[int], Trouble], ...] = (
        (_CONFLICTS, "conflict"),
        (LOGIN, "login"),
        (PRIVILEGE, "privilege"),
        (frozenset({ER.BAD_DB_ERROR}), "database"),
        (LOST | _PASSING, "lost"),
        (TIMES, "timeout"),
        (_NAMES, "name"),
        (_VALUES, "value"),
    )
    return next((kind for codes, kind in kinds if code in codes), "other")
