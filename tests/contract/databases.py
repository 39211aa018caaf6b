"""Tables of databases, made and filled by their own drivers, for the suite of sources and others."""

from __future__ import annotations

import math
import sqlite3
import uuid
from datetime import date, datetime
from decimal import Decimal
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
    kinds: ClassVar[dict[str, str]] = {}
    """Its names of types, where they are others than ours."""
    quote = '"'
    zone = ""
    """What follows a time of UTC."""

    def __init__(self, servers: Servers, directory: Path):
        self.servers = servers
        self.directory = directory
        self.name = f"t{uuid.uuid4().hex[:8]}"

    def uri(self, table: str) -> str:
        raise NotImplementedError

    def run(self, sql: str) -> None:
        raise NotImplementedError

    def create(self, table: str, columns: str) -> None:
        """Makes a table with columns of our types, the first of which is its key."""
        parts = [part.split() for part in columns.replace(" PRIMARY KEY", "").split(", ")]
        quote = self.quote
        listed = [f"{quote}{name}{quote} {self.kinds.get(kind, kind)}" for name, kind in parts]
        self.run(f"CREATE TABLE {table} ({listed[0]} NOT NULL PRIMARY KEY, {', '.join(listed[1:])})")

    def held(self, value: Any) -> Any:
        """A value as the database can hold it: None where it cannot."""
        return value

    def fill(self, table: str, rows: list[Row]) -> None:
        """Inserts rows, in one statement."""
        if rows:
            texts = ("(" + ", ".join(self.literal(self.held(v)) for v in row) + ")" for row in rows)
            self.run(f"INSERT INTO {table} VALUES {', '.join(texts)}")

    def literal(self, value: Any) -> str:
        match value:
            case None:
                return "NULL"
            case bool():
                return str(value).lower()
            case float() if not math.isfinite(value):
                return f"'{value}'"
            case int() | float() | Decimal():
                return str(value)
            case datetime():
                return f"'{value:%Y-%m-%d %H:%M:%S.%f}{self.zone}'"
            case date():
                return f"'{value.isoformat()}'"
            case _:
                return "'" + str(value).replace("'", "''") + "'"


class Sqlite(Base):
    source = "sql"
    kinds: ClassVar[dict[str, str]] = {"STRING": "TEXT", "TIMESTAMP": "DATETIME"}

    def __init__(self, servers: Servers, directory: Path):
        super().__init__(servers, directory)
        self.path = directory / f"{self.name}.db"

    def uri(self, table: str) -> str:
        return f"sql://sqlite:///{self.path}?table={table}"

    def held(self, value: Any) -> Any:
        return None if isinstance(value, float) and math.isnan(value) else value

    def literal(self, value: Any) -> str:
        infinite = isinstance(value, float) and math.isinf(value)
        return ("9e999" if value > 0 else "-9e999") if infinite else super().literal(value)

    def run(self, sql: str) -> None:
        connection = sqlite3.connect(self.path)
        with connection:
            connection.execute(sql)
        connection.close()


class DuckDb(Base):
    source = "sql"
    kinds: ClassVar[dict[str, str]] = {"STRING": "VARCHAR", "TIMESTAMP": "TIMESTAMPTZ"}
    zone = "+00"

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
    kinds: ClassVar[dict[str, str]] = {"STRING": "text", "DOUBLE": "float8", "TIMESTAMP": "timestamptz"}
    zone = "+00"

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
    kinds: ClassVar[dict[str, str]] = {"STRING": "TEXT", "BOOLEAN": "BIT(1)", "TIMESTAMP": "DATETIME(6)"}
    quote = "`"

    def __init__(self, servers: Servers, directory: Path):
        super().__init__(servers, directory)
        self.server = servers.mariadb
        self.url = self.server.new_database(self.name)

    def held(self, value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    def uri(self, table: str) -> str:
        return f"{self.url}/{table}"

    def run(self, sql: str) -> None:
        self.server.execute(sql, self.name)


class Clickhouse(Base):
    source = "clickhouse"
    kinds: ClassVar[dict[str, str]] = {
        "INT": "Int32",
        "BIGINT": "Int64",
        "DECIMAL(12,3)": "Decimal(12, 3)",
        "DOUBLE": "Float64",
        "STRING": "String",
        "BOOLEAN": "Bool",
        "DATE": "Date32",
        "TIMESTAMP": "DateTime64(6, 'UTC')",
    }
    schema = "id Int64, name Nullable(String)) ENGINE = MergeTree ORDER BY (id"

    def __init__(self, servers: Servers, directory: Path):
        super().__init__(servers, directory)
        self.server = servers.clickhouse
        self.url = self.server.new_database(self.name)

    def uri(self, table: str) -> str:
        return f"{self.url}/{table}"

    def run(self, sql: str) -> None:
        self.server.execute(sql, self.name)

    def create(self, table: str, columns: str) -> None:
        parts = [part.split() for part in columns.replace(" PRIMARY KEY", "").split(", ")]
        listed = [f"{name} Nullable({self.kinds[kind]})" for name, kind in parts[1:]]
        key, kind = parts[0]
        self.run(f"CREATE TABLE {table} ({key} {self.kinds[kind]}, {', '.join(listed)}) ORDER BY {key}")

    def held(self, value: Any) -> Any:
        """Its days are those from 1900 to 2299."""
        outside = isinstance(value, date) and not 1900 <= value.year < 2300
        return None if outside else value

    def literal(self, value: Any) -> str:
        return str(value) if isinstance(value, float) else super().literal(value)


DATABASES: dict[str, type[Base]] = {
    "sqlite": Sqlite,
    "duckdb": DuckDb,
    "postgresql": Postgresql,
    "mysql": Mysql,
    "clickhouse": Clickhouse,
}
