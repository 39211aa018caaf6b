"""F3 and F5: SQL texts with a condition on an indexed field, each text different, and COUNT with such a condition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.figure import Figure
from bench.tables.measure import best_rates, calls
from bench.tables.peers import COLUMNS, dict_of, duckdb_of, polars_of, records, some_keys, sqlite_of
from millpond import App

_TEXTS = 20_000


def run(rows: int) -> Iterator[Figure]:
    data = records(rows)
    with App(f"CREATE TABLE t ({COLUMNS}); CREATE INDEX by_name ON t (name)") as app:
        app.table("t").bulk_insert(data)
        yield from _rows(app, data)
        yield from _counts(app, data)


def _rows(app: App, data: list[dict[str, Any]]) -> Iterator[Figure]:
    plain, sqlite = dict_of(data), sqlite_of(data)
    arrow = app.table("t").to_arrow()
    duck, frame = duckdb_of(arrow), polars_of(arrow)
    for connection in (sqlite, duck):
        connection.execute("CREATE INDEX by_name ON t (name)")
    by_name = {r["name"]: r["id"] for r in data}
    keys = some_keys(len(data), _TEXTS)
    names = [f"customer {key}" for key in keys]
    by_key = [f"SELECT * FROM t WHERE id = {key}" for key in keys]
    texts = [f"SELECT * FROM t WHERE name = '{name}'" for name in names]
    bound = "SELECT * FROM t WHERE name = ?"
    sql = app.sql
    ours, keyed, params, named, copied, sqlite_texts, sqlite_bound, duck_texts, polars = best_rates(
        [
            calls(lambda text: sql(text).rows(), texts),
            calls(lambda text: sql(text).rows(), by_key),
            calls(lambda name: sql(bound, [name]).rows(), names),
            calls(lambda key: sql("SELECT * FROM t WHERE id = :id", {"id": key}).rows(), keys),
            calls(lambda name: [plain[by_name[name]].copy()], names),
            calls(lambda text: sqlite.execute(text).fetchall(), texts[:5_000]),
            calls(lambda name: sqlite.execute(bound, (name,)).fetchall(), names[:5_000]),
            calls(lambda text: duck.execute(text).fetchall(), texts[:200]),
            calls(lambda name: frame.filter(frame["name"] == name).to_dicts(), names[:100]),
        ]
    )
    what = f"SQL text to rows, {_TEXTS:,} different literals, {len(data):,} rows"
    yield Figure("F3", f"{what}: name = '…'", ours, sqlite_texts, "SQLite in memory", "queries")
    yield Figure("F3", f"{what}: name = '…'", ours, duck_texts, "DuckDB", "queries")
    yield Figure("F3", f"{what}: name = '…'", ours, polars, "Polars filter", "queries")
    yield Figure("F3", f"{what}: name = '…'", ours, copied, "copy by two dicts", "queries")
    yield Figure("F3", f"{what}: key = …", keyed, sqlite_texts, "SQLite in memory", "queries")
    yield Figure(
        "F3",
        f"SQL with a bound parameter, {len(data):,} rows: name = ?",
        params,
        sqlite_bound,
        "SQLite in memory",
        "queries",
    )
    yield Figure(
        "F3",
        f"SQL with a bound parameter, {len(data):,} rows: key = :id",
        named,
        sqlite_bound,
        "SQLite in memory",
        "queries",
    )
    sqlite.close()
    duck.close()


def _counts(app: App, data: list[dict[str, Any]]) -> Iterator[Figure]:
    sqlite = sqlite_of(data)
    arrow = app.table("t").to_arrow()
    duck, frame = duckdb_of(arrow), polars_of(arrow)
    sqlite.execute("CREATE INDEX by_tier ON t (tier)")
    tiers = ["GOLD", "SILVER", "BRONZE", "IRON"] * 500
    texts = [f"SELECT COUNT(*) AS n FROM t WHERE tier = '{tier}'" for tier in tiers]
    table = app.table("t")
    ours, method, sqlite_rate, duck_rate, polars = best_rates(
        [
            calls(lambda text: app.sql(text).rows(), texts),
            calls(lambda tier: table.sql_scalar("COUNT(*)", f"tier = '{tier}'"), tiers),
            calls(lambda text: sqlite.execute(text).fetchone(), texts[:100]),
            calls(lambda text: duck.execute(text).fetchone(), texts[:100]),
            calls(lambda tier: frame.filter(frame["tier"] == tier).height, tiers[:100]),
        ]
    )
    what = f"COUNT of a quarter of {len(data):,} rows"
    yield Figure("F5", what, ours, sqlite_rate, "SQLite in memory, indexed", "queries")
    yield Figure("F5", what, ours, duck_rate, "DuckDB", "queries")
    yield Figure("F5", what, ours, polars, "Polars filter", "queries")
    yield Figure("F5", f"{what}, sql_scalar", method, sqlite_rate, "SQLite in memory, indexed", "queries")
    sqlite.close()
    duck.close()
