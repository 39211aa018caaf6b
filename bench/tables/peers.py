"""The same rows in other hands."""

from __future__ import annotations

import random
import sqlite3
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from millpond import Table

if TYPE_CHECKING:
    import polars

COLUMNS = "id BIGINT PRIMARY KEY, name STRING, tier STRING, qty INT, price DOUBLE"
_TIERS = ("GOLD", "SILVER", "BRONZE", "IRON")
Record = dict[str, Any]


def records(rows: int) -> list[Record]:
    return [
        {"id": i, "name": f"customer {i}", "tier": _TIERS[i % 4], "qty": i % 100, "price": i * 0.25}
        for i in range(rows)
    ]


def some_keys(rows: int, count: int) -> list[int]:
    chance = random.Random(7)
    return [chance.randrange(rows) for _ in range(count)]


def table_of(data: list[Record] | pa.Table) -> Table:
    table = Table(COLUMNS, name="customers")
    table.bulk_insert(data)
    return table


def dict_of(data: list[Record]) -> dict[int, Record]:
    return {r["id"]: dict(r) for r in data}


def sqlite_of(data: list[Record]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, tier TEXT, qty INTEGER, price REAL)"
    )
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO t VALUES (:id, :name, :tier, :qty, :price)", data)
    connection.execute("COMMIT")
    connection.row_factory = lambda cursor, row: dict(
        zip((d[0] for d in cursor.description), row, strict=True)
    )
    return connection


def duckdb_of(data: pa.Table) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    connection.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, tier VARCHAR, qty INT, price DOUBLE)"
    )
    connection.register("given", data)
    connection.execute("INSERT INTO t SELECT * FROM given")
    return connection


def polars_of(data: pa.Table) -> polars.DataFrame:
    import polars

    frame = polars.from_arrow(data)
    assert isinstance(frame, polars.DataFrame)
    return frame
