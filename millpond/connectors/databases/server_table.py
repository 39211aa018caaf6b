"""Implements what tables in databases on servers share: their options, their names there, and the numbers of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from millpond.connectors.databases.connection_pool import PooledDatabase
from millpond.connectors.databases.row_times import find_times
from millpond.connectors.databases.sql_table import SqlTable, quoted
from millpond.connectors.databases.sql_transactions import SqlWriting
from millpond.connectors.table import shared, url_of
from millpond.errors import Error, InvalidOption, UnknownName
from millpond.options import Option
from millpond.retry import for_connections
from millpond.tables.ttl import goes_by_changes
from millpond.types import Column, Schema

SERVER_OPTIONS = (
    Option(
        "pool.size",
        "int",
        "The number of idle connections that stay open.",
        default=4,
        aliases=("connection.pool.size",),
    ),
    Option(
        "replica.urls",
        "secret",
        "Replicas for reading, separated by commas. Those that lack the last write of this process are not read.",
    ),
    Option(
        "cdc",
        "bool",
        "Whether to follow the change log of the database: what other programs change reaches views, changefeeds and "
        "caches.",
        default=False,
    ),
    Option("connect.timeout", "duration", "The time to open a connection.", default=10.0),
    Option("retry.timeout", "duration", "How long a lost connection is retried.", default=30.0),
)
"""The options of tables in databases on servers, beside ``url`` and ``table``."""


class ServerTable(SqlTable):
    """Shares code among tables in databases on servers."""

    product: ClassVar[str]
    """The name of the product, for people."""
    example: ClassVar[str]
    """What a URL looks like; it begins with the first of ``url_schemes``."""
    url_schemes: ClassVar[tuple[str, ...]]
    longest: ClassVar[tuple[int, str]]
    """The length of a name, and what it is counted in."""

    parts: Sequence[str]
    """Its name there, with or without a schema."""
    database: PooledDatabase

    @classmethod
    @abstractmethod
    def connected(
        cls, url: str, replicas: Sequence[str], *, idle: int, retry_timeout: float, connect_timeout: float
    ) -> PooledDatabase:
        """Opens the database. Raises PackageMissing without its driver."""

    @classmethod
    @abstractmethod
    def fitting(cls, name: str) -> str:
        """Returns a name that the database takes: the same, or a short one that no other name has."""

    @classmethod
    @abstractmethod
    def length(cls, name: str) -> int:
        """Returns the length of a name, as ``longest`` counts it."""

    @abstractmethod
    def create_or_check(self, writing: SqlWriting) -> None:
        """Creates the table, or checks the one that exists."""

    @classmethod
    def open(
        cls,
        name: str,
        schema: Schema,
        values: Mapping[str, Any],
        *,
        null_keys: bool = False,
        home: Path | None = None,
    ) -> Self:
        table = cls(name, schema, database_at(cls, name, values), null_keys=null_keys)
        table.times = goes_by_changes(values)
        with table.closed_on_error():
            table._set_up(str(values.get("table") or ""), name)
        return table

    def _set_up(self, given: str, name: str) -> None:
        self.parts = self.spelled(given.split(".", 1) if given else [self.fitting(name)])
        longest, unit = self.longest
        for part in self.parts:
            if self.length(part) > longest:
                raise InvalidOption(
                    f'{self.what}: "{part}" is longer than the {longest} {unit} that {self.product} has for a name',
                    hint="give it a shorter one, with 'table'",
                )
        self.table = ".".join(escaped(part) for part in self.parts)
        self._name = ".".join(self.parts)
        self.indexed, self.refused = set(), set()
        self.database.write(self.create_or_check)

    def find_columns(self, there: Sequence[str]) -> None:
        """Notes what its columns are called there; ``there`` are those of a table that exists."""
        find_times(self, there)
        self.stored = {c.name: self.name_there(c.name) for c in self.columns}

    def spelled(self, parts: Sequence[str]) -> Sequence[str]:
        """Returns the parts of its name as the server compares them."""
        return parts

    def lacks(self, column: Column) -> Error:
        if column.name not in self.schema:
            return self.not_numbered()
        return UnknownName(
            f'{self.what}: the table "{self._name}" in {self.database.name} has no column "{column.name}"'
        )

    def quoted(self, names: Sequence[str]) -> list[str]:
        return [escaped(self.stored[self.column(name).name]) for name in names]

    def take_numbers(self, session: Any, count: int, highest: int) -> int:
        known = session.query(
            "SELECT next_row FROM millpond_tables WHERE name = %s FOR UPDATE", (self._name,)
        )
        if not known:
            raise UnknownName(
                f'{self.what}: another app has dropped the table "{self._name}" in {self.database.name}',
                hint="start this app again to create it",
            )
        first = max(int(known[0][0]), highest + 1)
        session.execute(
            "UPDATE millpond_tables SET next_row = %s WHERE name = %s", (first + count, self._name)
        )
        return first


def database_at(tables: type[ServerTable], name: str, values: Mapping[str, Any]) -> PooledDatabase:
    """Returns the database of a table with these options, shared with others; its user leaves it when done."""
    url = url_of(name, values, tables.url_schemes, tables.product, tables.example)
    replicas = [r.strip() for r in str(values.get("replica.urls") or "").split(",") if r.strip()]
    timeout = float(values.get("retry.timeout") or 0)
    database = shared(
        f"{url} {replicas}",
        lambda: tables.connected(
            url,
            replicas,
            idle=max(1, int(values.get("pool.size") or 4)),
            retry_timeout=timeout,
            connect_timeout=float(values.get("connect.timeout") or 10),
        ),
    )
    database.patience = for_connections(max(database.patience.timeout, timeout))
    return database


def escaped(name: str) -> str:
    """Escapes a quoted name in a statement with parameters."""
    return quoted(name).replace("%", "%%")
