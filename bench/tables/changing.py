"""F9 and F15: one record in, changed and out again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from bench.figure import Figure
from bench.tables.measure import best_rates, calls
from bench.tables.peers import dict_of, records, some_keys, sqlite_of, table_of


def run(rows: int) -> Iterator[Figure]:
    data = records(rows)
    table, plain, sqlite = table_of(data), dict_of(data), sqlite_of(data)
    keys = some_keys(rows, 2_000)
    fresh = count(rows).__next__

    def record() -> dict[str, Any]:
        return {"id": fresh(), "name": "new", "tier": "GOLD", "qty": 1, "price": 2.5}

    def put(new: dict[str, Any]) -> None:
        plain[new["id"]] = dict(new)

    insert = "INSERT INTO t VALUES (:id, :name, :tier, :qty, :price)"
    ours, peer, sqlite_rate = best_rates(
        [
            calls(lambda _: table.insert(record()), keys),
            calls(lambda _: put(record()), keys),
            calls(lambda _: sqlite.execute(insert, record()), keys),
        ]
    )
    yield Figure("F15", f"insert, {rows:,} rows", ours, peer, "a dict of dicts", "records")
    yield Figure("F15", f"insert, {rows:,} rows", ours, sqlite_rate, "SQLite in memory", "records")
    ours, peer, sqlite_rate = best_rates(
        [
            calls(lambda key: table.update({"id": key}, {"qty": 5}), keys),
            calls(lambda key: plain[key].update(qty=5), keys),
            calls(lambda key: sqlite.execute("UPDATE t SET qty = 5 WHERE id = ?", (key,)), keys),
        ]
    )
    yield Figure("F9", f"update by key, {rows:,} rows", ours, peer, "a dict of dicts", "updates")
    yield Figure("F9", f"update by key, {rows:,} rows", ours, sqlite_rate, "SQLite in memory", "updates")
    gone = list(dict.fromkeys(keys))
    ours, peer, sqlite_rate = best_rates(
        [
            calls(lambda key: table.delete(id=key), gone),
            calls(lambda key: plain.pop(key, None), gone),
            calls(lambda key: sqlite.execute("DELETE FROM t WHERE id = ?", (key,)), gone),
        ],
        rounds=1,
    )
    yield Figure("F9", f"delete by key, {rows:,} rows", ours, peer, "a dict of dicts", "deletes")
    yield Figure("F9", f"delete by key, {rows:,} rows", ours, sqlite_rate, "SQLite in memory", "deletes")
    sqlite.close()
