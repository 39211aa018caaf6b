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
_END = "\r\n"


def records(rows: int) -> list[Record]:
    return [
        {"id": i, "name": f"customer {i}", "tier": _TIERS[i % 4], "qty": i % 100, "price": i * 0.25}
        for i in range(rows)
    ]


def some_keys(rows: int, count: int) -> list[int]:
    chance = random.Random(7)
    return [chance.randrange(rows) for _ in range(count)]


def table_of(data: list[Record] | pa.Table, **options: str) -> Table:
    table = Table(COLUMNS, name="customers", options=options)
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


class RedisRows:
    """A hash for each row in a Redis server on this machine, through redis-py."""

    def __init__(self, url: str, data: list[Record]):
        import redis

        self.db = redis.Redis.from_url(url, decode_responses=True)
        self.db.flushdb()
        for start in range(0, len(data), 10_000):
            self._load(data[start : start + 10_000])

    def _load(self, data: list[Record]) -> None:
        """As redis-cli --pipe does: redis-py alone would take a minute for a million rows."""
        connection = self.db.connection_pool.get_connection()
        try:
            connection.send_packed_command([b"".join(_hset(record) for record in data)])
            for _ in data:
                connection.read_response()
        finally:
            self.db.connection_pool.release(connection)

    def get(self, key: int) -> Any:
        return self.db.hgetall(f"t:{key}")

    def has(self, key: int) -> Any:
        return self.db.exists(f"t:{key}")

    def many(self, keys: list[int]) -> list[Any]:
        pipe = self.db.pipeline(transaction=False)
        for key in keys:
            pipe.hgetall(f"t:{key}")
        return pipe.execute()

    def put(self, record: Record) -> Any:
        return self.db.hset(f"t:{record['id']}", mapping=record)

    def update(self, key: int, qty: int) -> Any:
        return self.db.hset(f"t:{key}", "qty", qty)

    def delete(self, key: int) -> Any:
        return self.db.delete(f"t:{key}")


def _hset(record: Record) -> bytes:
    words = ["HSET", f"t:{record['id']}", *(str(w) for pair in record.items() for w in pair)]
    return f"*{len(words)}\r\n{''.join(f'${len(w)}{_END}{w}{_END}' for w in words)}".encode("ascii")


def polars_of(data: pa.Table) -> polars.DataFrame:
    import polars

    frame = polars.from_arrow(data)
    assert isinstance(frame, polars.DataFrame)
    return frame
