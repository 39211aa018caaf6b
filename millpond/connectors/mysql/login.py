"""Logs in to MySQL or MariaDB with PyMySQL, and translates its errors."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any

import pymysql
from pymysql.constants import CR, ER

from millpond.connectors.databases.uri import DatabaseAddress
from millpond.connectors.mysql.internals import set_patience
from millpond.errors import (
    AuthenticationIssue,
    ConfigurationIssue,
    ConnectionLost,
    DatabaseMissing,
    Error,
    InvalidOption,
    PrivilegeMissing,
    SourceError,
    TableMissing,
    TimedOut,
    UnknownName,
    without_passwords,
)

LOST = frozenset(
    {
        CR.CR_CONN_HOST_ERROR,
        CR.CR_CONNECTION_ERROR,
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        ER.CON_COUNT_ERROR,
        ER.SERVER_SHUTDOWN,
        ER.QUERY_INTERRUPTED,
        ER.NEW_ABORTING_CONNECTION,
        ER.NORMAL_SHUTDOWN,
        ER.ABORTING_CONNECTION,
        0,
        1927,  # the connection was killed
    }
)
LOGIN = frozenset({ER.ACCESS_DENIED_ERROR, 1251, 1524, 1698, 1820, 1862, 4151})
PRIVILEGE = frozenset(
    {ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, 1227, 1370}
)
TIMES = frozenset({ER.LOCK_WAIT_TIMEOUT, 1969, 3024})
AGAIN = frozenset({ER.LOCK_DEADLOCK, 1412})


class Login:
    """Describes who logs in where. The options specify what the URI does not, then the environment."""

    def __init__(self, address: DatabaseAddress, values: Mapping[str, Any]):
        said = os.environ.get
        self._values = values
        self.host: str = address.host or values["host"] or said("MYSQL_HOST") or "localhost"
        self.port: int = address.port or values["port"] or int(said("MYSQL_TCP_PORT") or 3306)
        self.user: str = (
            address.username or values["username"] or said("MYSQL_USER") or said("USER") or "root"
        )
        self.database: str | None = address.database or values["database"] or said("MYSQL_DATABASE")
        self._password: str = address.password or values["password"] or said("MYSQL_PWD") or ""
        self._secured = values["ssl.mode"] or "prefer"
        self._plain = False
        """Whether the server has no TLS, and does not need it."""
        certificates = [n for n in ("ssl.ca", "ssl.cert", "ssl.key") if values[n] is not None]
        if certificates and self._secured == "disable":
            raise InvalidOption(
                f"option \"{certificates[0]}\" is for connections that are secured: 'ssl.mode'"
            )
        if values["ssl.key"] is not None and values["ssl.cert"] is None:
            raise InvalidOption('option "ssl.key" is the key of a certificate', hint="'ssl.cert' = '…'")

    @property
    def name(self) -> str:
        """Returns the name of the database, for people."""
        return f"mysql://{self.host}:{self.port}/{self.database or ''}"

    @property
    def patience(self) -> float | None:
        """Returns how long to wait for a response."""
        timeout: float | None = self._values["socket.timeout"]
        return timeout

    def open(self, **more: Any) -> pymysql.Connection[Any]:
        """Opens a separate connection, with another ``patience`` if one is given. Raises errors of PyMySQL, and
        ConfigurationIssue.
        """
        if self._secured != "prefer" or self._plain:
            return self._opened(secured=self._secured not in ("disable", "prefer"), **more)
        try:
            return self._opened(secured=True, **more)
        except pymysql.err.OperationalError as error:
            if error.args[0] != CR.CR_SSL_CONNECTION_ERROR:
                raise
        found = self._opened(secured=False, **more)
        self._plain = True
        return found

    def _opened(self, *, secured: bool, **more: Any) -> pymysql.Connection[Any]:
        values = self._values
        patience, seconds = more.pop("patience", self.patience), max(1, round(values["connect.timeout"]))
        driver = pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self._password.encode(),  # PyMySQL would encode a str as Latin-1
            **{
                "database": self.database,
                "charset": "utf8mb4",
                "connect_timeout": seconds,
                "read_timeout": seconds,  # the server may be up and send nothing
                "write_timeout": seconds,
                "ssl": self._context() if secured else None,
                "ssl_disabled": not secured,
                **more,
            },
        )
        set_patience(driver, patience)
        return driver

    def _context(self) -> ssl.SSLContext:
        values = self._values
        try:
            context = ssl.create_default_context(cafile=values["ssl.ca"])
            context.check_hostname = self._secured == "verify-full"
            verified = self._secured in ("verify-ca", "verify-full")
            context.verify_mode = ssl.CERT_REQUIRED if verified else ssl.CERT_NONE
            if values["ssl.cert"] is not None:
                context.load_cert_chain(values["ssl.cert"], values["ssl.key"])
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationIssue(
                f"a file of 'ssl.ca', 'ssl.cert' and 'ssl.key' cannot be used: {error}"
            ) from None
        return context

    def explained(self, error: BaseException, table: str | None = None) -> Error:
        """Returns an error of PyMySQL as one of ours."""
        if isinstance(error, Error):
            return error
        code, said = (*getattr(error, "args", ()), 0, "")[:2] if getattr(error, "args", ()) else (0, "")
        if not isinstance(code, int):
            code, said = -1, str(error)
        text = without_passwords(
            f"{self.name}: {said} ({code})" if code > 0 else f"{self.name}: {said or error}"
        )
        if code == CR.CR_SSL_CONNECTION_ERROR:
            return ConfigurationIssue(
                text, hint="give the server a certificate, or 'ssl.mode' = 'prefer' takes what it has"
            )
        if code in LOST and "timed out" in text:
            return TimedOut(
                text, hint="check host and port, or give it longer: 'connect.timeout', 'socket.timeout'"
            )
        if code in LOST:
            if "certificate" in text.lower():
                return ConfigurationIssue(text, hint="'ssl.ca' names the authorities that are trusted")
            return ConnectionLost(text, hint="is the server up, and can it be reached from here?")
        if code in LOGIN:
            return AuthenticationIssue(
                text,
                hint=f"check 'username' (\"{self.user}\") and 'password', and from where the user may log in",
            )
        if code == ER.BAD_DB_ERROR:
            return DatabaseMissing(text, hint="SHOW DATABASES lists those that are there")
        if code in (ER.NO_SUCH_TABLE, ER.BAD_TABLE_ERROR):
            return TableMissing(text, hint="SHOW TABLES lists those that are there")
        if code in PRIVILEGE:
            return PrivilegeMissing(text, hint=self._grant(code, table))
        if code in TIMES:
            return TimedOut(text, hint="'query.timeout' is how long a query may take in the database")
        if code in AGAIN:
            return ConnectionLost(text)
        if code == ER.BAD_FIELD_ERROR:
            return UnknownName(text, hint="check the names of columns")
        return SourceError(text, hint="check the options that are SQL: 'query', 'where'")

    def _grant(self, code: int, table: str | None) -> str:
        if code == ER.DBACCESS_DENIED_ERROR:
            return f"GRANT SELECT ON `{self.database}`.* TO '{self.user}'"
        return f"GRANT SELECT ON {table or f'`{self.database}`.*'} TO '{self.user}'"
