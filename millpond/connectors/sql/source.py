"""Reads any database that SQLAlchemy supports: ``sql://`` before its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from millpond.connectors.databases.options import CAPTURE_OPTIONS, LOGIN_OPTIONS, SHARED_OPTIONS
from millpond.connectors.databases.source import SqlSource
from millpond.connectors.databases.uri import DatabaseAddress
from millpond.errors import InvalidOption
from millpond.options import Option, find_option

if TYPE_CHECKING:
    from millpond.connectors.databases.client import Database


class AnySqlSource(SqlSource):
    """Reads through SQLAlchemy alone."""

    kind: ClassVar[str] = "sql"
    schemes: ClassVar[tuple[str, ...]] = ("sql",)
    extra: ClassVar[str] = "sql"
    options: ClassVar[tuple[Option, ...]] = (
        *SHARED_OPTIONS,
        Option("driver", "text", "the SQLAlchemy driver, in place of the one in the URL"),
    )

    def _database_address(self, rest: tuple[tuple[str, str], ...]) -> DatabaseAddress:
        """Returns the address: the URL; parameters that are not options of Millpond belong to it."""
        for name, _ in rest:
            if find_option((*CAPTURE_OPTIONS, *LOGIN_OPTIONS), name) is not None:
                raise InvalidOption(
                    f'sql:// has no option "{name}"',
                    hint="'poll.interval' follows a table; where the database is, and who logs in, stands in its URL",
                )
        return DatabaseAddress(rest=rest)

    def _open(self) -> Database:
        from millpond.connectors.sql.client import AnyDatabase

        return AnyDatabase(self.uri, self.database_address, self.values)
