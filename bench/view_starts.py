"""V10: what a view costs at the start of an app, beside answering its query once.

An app with 300,000 rows and a view over them is closed and started again. Measured is the processor time until the
first SELECT from the view is answered, and until the view has its first change, each less that of an app in which a
plain table has the same rows. The peer is the processor time of its query, asked once in that app, which has just
started. After a kill the query is evaluated again and compared.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from bench.figure import Figure
from bench.views import JOIN, TABLES
from millpond import App
from millpond.testing.crash import crash

ROWS, GROUPS = 300_000, 30_000
TIMES = 5
QUERIES = {
    "30,000 groups": ("h INT, c BIGINT, s BIGINT", "SELECT h, COUNT(*) AS c, SUM(n) AS s FROM t GROUP BY h"),
    "join without a key": ("id BIGINT, n BIGINT, name STRING", JOIN),
}


def run() -> Iterator[Figure]:
    for what, (columns, query) in QUERIES.items():
        with tempfile.TemporaryDirectory() as plain, tempfile.TemporaryDirectory() as kept:
            declared = {plain: f"CREATE TABLE v ({columns})", kept: f"CREATE TABLE v AS {query}"}
            for folder, statement in declared.items():
                with App(TABLES + statement, state=folder) as app:
                    _fill(app)
                    if folder == plain:
                        app.table("v").bulk_insert(app.sql(query).to_arrow())
                    app.drain()
            for killed in (False, True):
                starts = {
                    folder: partial(_start, TABLES + declared[folder], folder, query) for folder in declared
                }
                found = {
                    folder: np.array([start(killed) for _ in range(TIMES)])
                    for folder, start in starts.items()
                }
                base, ours = (np.median(found[folder], axis=0) for folder in (plain, kept))
                for at, until in enumerate(("an answer", "the first change")):
                    seconds = max(float(ours[at] - base[at]), 1e-6)
                    told = f"{what}, a {'kill' if killed else 'close'} to {until}"
                    rates, detail = (1 / seconds, 1 / float(base[2])), f"{seconds * 1e3:.0f} ms for it"
                    yield Figure("V10", told, *rates, "its query", "starts", detail=detail)


def _start(sql: str, folder: str, query: str, killed: bool) -> tuple[float, float, float]:
    """Returns the processor time until the view answers, until it has a change, and of its query."""
    if killed:
        crash(App(sql, state=folder))
    began = time.process_time()
    app = App(sql, state=folder)
    app.sql("SELECT * FROM v LIMIT 1").rows()
    answered = time.process_time()
    app.table("t").update({"id": 5}, {"n": int(began * 1e6) % 1_000})
    app.drain()
    changed = time.process_time()
    app.sql(query).to_arrow()
    asked = time.process_time()
    app.close()
    return answered - began, changed - began, asked - changed


def _fill(app: App) -> None:
    random = np.random.default_rng(1)
    names = [f"n{i}" for i in range(1_000)]
    app.table("d").bulk_insert(pa.table({"g": np.arange(1_000, dtype=np.int32), "name": names}))
    rows = {
        "id": np.arange(ROWS),
        "g": random.integers(0, 1_000, ROWS).astype(np.int32),
        "h": random.integers(0, GROUPS, ROWS).astype(np.int32),
        "n": random.integers(0, 1_000, ROWS),
    }
    app.table("t").bulk_insert(pa.table(rows))
