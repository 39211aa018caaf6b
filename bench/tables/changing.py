"""F9 and F15: one record in, changed and out again; in a table alone, and in one of an app."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

from bench.figure import Figure
from bench.tables.measure import Work, best_rates, calls
from bench.tables.peers import RedisRows, dict_of, records, some_keys, sqlite_of, table_of
from millpond import App, Table


def run(rows: int, redis_url: str) -> Iterator[Figure]:
    data = records(rows)
    table, plain, sqlite = table_of(data), dict_of(data), sqlite_of(data)
    redis = RedisRows(redis_url, data)
    keys = some_keys(rows, 2_000)
    fresh = count(rows).__next__

    def record() -> dict[str, Any]:
        return {"id": fresh(), "name": "new", "tier": "GOLD", "qty": 1, "price": 2.5}

    def put(new: dict[str, Any]) -> None:
        plain[new["id"]] = dict(new)

    insert = "INSERT INTO t VALUES (:id, :name, :tier, :qty, :price)"
    ours, peer, sqlite_rate, redis_rate = best_rates(
        [
            calls(lambda _: table.insert(record()), keys),
            calls(lambda _: put(record()), keys),
            calls(lambda _: sqlite.execute(insert, record()), keys),
            calls(lambda _: redis.put(record()), keys),
        ]
    )
    yield Figure("F15", f"insert, {rows:,} rows", ours, peer, "a dict of dicts", "records")
    yield Figure("F15", f"insert, {rows:,} rows", ours, sqlite_rate, "SQLite in memory", "records")
    yield Figure("F15", f"insert, {rows:,} rows", ours, redis_rate, "Redis on localhost", "records")
    ours, peer, sqlite_rate, redis_rate = best_rates(
        [
            calls(lambda key: table.update({"id": key}, {"qty": 5}), keys),
            calls(lambda key: plain[key].update(qty=5), keys),
            calls(lambda key: sqlite.execute("UPDATE t SET qty = 5 WHERE id = ?", (key,)), keys),
            calls(lambda key: redis.update(key, 5), keys),
        ]
    )
    yield Figure("F9", f"update by key, {rows:,} rows", ours, peer, "a dict of dicts", "updates")
    yield Figure("F9", f"update by key, {rows:,} rows", ours, sqlite_rate, "SQLite in memory", "updates")
    yield Figure("F9", f"update by key, {rows:,} rows", ours, redis_rate, "Redis on localhost", "updates")
    gone = list(dict.fromkeys(keys))
    ours, peer, sqlite_rate, redis_rate = best_rates(
        [
            calls(lambda key: table.delete(id=key), gone),
            calls(lambda key: plain.pop(key, None), gone),
            calls(lambda key: sqlite.execute("DELETE FROM t WHERE id = ?", (key,)), gone),
            calls(redis.delete, gone),
        ],
        rounds=1,
    )
    yield Figure("F9", f"delete by key, {rows:,} rows", ours, peer, "a dict of dicts", "deletes")
    yield Figure("F9", f"delete by key, {rows:,} rows", ours, sqlite_rate, "SQLite in memory", "deletes")
    yield Figure("F9", f"delete by key, {rows:,} rows", ours, redis_rate, "Redis on localhost", "deletes")
    sqlite.close()


def run_in_app(rows: int) -> Iterator[Figure]:
    """The same in an app, by what a commit waits for, beside the table alone."""
    columns = "id BIGINT PRIMARY KEY, name STRING, tier STRING, qty BIGINT, price DOUBLE"
    data = records(rows)
    alone = table_of(data)
    fresh = count(rows).__next__

    def insert(table: Any) -> None:
        table.insert({"id": fresh(), "name": "new", "tier": "GOLD", "qty": 1, "price": 2.5})

    def update(table: Any, key: int) -> None:
        table.update({"id": key}, {"qty": 5})

    for kind, keys in (("no state directory", 2_000), ("none", 2_000), ("batch", 500), ("commit", 100)):
        with tempfile.TemporaryDirectory() as directory:
            durable = kind in ("none", "batch", "commit")
            options = f"WITH ('durability' = '{kind}')" if durable else ""
            with App(f"CREATE TABLE t ({columns}) {options}", state=directory if durable else None) as app:
                kept = app.table("t")
                kept.bulk_insert(data)
                some = some_keys(rows, keys)
                for figure, what, change in (
                    ("F15", "insert", lambda table, _: insert(table)),
                    ("F9", "update by key", update),
                ):
                    ours, peer = best_rates(
                        [calls(lambda k, t=t, c=change: c(t, k), some) for t in (kept, alone)]
                    )
                    what = f"{what} in an app, {rows:,} rows, {'durability ' * durable}{kind}"
                    yield Figure(figure, what, ours, peer, "the table alone", "changes")
                if kind == "commit":
                    yield _shared_syncs(kept, some)


def _shared_syncs(table: Table, keys: list[int]) -> Figure:
    """Threads that change single rows wait for the disk together."""

    def updates(threads: int) -> Work:
        def work() -> int:
            with ThreadPoolExecutor(threads) as pool:
                parts = [keys[at::threads] for at in range(threads)]
                list(pool.map(lambda part: [table.update({"id": k}, {"qty": 6}) for k in part], parts))
            return len(keys)

        return work

    one, eight = best_rates([updates(1), updates(8)], rounds=3)
    return Figure("F9", "update by key, durability commit, 8 threads", eight, one, "1 thread", "changes")
