"""The queries of TPC-H as views: what DuckDB answers itself, while orders and line items change."""

from __future__ import annotations

from decimal import Decimal
from math import isclose
from random import Random
from typing import Any

import duckdb
import pytest

from millpond import App
from tests.tpch.data import NAMES, QUERIES, TABLES, Orders

pytestmark = pytest.mark.slow
UNTOUCHED = {"q02", "q11", "q16"}
"""Queries that read neither orders nor line items."""


def follow(scale: str, sizes: tuple[int, ...]) -> None:
    """Keeps all queries as views, changes batches of rows, and compares after each."""
    with App(TABLES) as app:
        orders = Orders(scale, Random(22))
        orders.load(app)
        for name, query in QUERIES.items():
            app.sql(f"CREATE TABLE {name} AS {query}")
        for size in sizes:
            for change in (orders.update, orders.delete, orders.insert):
                with app.begin_transaction() as tx:
                    change(tx, size)
                app.drain()
                compare(app, f"{change.__name__} {size}")
        views = {view.plan.target.name: view for view in app._runtime.views}
        assert {name for name, view in views.items() if not view.by_changes.rounds} == UNTOUCHED
        evaluator = app._runtime.evaluator
        assert {evaluator.way(view.plan.query)[0] for view in views.values()} == {"duckdb"}


def compare(app: App, when: str) -> None:
    """Compares all views with DuckDB's answers to the same text over the same tables, as multisets."""
    with duckdb.connect() as duck:
        for name in NAMES:
            duck.register(name, app.table(name).backend.snapshot().scan())
        for name, query in QUERIES.items():
            ours = app.table(name).backend.snapshot().scan()
            rows = [tuple(row.values()) for row in ours.to_pylist()]
            assert alike(rows, duck.sql(query).fetchall()), (name, when)


def alike(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    """Compares rows in whatever order. Means and quotients of decimals are DOUBLE in DuckDB."""
    if len(ours) != len(theirs):
        return False
    pairs = zip(sorted(map(_numbers, ours)), sorted(map(_numbers, theirs)), strict=True)
    return all(_equal(a, b) for a, b in pairs)


def _equal(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return all(
        isclose(x, y, rel_tol=1e-6, abs_tol=1e-6) if isinstance(x, float) and isinstance(y, float) else x == y
        for x, y in zip(a, b, strict=True)
    )


def _numbers(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns a row with texts first, and numbers with a floating point."""
    cells = [float(v) if isinstance(v, Decimal) else v for v in row]
    texts = [str(v) for v in cells if not isinstance(v, float)]
    return tuple([*texts, *(v for v in cells if isinstance(v, float))])


def test_tpch_views_are_what_their_queries_answer() -> None:
    follow("0.01", (1, 100, 10_000))


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_large_tpch_views_are_what_their_queries_answer() -> None:
    follow("0.1", (1, 100, 10_000, 1, 100, 10_000))
