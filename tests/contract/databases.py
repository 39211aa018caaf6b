"""Tables of databases, made and filled by their own drivers, for the suite of sources and others."""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path
from typing import Any, ClassVar

import duckdb

from tests.servers import Servers

Row = tuple[Any, ...]


class Base:
    """A database of a kind: ``uri`` names one of its tables, ``run`` sends it SQL."""

    source: ClassVar[str]
    """The kind of the source that reads it."""
    schema = "id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(40)"

    def __init__(self, servers: Servers, directory: Path):
        self.servers = servers
        self.directory = directory
        self.name = f"t{uuid.uuid4().hex[:8]}"

    def uri(self, table: str) -> str:
        raise NotImplementedError

    def run(self, sql: str) -> None:
        raise NotImplementedError

    def fill(self, table: str, rows: list[Row]) -> None:
        """Inserts rows, in one statement."""
        if rows:
            self.run(f"INSERT INTO {table} VALUES {', '.join(map(literal, rows))}")


def literal(row: Row) -> str:
    return "(" + ", ".join("NULL" if v is None else _text(v) for v in row) + ")"


def _text(value: Any) -> str:
    return str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"


class Sqlite(Base):
    source = "sql"

    def __init__(self, servers: Servers, directory: Path):
        super().__init__(servers, directory)
        self.path = directory / f"{self.name}.db"

    def uri(self, table: str) -> str:
        return f"sql://sqlite:///{self.path}?table={table}"

    def run(self, sql: str) -> None:
        connection = sqlite3.connect(self.path)
        with connection:
            connection.execute(sql)
        connection.close()


class DuckDb(Base):
    source = "sql"

    def __init__(self, servers: Servers, directory: Path):
        super().__init__(servers, directory)
        self.path = directory / f"{self.name}.duckdb"

    def uri(self, table: str) -> str:
        return f"sql://duckdb:///{self.path}?table={table}"

    def run(self, sql: str) -> None:
        with duckdb.connect(self.path) as connection:
            connection.execute(sql)


class Postgresql(Base):
    source = "postgresql"

    def __init__(self, servers: Servers, directory: Path):
        super().__init__(servers, directory)
        self.server = servers.postgresql
        self.server.execute(f"CREATE DATABASE {self.name}")

    def uri(self, table: str) -> str:
        return f"postgresql://millpond@127.0.0.1:{self.server.port}/{self.name}/{table}"

    def run(self, sql: str) -> None:
        self.server.execute(sql, self.server.url(self.name))


class Mysql(Base):
    source = "mysql"

    def __init__(self, servers: Servers, directory: Path):
        super().__init__(servers, directory)
        self.server = servers.mariadb
        self.url = self.server.new_database(self.name)

    def uri(self, table: str) -> str:
        return f"{self.url}/{table}"

    def run(self, sql: str) -> None:
        self.server.execute(sql, self.name)


class Clickhouse(Base):
    source = "clickhouse"
    schema = "id Int64, name Nullable(String)) ENGINE = MergeTree ORDER BY (id"

    def __init__(self, servers: Servers, directory: Path):
        super().__init__(servers, directory)
        self.server = servers.clickhouse
        self.url = self.server.new_database(self.name)

    def uri(self, table: str) -> str:
        return f"{self.url}/{table}"

    def run(self, sql: str) -> None:
        self.server.execute(sql, self.name)


DATABASES: dict[str, type[Base]] = {
    "sqlite": Sqlite,
    "duckdb": DuckDb,
    "postgresql": Postgresql,
    "mysql": Mysql,
    "clickhouse": Clickhouse,
}
