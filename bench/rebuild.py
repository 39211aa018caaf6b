"""A live aggregate over 10,000,000 retained rows gets a new query: it is built again beside the old one.

Another stream of the same app, with a live aggregate of its own, goes on meanwhile: rows are sent 10,000 at a time, the
next ones when the last ones are counted. Their rate during the rebuild stands beside that before it. Both share the
cores of the machine, and one process.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from bench.figure import Figure
from millpond import App

ROWS, GROUPS, CHUNK = 10_000_000, 1_000, 10_000
_SENT = 500_000
_QUIET = 6.0
SQL = """
CREATE STREAM events (k INT, v BIGINT);
CREATE STREAM others (k INT, v BIGINT);
CREATE TABLE totals AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM events GROUP BY k;
CREATE TABLE counts AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM others GROUP BY k;
"""
NEW = "CREATE OR REPLACE TABLE totals AS SELECT k, COUNT(*) AS n, MAX(v) AS highest FROM events WHERE v > 10 GROUP BY k"


def _rows(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "k": pa.array(random.integers(0, GROUPS, count), pa.int32()),
            "v": pa.array(random.integers(0, 1_000_000, count), pa.int64()),
        }
    )


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as state, App(SQL, state=state) as app:
        for part in range(ROWS // _SENT):
            app.send("events", _rows(_SENT, part))
        app.drain(600)
        sent = 0
        some = _rows(CHUNK, 1000)

        def rate(until: Callable[[], bool]) -> float:
            """Returns the rows a second of the other stream, until then."""
            nonlocal sent
            began, first = time.perf_counter(), sent
            while not until():
                sent += app.send("others", some)
                while app.sql("SELECT SUM(n) AS n FROM counts").rows()[0]["n"] != sent:
                    time.sleep(0.002)
            return (sent - first) / (time.perf_counter() - began)

        end = time.perf_counter() + 2
        rate(lambda: time.perf_counter() > end)
        end = time.perf_counter() + _QUIET
        alone = rate(lambda: time.perf_counter() > end)
        rebuild = threading.Thread(target=lambda: app.sql(NEW))
        rebuild.start()

        def is_swapped() -> bool:
            return not rebuild.is_alive() and "highest" in app.sql("SELECT * FROM totals LIMIT 1").columns

        beside = rate(is_swapped)
        (found,) = app.sql("SELECT SUM(n) AS n FROM totals").rows()
        assert found["n"] <= ROWS
        yield Figure("U3", f"rows of another stream while {ROWS:,} rows are rebuilt", beside, alone, "before")
