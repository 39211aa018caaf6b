"""F1, F3, F5, F9, F15, F16: every way to ask for a row by its key, or to change it, beside the quickest one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from bench.figure import Figure
from bench.tables.measure import best_rates, calls
from bench.tables.peers import COLUMNS, records, some_keys
from millpond import App

Way = tuple[str, str, Callable[[int], object]]
"""The figure, what is called, and the call with a key."""


def run(rows: int) -> Iterator[Figure]:
    with App(f"CREATE TABLE t ({COLUMNS}); CREATE INDEX by_name ON t (name)") as app:
        app.table("t").bulk_insert(records(rows))
        keys = some_keys(rows, 2_000)
        yield from _beside("contains(key)", "records", keys, rows, _has(app))
        yield from _beside("get_record(key)", "records", keys, rows, _reads(app))
        yield from _beside("sql_scalar COUNT(*) by key", "queries", keys, rows, _counts(app))
        yield from _beside("insert(record)", "changes", keys, rows, _inserts(app, rows))
        yield from _beside("update({'id': key}, {…})", "changes", keys, rows, _updates(app))
        yield from _deleted(app, rows)


def _beside(first: str, unit: str, keys: list[int], rows: int, ways: list[Way]) -> Iterator[Figure]:
    rates = best_rates([calls(way, keys) for _, _, way in ways], rounds=3)
    yield from _figures(first, unit, rows, ways, rates)


def _deleted(app: App, rows: int) -> Iterator[Figure]:
    """Each way deletes keys of its own, once."""
    ways, many = _deletes(app), 200
    for key in range(many):  # plans are made by the first
        for _, _, way in ways:
            way(rows * 10 + key)
    own = [list(range(at * many, (at + 1) * many)) for at in range(len(ways))]
    works = [calls(way, keys) for (_, _, way), keys in zip(ways, own, strict=True)]
    yield from _figures("delete(key)", "changes", rows, ways, best_rates(works, rounds=1))


def _figures(first: str, unit: str, rows: int, ways: list[Way], rates: list[float]) -> Iterator[Figure]:
    for (figure, what, _), rate in list(zip(ways, rates, strict=True))[1:]:
        yield Figure(figure, f"{what}, {rows:,} rows", rate, rates[0], first, unit)


def _has(app: App) -> list[Way]:
    t = app.table("t")
    return [
        ("F1", "contains(key)", t.contains),
        ("F1", "contains(id=key)", lambda k: t.contains(id=k)),
        ("F1", "contains(name=…)", lambda k: t.contains(name=f"customer {k}")),
        ("F1", 'contains("id = …")', lambda k: t.contains(f"id = {k}")),
        ("F1", 'sql_exists("id = …")', lambda k: t.sql_exists(f"id = {k}")),
        ("F1", "snapshot().contains(key)", lambda k: t.snapshot().contains(k)),
    ]


def _reads(app: App) -> list[Way]:
    t, sql = app.table("t"), app.sql
    return [
        ("F1", "get_record(key)", t.get_record),
        ("F1", "snapshot().get_record(key)", lambda k: t.snapshot().get_record(k)),
        ("F15", "find(id=key)", lambda k: t.find(id=k)),
        ("F15", "find(ID=key), spelled otherwise", lambda k: t.find(ID=k)),
        ("F15", "find(name=…)", lambda k: t.find(name=f"customer {k}")),
        ("F15", 'find("id = …")', lambda k: t.find(f"id = {k}")),
        ("F15", 'find("id IN (…, …)")', lambda k: t.find(f"id IN ({k}, {k})")),
        ("F15", 'sql_filter("id = …")', lambda k: t.sql_filter(f"id = {k}")),
        ("F15", 'sql_column_values("name", "id = …")', lambda k: t.sql_column_values("name", f"id = {k}")),
        ("F16", 'find_rows_for_join("id", key)', lambda k: t.find_rows_for_join("id", k)),
        ("F16", 'find_rows_for_join("name", …)', lambda k: t.find_rows_for_join("name", f"customer {k}")),
        ("F3", "SELECT * … WHERE id = …", lambda k: sql(f"SELECT * FROM t WHERE id = {k}").rows()),
        ("F3", "SELECT * … WHERE id = ?", lambda k: sql("SELECT * FROM t WHERE id = ?", [k]).rows()),
        (
            "F3",
            "SELECT * … WHERE id = :id",
            lambda k: sql("SELECT * FROM t WHERE id = :id", {"id": k}).rows(),
        ),
        ("F3", "SELECT … id = … LIMIT 1", lambda k: sql(f"SELECT name FROM t WHERE id = {k} LIMIT 1").rows()),
        ("F3", "SELECT … id IN (…, …)", lambda k: sql(f"SELECT * FROM t WHERE id IN ({k}, {k})").rows()),
        (
            "F3",
            "SELECT price * 2 … id = …",
            lambda k: sql(f"SELECT price * 2 AS p FROM t WHERE id = {k}").rows(),
        ),
    ]


def _counts(app: App) -> list[Way]:
    t, sql = app.table("t"), app.sql
    return [
        ("F5", "sql_scalar by key", lambda k: t.sql_scalar("COUNT(*)", f"id = {k}")),
        ("F5", "sql_scalar COUNT(*) by name", lambda k: t.sql_scalar("COUNT(*)", f"name = 'customer {k}'")),
        ("F5", "sql_scalar price by key", lambda k: t.sql_scalar("price", f"id = {k}")),
        ("F5", "sql_scalar price * 2 by key", lambda k: t.sql_scalar("price * 2", f"id = {k}")),
        ("F5", "SELECT COUNT(*) by key", lambda k: sql(f"SELECT COUNT(*) FROM t WHERE id = {k}").rows()),
    ]


def _inserts(app: App, rows: int) -> list[Way]:
    t, sql, fresh = app.table("t"), app.sql, count(rows).__next__

    def record() -> dict[str, Any]:
        return {"id": fresh(), "name": "new", "tier": "GOLD", "qty": 1, "price": 2.5}

    return [
        ("F15", "insert(record)", lambda _: t.insert(record())),
        ("F15", "INSERT … VALUES", lambda _: sql(f"INSERT INTO t VALUES ({fresh()}, 'new', 'GOLD', 1, 2.5)")),
        ("F15", "INSERT … VALUES (?, …)", lambda _: sql("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [*record().values()])),
    ]  # fmt: skip


def _updates(app: App) -> list[Way]:
    t, sql = app.table("t"), app.sql
    return [
        ("F9", "update", lambda k: t.update({"id": k}, {"qty": 5})),
        ("F9", "update(id=key, changes={…})", lambda k: t.update(id=k, changes={"qty": 5})),
        ("F9", 'update("id = …", {…})', lambda k: t.update(f"id = {k}", {"qty": 5})),
        ("F9", 'update("id = …", "qty = qty + 1")', lambda k: t.update(f"id = {k}", "qty = qty + 1")),
        ("F9", "UPDATE … WHERE id = …", lambda k: sql(f"UPDATE t SET qty = {k % 50} WHERE id = {k}")),
        ("F9", "UPDATE … qty + 1 … id = …", lambda k: sql(f"UPDATE t SET qty = qty + 1 WHERE id = {k}")),
        ("F9", "UPDATE … WHERE id = ?", lambda k: sql("UPDATE t SET qty = ? WHERE id = ?", [5, k])),
    ]


def _deletes(app: App) -> list[Way]:
    t, sql = app.table("t"), app.sql
    return [
        ("F9", "delete(key)", t.delete),
        ("F9", "delete(id=key)", lambda k: t.delete(id=k)),
        ("F9", 'delete("id = …")', lambda k: t.delete(f"id = {k}")),
        ("F9", "DELETE … WHERE id = …", lambda k: sql(f"DELETE FROM t WHERE id = {k}")),
        ("F9", "DELETE … WHERE id = ?", lambda k: sql("DELETE FROM t WHERE id = ?", [k])),
    ]
