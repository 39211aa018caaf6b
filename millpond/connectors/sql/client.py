"""Queries any database that SQLAlchemy has a dialect for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy import exc

from millpond.connectors.databases.client import Database
from millpond.connectors.databases.uri import DatabaseAddress, split_query
from millpond.errors import (
    ConnectionLost,
    DatabaseMissing,
    Error,
    InvalidOption,
    PackageMissing,
    without_passwords,
)

FILES = "sqlite"
"""The dialect whose databases are files, of numbers and texts alone."""
_READ_ONLY = {FILES: "PRAGMA query_only = ON"}
"""How a dialect is set to read-only."""


_EXCLUSIVE = {"duckdb"}
"""Dialects whose files only one process can open at a time: nothing keeps them open between two polls."""


class AnyDatabase(Database):
    """Represents the database at the URL after ``sql://``."""

    dialect: ClassVar[str] = ""

    def __init__(self, uri: str, address: DatabaseAddress, values: Mapping[str, Any]):
        self._url = _url_of(uri, address, values["driver"])
        if self._url.get_backend_name() in _EXCLUSIVE:
            values = {**values, "pool.max.idle": 0}
        super().__init__(uri, address, values)

    @property
    def name(self) -> str:
        return self._url.set(query={}).render_as_string(hide_password=True)

    def url(self) -> sa.URL:
        return self._url

    def _made(self) -> sa.Engine:
        path = self._url.database
        if self._url.get_backend_name() == FILES and path and not path.startswith((":", "file:")):
            if not os.path.exists(path):  # SQLite would create it
                raise DatabaseMissing(
                    f'there is no file "{path}"', hint="check the path: sql://sqlite:////absolute/path.db"
                )
        try:
            return super()._made()
        except exc.NoSuchModuleError:
            raise PackageMissing(
                f'SQLAlchemy has no dialect "{self._url.drivername}"',
                hint="install the package that brings it",
            ) from None
        except ImportError as error:
            raise PackageMissing(
                f'the driver of "{self._url.drivername}" is not installed: {error.name}',
                hint=f"pip install {error.name}",
            ) from None

    def prepared(self, connection: sa.Connection) -> None:
        read_only = _READ_ONLY.get(self._url.get_backend_name())
        if read_only is not None:
            connection.exec_driver_sql(read_only)

    def explained(self, error: exc.SQLAlchemyError) -> Error:
        said = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        if self._url.get_backend_name() == FILES and "unable to open database file" in said:
            return DatabaseMissing(
                without_passwords(f"{self.name}: {said}"),
                hint="check the path: sql://sqlite:////absolute/path.db",
            )
        if isinstance(error, exc.OperationalError) and not isinstance(error, exc.ProgrammingError):
            known = super().explained(error)
            if self._url.host is not None and not isinstance(known, ConnectionLost):
                return ConnectionLost(known.message)
            return known
        return super().explained(error)


def _url_of(uri: str, address: DatabaseAddress, driver: str | None) -> sa.URL:
    before, _ = split_query(uri)
    text = before.partition("://")[2]
    try:
        url = sa.make_url(text)
    except exc.ArgumentError:
        raise InvalidOption(
            f'"{without_passwords(text)}" is no URL of SQLAlchemy',
            hint="sql://sqlite:////absolute/path.db?table=…",
        ) from None
    if driver is not None:
        url = url.set(drivername=f"{url.get_backend_name()}+{driver}")
    return url.update_query_pairs(address.rest)
