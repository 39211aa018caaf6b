"""An app with twenty running statements gets a file in which one of them is changed.

The upgrade is made by a restart, so the pause of the others is the time from the end of the old app until each of them
has processed a row that was sent to the new one. It stands beside the same restart with the unchanged file.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from bench.figure import Figure
from millpond import App

STATEMENTS, ROWS, GROUPS, TURNS = 20, 200_000, 1_000, 3


def _text(changed: str = "SUM(v)") -> str:
    lines = ["CREATE STREAM events (k INT, v BIGINT);"]
    lines += [
        f"CREATE TABLE t{i} AS SELECT k, COUNT(*) AS n, {'SUM(v)' if i else changed} AS x FROM events GROUP BY k;"
        for i in range(STATEMENTS)
    ]
    return "\n".join(lines)


def _restarted(state: str, before: str, after: str, *, upgrade: bool) -> float:
    """Returns how long no other statement than the first processes rows."""
    app = App(before, state=state)
    app.drain(120)
    counts = [app.sql(f"SELECT SUM(n) AS n FROM t{i}").rows()[0]["n"] for i in range(1, STATEMENTS)]
    began = time.perf_counter()
    app.close()
    with App(after, state=state, upgrade=upgrade) as again:
        again.send("events", [{"k": 1, "v": 1}])
        left = set(range(1, STATEMENTS))
        while left:
            left = {
                i for i in left if again.sql(f"SELECT SUM(n) AS n FROM t{i}").rows()[0]["n"] == counts[i - 1]
            }
        took = time.perf_counter() - began
        again.drain(300)
    return took


def run() -> Iterator[Figure]:
    random = np.random.default_rng(1)
    rows = pa.table(
        {
            "k": pa.array(random.integers(0, GROUPS, ROWS), pa.int32()),
            "v": pa.array(random.integers(0, 1000, ROWS), pa.int64()),
        }
    )
    changed, plain = [], []
    with tempfile.TemporaryDirectory() as state:
        with App(_text(), state=state) as app:
            app.send("events", rows)
            app.drain(300)
        text = _text()
        for turn in range(TURNS):
            plain.append(_restarted(state, text, text, upgrade=False))
            after = _text(("MAX(v)", "MIN(v)", "AVG(v)")[turn])
            changed.append(_restarted(state, text, after, upgrade=True))
            text = after
    what = f"pause of the others while one of {STATEMENTS} statements is upgraded"
    yield Figure("U2", what, min(changed) * 1000, min(plain) * 1000, "an unchanged restart", "ms", "restart")
