"""V4 and V8: the queries of TPC-H as views while orders and line items change.

V4 changes 100 rows at scale 1, and waits until a view has them; the peer is the same view with ``'refresh' = 'full'``.
V8 recomputes each view at scale 0.1 after a changed order; the peer is DuckDB, which answers the same text over the
same tables. ``MILLPOND_BENCH_SCALE`` sets another scale for V4.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from random import Random

import duckdb
import numpy as np

from bench.figure import Figure
from millpond import App
from tests.tpch.data import NAMES, QUERIES, TABLES, Orders

SCALE = os.environ.get("MILLPOND_BENCH_SCALE", "1")
SMALL = "0.1"
BATCH, TIMES, TIMES_FULL = 100, 9, 3
UNTOUCHED = ("q02", "q11", "q16")
"""Queries that read neither orders nor line items: a changed row of partsupp reaches them."""


def run() -> Iterator[Figure]:
    yield from kept()
    yield from recomputed()


def kept() -> Iterator[Figure]:
    """Yields V4: a figure for each query, and one for all."""
    ours, full = (
        _seconds(SCALE, refresh, times) for refresh, times in (("auto", TIMES), ("full", TIMES_FULL))
    )
    for name in QUERIES:
        told = f"{name} of TPC-H at scale {SCALE}: {BATCH} changed rows"
        yield _figure("V4", told, ours[name], full[name], "recomputed", "changes")
    faster = sum(ours[name] < full[name] for name in QUERIES)
    told, detail = f"all of TPC-H at scale {SCALE}", f"faster for {faster} of {len(QUERIES)}"
    rates = 1 / sum(ours.values()), 1 / sum(full.values())
    yield Figure("V4", told, *rates, "recomputed", "changes", detail=detail)


def recomputed() -> Iterator[Figure]:
    """Yields V8."""
    with App(TABLES) as app:
        orders = Orders(SMALL, Random(8))
        orders.load(app)
        for name, query in QUERIES.items():
            with duckdb.connect() as duck:
                for table in NAMES:
                    duck.register(table, app.table(table).backend.snapshot().scan())
                peer = _median(lambda text=query: duck.sql(text).to_arrow_table(), 5)  # type: ignore[misc]
            app.sql(f"CREATE TABLE {name} WITH ('refresh' = 'full') AS {query}")
            ours = float(np.median(_changes(app, orders, name, 1, 5)))
            app.sql(f"DROP TABLE {name}")
            yield _figure(
                "V8", f"{name} of TPC-H recomputed at scale {SMALL}", ours, peer, "DuckDB", "answers"
            )


def _figure(id_: str, what: str, ours: float, peer: float, peer_name: str, unit: str) -> Figure:
    return Figure(id_, what, 1 / ours, 1 / peer, peer_name, unit, detail=f"{ours * 1e3:.1f} ms")


def _seconds(scale: str, refresh: str, times: int) -> dict[str, float]:
    """Returns the median time of a change for each query, kept in this way."""
    found: dict[str, float] = {}
    with App(TABLES) as app:
        orders = Orders(scale, Random(4))
        orders.load(app)
        for name, query in QUERIES.items():
            app.sql(f"CREATE TABLE {name} WITH ('refresh' = '{refresh}') AS {query}")
            found[name] = float(np.median(_changes(app, orders, name, BATCH, times)))
            app.sql(f"DROP TABLE {name}")
    return found


def _changes(app: App, orders: Orders, name: str, rows: int, times: int) -> list[float]:
    """Returns the seconds of changes, from the commit on, after two that set up state and indexes."""
    ways: list[Callable[..., None]] = [orders.delete, orders.insert, *([orders.update] if rows > 1 else [])]
    found: list[float] = []
    for n in range(times + 2):
        with app.begin_transaction() as tx:
            (orders.stock if name in UNTOUCHED else ways[n % len(ways)])(tx, rows)
            began = time.perf_counter()
        app.drain()
        found.append(time.perf_counter() - began)
    return found[2:]


def _median(work: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return float(np.median(found))
