"""V1 and V1b: one changed row of a large table, until its views have it. The peer is the same view with
``'refresh' = 'full'``, which evaluates its query again and compares.

``MILLPOND_BENCH_ROWS`` sets the number of rows, 1,000,000 by default.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from bench.figure import Figure
from millpond import App

ROWS = int(os.environ.get("MILLPOND_BENCH_ROWS", "1000000"))
TIMES, TIMES_FULL = 300, 7
TABLES = """
CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, h INT, n BIGINT);
CREATE TABLE d (g INT PRIMARY KEY, name STRING);
"""
JOIN = "SELECT t.id, t.n, d.name FROM t JOIN d ON t.g = d.g"
VIEWS: dict[str, tuple[str, Sequence[str]]] = {
    "total": ("V1", ["SELECT COUNT(*) AS c, SUM(n) AS s FROM t"]),
    "1,000 groups": ("V1", ["SELECT g, COUNT(*) AS c, SUM(n) AS s FROM t GROUP BY g"]),
    "100,000 groups": ("V1", ["SELECT h, COUNT(*) AS c, SUM(n) AS s FROM t GROUP BY h"]),
    "join": ("V1", [JOIN]),
    "left join": ("V1", [JOIN.replace("JOIN", "LEFT JOIN")]),
    "DISTINCT": ("V1", ["SELECT DISTINCT h FROM t"]),
    "join + aggregate": ("V1b", ["SELECT d.name, SUM(t.n) AS s FROM t JOIN d ON t.g = d.g GROUP BY d.name"]),
    "top 10": ("V1b", ["SELECT id, n FROM t ORDER BY n DESC, id LIMIT 10"]),
    "COUNT DISTINCT": ("V1b", ["SELECT g, COUNT(DISTINCT h) AS c FROM t GROUP BY g"]),
    "EXISTS": ("V1b", ["SELECT d.g FROM d WHERE EXISTS (SELECT 1 FROM t WHERE t.g = d.g AND t.n > 990)"]),
    "a view over a view over a join": (
        "V1b",
        [JOIN, "SELECT name, SUM(n) AS s FROM v0 GROUP BY name", "SELECT COUNT(*) AS c FROM v1 WHERE s > 10"],
    ),
}


def run() -> Iterator[Figure]:
    random = np.random.default_rng(1)
    rows = pa.table(
        {
            "id": np.arange(ROWS),
            "g": random.integers(0, 1_000, ROWS).astype(np.int32),
            "h": random.integers(0, 100_000, ROWS).astype(np.int32),
            "n": random.integers(0, 1_000, ROWS),
        }
    )
    for what, (figure, queries) in VIEWS.items():
        ours = changes(rows, queries, "auto", TIMES)
        full = changes(rows, queries, "full", TIMES_FULL)
        middle, last = np.median(ours), np.percentile(ours, 99)
        rates, detail = (
            (1 / middle, 1 / float(np.median(full))),
            f"{middle * 1e3:.2f} ms, p99 {last * 1e3:.1f} ms",
        )
        yield Figure(
            figure, f"{what}: a changed row of {ROWS:,}", *rates, "recomputed", "changes", detail=detail
        )


def changes(rows: pa.Table, queries: Sequence[str], refresh: str, times: int) -> list[float]:
    """Returns the seconds of each change, after some that set up state and indexes."""
    random = np.random.default_rng(2)
    with App(TABLES) as app:
        app.table("d").bulk_insert(
            pa.table({"g": np.arange(1_000, dtype=np.int32), "name": [f"n{i}" for i in range(1_000)]})
        )
        app.table("t").bulk_insert(rows)
        for i, query in enumerate(queries):
            app.sql(f"CREATE TABLE v{i} WITH ('refresh' = '{refresh}') AS {query}")
        table, found = app.table("t"), list[float]()
        for _ in range(times + 3):
            key, group, number = (int(random.integers(0, most)) for most in (ROWS, 1_000, 1_000))
            began = time.perf_counter()
            table.update({"id": key}, {"g": group, "n": number, "h": group * 7})
            app.drain()
            found.append(time.perf_counter() - began)
        return found[3:]
