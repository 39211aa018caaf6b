"""P1: statements as text, asked again with other values, in tables of 100,000 rows without a state directory.

Changes by key are compared with the table's own methods, which take no text; a join of three small tables with DuckDB,
which gets the same SQL over the same Arrow tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import duckdb

from bench.figure import Figure
from bench.tables.measure import best_rates, calls
from millpond import App

ROWS = 100_000
_KEYS = [n * 7919 % ROWS for n in range(3_000)]
_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name STRING, tier STRING, qty INT)"
_JOIN = """
SELECT o.id, c.name, p.title, o.qty * p.price AS total
FROM orders o JOIN customers c ON o.customer = c.id JOIN products p ON o.product = p.id WHERE o.qty > {}"""


def run() -> Iterator[Figure]:
    yield from _changes()
    yield from _join()


def _changes() -> Iterator[Figure]:
    with App(_TABLE) as app:
        table = app.table("t")
        table.bulk_insert([_row(i) for i in range(ROWS)])
        fresh = count(ROWS).__next__
        gone = iter(range(ROWS)).__next__
        ways: dict[str, list[Callable[[int], object]]] = {
            "UPDATE": [
                lambda key: table.update(f"id = {key}", {"qty": key}),
                lambda key: app.sql(f"UPDATE t SET qty = {key} WHERE id = {key}"),
                lambda key: app.sql("UPDATE t SET qty = ? WHERE id = ?", [key, key]),
            ],
            "INSERT": [
                lambda _: table.insert(_row(fresh())),
                lambda _: app.sql(f"INSERT INTO t VALUES ({fresh()}, 'name', 'GOLD', 1)"),
                lambda _: app.sql("INSERT INTO t VALUES (?, ?, ?, ?)", [fresh(), "name", "GOLD", 1]),
            ],
            "DELETE": [
                lambda _: table.delete(id=gone()),
                lambda _: app.sql(f"DELETE FROM t WHERE id = {gone()}"),
                lambda _: app.sql("DELETE FROM t WHERE id = ?", [gone()]),
            ],
        }
        for verb, functions in ways.items():
            method, text, bound = best_rates(calls(f, _KEYS) for f in functions)
            for how, rate in (("as text", text), ("with parameters", bound)):
                yield Figure("P1", f"{verb} by key, {how}", rate, method, "the table's method", "statements")


def _join() -> Iterator[Figure]:
    with App(
        "CREATE TABLE orders (id INT PRIMARY KEY, customer INT, product INT, qty INT);"
        "CREATE TABLE customers (id INT PRIMARY KEY, name STRING);"
        "CREATE TABLE products (id INT PRIMARY KEY, title STRING, price DOUBLE)"
    ) as app:
        rows: dict[str, list[dict[str, Any]]] = {
            "orders": [
                {"id": i, "customer": i % 100, "product": i % 50, "qty": i % 1_000} for i in range(1_000)
            ],
            "customers": [{"id": i, "name": f"name {i}"} for i in range(100)],
            "products": [{"id": i, "title": f"title {i}", "price": i / 4} for i in range(50)],
        }
        connection = duckdb.connect()
        for name, some in rows.items():
            app.table(name).bulk_insert(some)
            connection.register(name, app.table(name).to_arrow())
        ours, peer = best_rates(
            [
                calls(lambda n: app.sql(_JOIN.format(900 + n % 90)).to_arrow(), range(200)),
                calls(lambda n: connection.execute(_JOIN.format(900 + n % 90)).to_arrow_table(), range(200)),
            ]
        )
        yield Figure("P1", "a join of three small tables, asked again", ours, peer, "DuckDB", "queries")


def _row(number: int) -> dict[str, Any]:
    return {"id": number, "name": "name", "tier": "GOLD", "qty": 1}
