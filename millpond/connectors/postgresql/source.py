"""Reads tables and queries of PostgreSQL: once, by polling, or by following the changelog."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from millpond.connectors.cdc.source import CapturingSource
from millpond.connectors.databases.options import (
    CAPTURE_OPTIONS,
    LOGIN_OPTIONS,
    SHARED_OPTIONS,
    SOCKET_OPTION,
)
from millpond.options import Option

if TYPE_CHECKING:
    from millpond.connectors.databases.client import Database


class PostgresqlSource(CapturingSource):
    """Reads by COPY, and by logical replication."""

    kind: ClassVar[str] = "postgresql"
    schemes: ClassVar[tuple[str, ...]] = ("postgresql", "postgres")
    extra: ClassVar[str] = "postgresql"
    driver: ClassVar[str] = "psycopg"
    options: ClassVar[tuple[Option, ...]] = (
        *SHARED_OPTIONS,
        *LOGIN_OPTIONS,
        SOCKET_OPTION,
        *CAPTURE_OPTIONS,
        Option(
            "slot.name",
            "text",
            "the name of the replication slot and of the publication; by default Millpond chooses "
            "one for the table",
        ),
        Option(
            "slot.lag.warn",
            "size",
            "how much log the server may retain for the slot before Millpond warns",
            1 << 30,
        ),
    )

    def _open(self) -> Database:
        from millpond.connectors.postgresql.client import PostgresDatabase

        return PostgresDatabase(self.uri, self.database_address, self.values)
