"""V2, V3 and V5: what a change of a view costs, by the size of the table and of the change.

V2 changes one row of a small and of a large table. V3 changes 10,000 rows at once: ``'refresh' = 'auto'`` beside the
better of ``'incremental'`` and ``'full'``. V5 changes a row of a dimension that many rows are joined with, beside the
SELECT of these rows and a commit that replaces them. ``MILLPOND_BENCH_ROWS`` sets the number of rows of V3 and V5,
1,000,000 by default; the large table of V2 has ten times as many, the small one a tenth.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from bench.figure import Figure
from bench.views import JOIN, TABLES, VIEWS
from millpond import App

ROWS = int(os.environ.get("MILLPOND_BENCH_ROWS", "1000000"))
TIMES, TIMES_MANY = 100, 5
MANY = ROWS // 100
JOINED = ROWS // 10
WHAT = ("total", "1,000 groups", "join")


def run() -> Iterator[Figure]:
    yield from by_size()
    yield from by_change()
    yield dimension()


def by_size() -> Iterator[Figure]:
    """Yields V2: the peer is the same change in a table of a hundredth of the rows."""
    small, large = ROWS // 10, ROWS * 10
    for what in WHAT:
        (query,) = VIEWS[what][1]
        found = [_single(query, rows) for rows in (large, small)]
        told, detail = f"{what}: a changed row of {large:,}", f"{found[0] * 1e3:.2f} ms"
        yield Figure("V2", told, 1 / found[0], 1 / found[1], f"of {small:,}", "changes", detail=detail)


def by_change() -> Iterator[Figure]:
    """Yields V3."""
    for what in WHAT:
        (query,) = VIEWS[what][1]
        found = _many(query, ("auto", "incremental", "full"))
        told, detail = f"{what}: {MANY:,} changed rows of {ROWS:,}", f"{found['auto'] * 1e3:.0f} ms"
        best = min(found["incremental"], found["full"])
        yield Figure("V3", told, 1 / found["auto"], 1 / best, "the better way", "changes", detail=detail)


def dimension() -> Figure:
    """Returns V5."""
    with _app(ROWS, groups=ROWS // JOINED) as app:
        app.sql(f"CREATE TABLE v (PRIMARY KEY (id)) AS {JOIN}")
        app.sql("CREATE TABLE copy (id BIGINT PRIMARY KEY, n BIGINT, name STRING)")
        copy = app.table("copy")
        copy.bulk_insert(app.sql(f"{JOIN} WHERE d.g = 1").to_arrow())

        def peer() -> None:
            copy.bulk_insert(app.sql(f"{JOIN} WHERE d.g = 1").to_arrow())

        ours = _median(lambda n: app.table("d").update({"g": 1}, {"name": f"x{n}"}), TIMES_MANY, app.drain)
        theirs = _median(lambda n: peer(), TIMES_MANY, lambda: None)
    told, detail = f"a row of a dimension that {JOINED:,} rows are joined with", f"{ours * 1e3:.0f} ms"
    return Figure("V5", told, 1 / ours, 1 / theirs, "SELECT and commit", "changes", detail=detail)


def _single(query: str, rows: int) -> float:
    random = np.random.default_rng(2)
    with _app(rows) as app:
        app.sql(f"CREATE TABLE v AS {query}")
        table = app.table("t")

        def change(n: int) -> None:
            key, group, number = (int(random.integers(0, most)) for most in (rows, 1_000, 1_000))
            table.update({"id": key}, {"g": group, "n": number})

        return _median(change, TIMES, app.drain)


def _many(query: str, ways: Sequence[str]) -> dict[str, float]:
    """Returns the median time of a change for each way. They take turns, so that all meet the same machine."""
    random = np.random.default_rng(3)
    with ExitStack() as stack:
        apps = {way: stack.enter_context(_app(ROWS)) for way in ways}
        for way, app in apps.items():
            app.sql(f"CREATE TABLE v WITH ('refresh' = '{way}') AS {query}")
        found: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(TIMES_MANY + 2):
            rows = _rows(ROWS, 1_000, random.choice(ROWS, MANY, replace=False))
            for way, app in apps.items():
                began = time.perf_counter()
                app.table("t").bulk_insert(rows)
                app.drain()
                found[way].append(time.perf_counter() - began)
    return {way: float(np.median(seconds[2:])) for way, seconds in found.items()}


def _median(change: Callable[[int], object], times: int, wait: Callable[[], None]) -> float:
    """Returns the median time of a change, after two that set up state and indexes."""
    found = []
    for n in range(times + 2):
        began = time.perf_counter()
        change(n)
        wait()
        found.append(time.perf_counter() - began)
    return float(np.median(found[2:]))


def _app(rows: int, groups: int = 1_000) -> App:
    app = App(TABLES)
    app.table("d").bulk_insert(
        pa.table({"g": np.arange(groups, dtype=np.int32), "name": [f"n{i}" for i in range(groups)]})
    )
    app.table("t").bulk_insert(_rows(rows, groups, np.arange(rows)))
    return app


def _rows(rows: int, groups: int, keys: np.ndarray) -> pa.Table:
    random = np.random.default_rng(1)
    return pa.table(
        {
            "id": keys,
            "g": random.integers(0, groups, len(keys)).astype(np.int32),
            "h": random.integers(0, 100_000, len(keys)).astype(np.int32),
            "n": random.integers(0, 1_000, len(keys)),
        }
    )
