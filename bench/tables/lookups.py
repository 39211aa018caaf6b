"""F1, F15, F16: records by key, one by one and for a join."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.figure import Figure
from bench.tables.measure import Work, best_rates, calls
from bench.tables.peers import (
    RedisRows,
    dict_of,
    duckdb_of,
    polars_of,
    records,
    some_keys,
    sqlite_of,
    table_of,
)


def run(rows: int, redis_url: str) -> Iterator[Figure]:
    data = records(rows)
    redis = RedisRows(redis_url, data)
    table, plain, sqlite = table_of(data), dict_of(data), sqlite_of(data)
    arrow = table.to_arrow()
    duck, frame = duckdb_of(arrow), polars_of(arrow)
    keys = some_keys(rows, 50_000)
    few = keys[:200]
    select = "SELECT * FROM t WHERE id = ?"

    def from_polars(key: int) -> list[dict[str, Any]]:
        return frame.filter(frame["id"] == key).to_dicts()

    # Records are kept in the order in which they are first read: that of the table, as those of the dict are.
    for key in range(min(rows, 100_000)):
        table.get_record(key)
    cold = table_of(arrow, **{"hot.records": "0"})
    works: list[Work] = [
        calls(table.get_record, keys),
        calls(cold.get_record, keys),
        calls(lambda key: plain[key].copy(), keys),
        calls(lambda key: sqlite.execute(select, (key,)).fetchone(), keys[:5_000]),
        calls(lambda key: duck.execute(select, (key,)).fetchone(), few),
        calls(from_polars, few),
        calls(redis.get, keys[:2_000]),
    ]
    ours, bare, copied, sqlite_rate, duck_rate, polars_rate, redis_rate = best_rates(works)
    what = f"get_record, {rows:,} rows"
    yield Figure("F1", what, ours, copied, "copy of a row of a dict of dicts", "records")
    yield Figure("F1", what, ours, sqlite_rate, "SQLite in memory", "records")
    yield Figure("F1", what, ours, duck_rate, "DuckDB", "records")
    yield Figure("F1", what, ours, polars_rate, "Polars filter", "records")
    yield Figure("F1", what, ours, redis_rate, "Redis on localhost", "records")
    what = f"get_record with 'hot.records' = '0', {rows:,} rows"
    yield Figure("F1", what, bare, copied, "copy of a row of a dict of dicts", "records")
    ours, peer, redis_rate = best_rates(
        [
            calls(table.contains, keys),
            calls(lambda key: key in plain, keys),
            calls(redis.has, keys[:2_000]),
        ]
    )
    yield Figure("F1", f"contains, {rows:,} rows", ours, peer, "in a dict", "records")
    yield Figure("F1", f"contains, {rows:,} rows", ours, redis_rate, "Redis on localhost", "records")
    ours, peer = best_rates([calls(lambda key: table.find(id=key), keys), calls(plain.get, keys)])
    yield Figure("F15", f"find(id=…), {rows:,} rows", ours, peer, "dict.get", "records")
    batches = [keys[i : i + 1_000] for i in range(0, len(keys), 1_000)]
    find = table.find_rows_for_join
    one, many, as_arrow, piped = best_rates(
        [
            calls(lambda key: find("id", key), keys[:5_000]),
            calls(lambda batch: find("id", batch), batches),
            calls(lambda batch: find("id", batch, arrow=True), batches),
            calls(redis.many, batches[:5]),
        ]
    )
    what = f"find_rows_for_join, {rows:,} rows"
    yield Figure("F16", f"{what}: 1,000 keys", many * 1_000, one, "one key at a time", "keys")
    yield Figure("F16", f"{what}: 1,000 keys, Arrow", as_arrow * 1_000, one, "one key at a time", "keys")
    yield Figure("F16", f"{what}: 1,000 keys", many * 1_000, piped * 1_000, "Redis, pipelined", "keys")
    sqlite.close()
    duck.close()
