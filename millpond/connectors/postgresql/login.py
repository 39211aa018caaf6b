"""Opens connections to PostgreSQL, and translates its errors for readers."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.waiting import Ready

from millpond.connectors.databases.uri import DatabaseAddress
from millpond.connectors.postgresql.driver import said, trouble
from millpond.connectors.postgresql.types import SETTINGS
from millpond.errors import (
    AuthenticationIssue,
    BadData,
    ConnectionLost,
    DatabaseMissing,
    Error,
    PrivilegeMissing,
    SourceChanged,
    SourceError,
    TableMissing,
    TimedOut,
    UnknownName,
)

Connected = psycopg.Connection[tuple[Any, ...]]
_DENIED = re.compile(
    r"permission denied for (table|view|schema|database|sequence|foreign table|relation) (\S+)"
)
_RIGHTS = {"schema": "USAGE ON SCHEMA", "database": "CONNECT ON DATABASE", "sequence": "SELECT ON SEQUENCE"}


class Login:
    """Describes where a database is and who logs in: from the URI, else the options, else the variables of libpq
    (PGHOST, PGUSER, PGPASSWORD, …), else it is on this machine.
    """

    def __init__(self, place: DatabaseAddress, values: Mapping[str, Any]):
        host = place.host or values["host"] or os.environ.get("PGHOST") or "localhost"
        given = {
            "host": host,
            "port": place.port or values["port"],
            "dbname": place.database or values["database"],
            "user": place.username or values["username"],
            "password": place.password or values["password"],
            "sslmode": values["ssl.mode"],
            "sslrootcert": values["ssl.ca"],
            "sslcert": values["ssl.cert"],
            "sslkey": values["ssl.key"],
            "connect_timeout": max(2, round(values["connect.timeout"])),
            "application_name": "millpond",
            "client_encoding": "utf8",
        }
        self._socket_timeout: float | None = values["socket.timeout"]
        if self._socket_timeout is not None:
            given["tcp_user_timeout"] = round(self._socket_timeout * 1000)
        self._given = {name: value for name, value in given.items() if value is not None}
        port = given["port"] or os.environ.get("PGPORT") or 5432
        database = given["dbname"] or os.environ.get("PGDATABASE") or given["user"] or ""
        self.name = f"postgresql://{host}:{port}/{database}"
        self.user = str(given["user"] or os.environ.get("PGUSER") or "")

    @property
    def conninfo(self) -> str:
        """Returns what libpq connects to, with the password."""
        return psycopg.conninfo.make_conninfo(**self._given)

    def connect(self, *, replication: bool = False, autocommit: bool = True) -> Connected:
        """Opens a new connection. Raises what psycopg does."""
        more: dict[str, Any] = {"replication": "database"} if replication else {}
        kind = psycopg.Connection if self._socket_timeout is None else _Impatient
        connection = kind.connect(autocommit=autocommit, **self._given, **more)
        if isinstance(connection, _Impatient):
            connection.seconds = self._socket_timeout
        return connection

    def open(self, *, replication: bool = False) -> Connected:
        """Opens a new connection that writes values as they are read here. Raises our errors."""
        try:
            connection = self.connect(replication=replication)
            for name, value in SETTINGS.items():
                setting = sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
                connection.pgconn.exec_(setting.as_bytes(connection))
        except psycopg.Error as error:
            raise explained(error, self.name, self.user, lost=True) from None
        return connection

    def ask(self, connection: Connected, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Returns the rows of a query. Raises our errors."""
        try:
            cursor = connection.execute(query.encode(), values)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise explained(error, self.name, self.user, lost=connection.closed) from None


class _Impatient(psycopg.Connection[tuple[Any, ...]]):
    """Represents a connection that does not wait for ever for the server's response."""

    seconds: float | None = None

    def wait(self, gen: Any, *args: Any, **more: Any) -> Any:
        if self.seconds is None:
            return super().wait(gen, *args, **more)
        try:
            return super().wait(_limited(gen, self.seconds), *args, **more)
        except errors.ConnectionTimeout:
            self.close()  # a response may still come, to nobody
            raise


def _limited(steps: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    try:
        wanted, since = next(steps), time.monotonic()
        while True:
            ready = yield wanted
            if ready != Ready.NONE:
                since = time.monotonic()
            elif time.monotonic() - since > seconds:
                raise errors.ConnectionTimeout(f"no answer for {seconds:g} s")
            wanted = steps.send(ready)
    except StopIteration as end:
        return end.value


def explained(error: Exception, name: str, user: str, *, lost: bool) -> Error:
    """Returns what went wrong, and what to do about it."""
    if not isinstance(error, psycopg.Error):
        return ConnectionLost(f"{name} does not answer: {error}")
    before: BaseException | None = error
    while before is not None and not isinstance(before, errors.ConnectionTimeout):
        before = before.__context__
    if before is not None:  # a later error, on a connection that is closed by now, says less
        error = before
    text = said(error)
    if isinstance(error, errors.ConnectionTimeout):
        return TimedOut(
            f"{name} does not answer in time: {text}",
            hint="check host and port, or give it longer: 'connect.timeout', 'socket.timeout'",
        )
    match trouble(error, lost=lost):
        case "login" | "user":
            return AuthenticationIssue(
                f"{name} refuses the login: {text}",
                hint="check 'username', 'password' and the server's pg_hba.conf",
            )
        case "privilege":
            return PrivilegeMissing(f"{name}: {text}", hint=_grant(text, user))
        case "database":
            return DatabaseMissing(f"{name}: {text}", hint="create it, or correct the URI")
        case "timeout":
            return TimedOut(f"{name}: {text}", hint="give it longer: 'query.timeout'")
        case "lost":
            return ConnectionLost(
                f"{name} does not answer: {text}", hint="check that it runs and can be reached"
            )
        case "locked" | "conflict":
            return SourceChanged(f"{name}: {text}", hint="it is tried again")
        case "name" if error.sqlstate != "42703":
            return TableMissing(f"{name}: {text}", hint="check its name and its schema")
        case "name":
            return UnknownName(f"{name}: {text}", hint="check the names of columns")
        case "value":
            return BadData(
                f"{name}: {text}", hint=error.diag.message_detail or "leave such rows out: 'where'"
            )
        case _:
            hint = error.diag.message_hint or "check the options that are SQL: 'query', 'where'"
            return SourceError(f"{name}: {text}", hint=hint)


def _grant(text: str, user: str) -> str:
    found = _DENIED.search(text)
    if found is None:
        return "ask the administrator of the database for the privilege"
    return f'GRANT {_RIGHTS.get(found[1], "SELECT ON")} {found[2]} TO "{user}"'


def lsn_of(text: str) -> int:
    """Parses a place in the log as PostgreSQL writes it: ``16/B374D848``."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(place: int) -> str:
    return f"{place >> 32:X}/{place & 0xFFFFFFFF:X}"
