"""The backends of tables, each beside its driver used by hand: loading, lookups by key, one by one and many at once."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.tables.measure import best_rates
from bench.tables.peers import COLUMNS, Record, records, some_keys
from millpond import App
from tests.servers import MariaDb, MongoJavaServer, Servers

ROWS = 20_000
SINGLE = 300
Peer = tuple[Callable[[], None], Callable[[int], Any], Callable[[list[int]], Any]]
"""Loads all rows; one by its key; many by theirs."""

_NAMES = "id, name, tier, qty, price"


def run() -> Iterator[Figure]:
    data, servers = records(ROWS), Servers()
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        try:
            yield from _measure(
                "sqlite", f"'path' = '{home}/a.db'", data, _sqlite(home / "b.db", data), "sqlite3"
            )
            yield from _measure("cache", "'max_size' = '100000'", data, _dict(data), "dict of dicts")
            url = servers.postgresql.new_schema("ours")
            peer = _postgresql(servers.postgresql.new_schema("theirs"), data)
            yield from _measure("postgresql", f"'url' = '{url}'", data, peer, "psycopg")
            url = servers.mariadb.new_database("ours")
            peer = _mysql(servers.mariadb, data)
            yield from _measure("mysql", f"'url' = '{url}'", data, peer, "PyMySQL")
            url = servers.redis.url()
            yield from _measure(
                "redis", f"'url' = '{url}'", data, _redis(servers.redis.url(1), data), "redis-py"
            )
            url, peer = servers.mongodb.url("ours"), _mongodb(servers.mongodb, data)
            yield from _measure("mongodb", f"'url' = '{url}'", data, peer, "PyMongo")
        finally:
            servers.stop()


def _measure(kind: str, options: str, data: list[Record], peer: Peer, name: str) -> Iterator[Figure]:
    load, one, many = peer
    single, batch = some_keys(ROWS, SINGLE), some_keys(ROWS, 1000)
    with App(f"CREATE TABLE t ({COLUMNS}) WITH ('extension' = '{kind}', {options})") as app:
        table = app.table("t")
        works = (
            ("load from dicts", "rows", lambda: table.bulk_insert(data), lambda: load() or ROWS),
            ("record by key", "lookups", lambda: _each(table.get_record, single), lambda: _each(one, single)),
            (
                "1,000 keys at once",
                "rows",
                lambda: len(table.find_rows_for_join("id", batch)),
                lambda: len(many(batch)),
            ),
        )
        for what, unit, ours, theirs in works:
            rates = best_rates([ours, theirs], rounds=3)
            yield Figure("T1", f"{kind}: {what}, {ROWS:,} rows", rates[0], rates[1], name, unit)


def _each(get: Callable[[int], Any], keys: list[int]) -> int:
    for key in keys:
        get(key)
    return len(keys)


def _dict(data: list[Record]) -> Peer:
    rows: dict[int, Record] = {}

    def load() -> None:
        rows.update({r["id"]: dict(r) for r in data})

    return load, lambda key: dict(rows[key]), lambda keys: [dict(rows[k]) for k in set(keys)]


def _sqlite(path: Path, data: list[Record]) -> Peer:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, tier TEXT, qty INTEGER, price REAL)")

    def load() -> None:
        db.execute("BEGIN")
        db.executemany("INSERT OR REPLACE INTO t VALUES (:id, :name, :tier, :qty, :price)", data)
        db.execute("COMMIT")

    def many(keys: list[int]) -> list[Any]:
        marks = ", ".join("?" * len(keys))
        return db.execute(f"SELECT {_NAMES} FROM t WHERE id IN ({marks})", keys).fetchall()

    return load, lambda key: db.execute("SELECT * FROM t WHERE id = ?", (key,)).fetchone(), many


def _postgresql(url: str, data: list[Record]) -> Peer:
    import psycopg

    db = psycopg.connect(url, autocommit=True)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, tier TEXT, qty INT, price FLOAT8)")

    def load() -> None:
        with db.transaction(), db.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO t VALUES (%(id)s, %(name)s, %(tier)s, %(qty)s, %(price)s)"
                " ON CONFLICT (id) DO UPDATE SET name = excluded.name, tier = excluded.tier,"
                " qty = excluded.qty, price = excluded.price",
                data,
            )

    def many(keys: list[int]) -> list[Any]:
        return db.execute("SELECT * FROM t WHERE id = ANY (%s)", (keys,)).fetchall()

    return load, lambda key: db.execute("SELECT * FROM t WHERE id = %s", (key,)).fetchone(), many


def _mysql(server: MariaDb, data: list[Record]) -> Peer:
    server.new_database("theirs")
    cursor = server.connect("theirs").cursor()
    cursor.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, tier TEXT, qty INT, price DOUBLE)")

    def load() -> None:
        cursor.execute("START TRANSACTION")
        cursor.executemany(
            "INSERT INTO t VALUES (%(id)s, %(name)s, %(tier)s, %(qty)s, %(price)s) ON DUPLICATE KEY UPDATE"
            " name = VALUES(name), tier = VALUES(tier), qty = VALUES(qty), price = VALUES(price)",
            data,
        )
        cursor.execute("COMMIT")

    def one(key: int) -> Any:
        cursor.execute("SELECT * FROM t WHERE id = %s", (key,))
        return cursor.fetchone()

    def many(keys: list[int]) -> Any:
        cursor.execute("SELECT * FROM t WHERE id IN %s", (keys,))
        return cursor.fetchall()

    return load, one, many


def _redis(url: str, data: list[Record]) -> Peer:
    import redis

    db = redis.Redis.from_url(url, decode_responses=True)

    def load() -> None:
        pipe = db.pipeline(transaction=True)
        for record in data:
            pipe.hset(f"t:{record['id']}", mapping=record)
        pipe.execute()

    def many(keys: list[int]) -> list[Any]:
        pipe = db.pipeline(transaction=False)
        for key in set(keys):
            pipe.hgetall(f"t:{key}")
        return pipe.execute()

    return load, lambda key: db.hgetall(f"t:{key}"), many


def _mongodb(server: MongoJavaServer, data: list[Record]) -> Peer:
    """Beside mongo-java-server, which speaks the protocol of MongoDB and is none."""
    import pymongo

    collection = server.client()["theirs"]["t"]

    def load() -> None:
        rows = [{"_id": r["id"], **{k: v for k, v in r.items() if k != "id"}} for r in data]
        collection.bulk_write([pymongo.ReplaceOne({"_id": r["_id"]}, r, upsert=True) for r in rows])

    def many(keys: list[int]) -> list[Any]:
        return list(collection.find({"_id": {"$in": keys}}))

    return load, lambda key: collection.find_one({"_id": key}), many
