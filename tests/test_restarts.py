"""Live aggregates and windows across restarts, of the app as it is: cut off between any two sends, also before what
was sent has been applied, the tables hold what the same rows in the same batches give without a restart."""

from __future__ import annotations

import datetime as dt
import tempfile
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some

from millpond import App

SQL = """
CREATE STREAM s (k STRING, x INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
CREATE TABLE groups AS SELECT k, COUNT(*) AS n, SUM(x) AS total, COUNT(DISTINCT x) AS d, MEDIAN(x) AS m,
  COLLECT_LIST(x) AS l, LAST(x) AS last, STDDEV(x) AS sd FROM s GROUP BY k HAVING COUNT(*) > 1;
CREATE TABLE overall AS SELECT COUNT(*) AS n, MIN(x) AS least FROM s;
CREATE TABLE tumbling AS SELECT k, COUNT(*) AS n, MEDIAN(x) AS m FROM s GROUP BY k WINDOW TUMBLING(10s);
CREATE TABLE final AS SELECT window_start, COUNT(DISTINCT x) AS d FROM s WINDOW HOPPING(10s, 5s) EMIT FINAL;
CREATE TABLE sessions AS SELECT k, window_start, window_end, SUM(x) AS total FROM s GROUP BY k WINDOW SESSION(5s);
CREATE TABLE kept AS SELECT window_start, COUNT(*) AS n FROM s WINDOW TUMBLING(10s) WITH ('late' = 'update');
"""
TABLES = ("groups", "overall", "tumbling", "final", "sessions", "kept")
ZERO = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
Row = dict[str, Any]

ROW = some.builds(
    lambda k, x, at: {"k": k, "x": x, "ts": ZERO + dt.timedelta(seconds=at)},
    some.sampled_from(["a", "b", None]),
    some.none() | some.integers(-5, 5),
    some.integers(0, 60),
)
CUTS = some.sampled_from(["no", "before", "after"])
"""Whether the app is cut off: before a batch is applied, or after."""


def contents(app: App) -> dict[str, list[str]]:
    return {t: sorted(repr(r) for r in app.table(t).all_rows()) for t in TABLES}


def late(app: App) -> list[str]:
    found = app.sql("DESCRIBE EXTENDED tumbling").rows()
    return [r["value"] for r in found if r["property"] in ("late rows", "watermark")]


@settings(
    max_examples=5,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(some.lists(some.tuples(some.lists(ROW, min_size=1, max_size=6), CUTS), min_size=1, max_size=5))
def test_as_if_nothing_had_happened(batches: list[tuple[list[Row], str]]) -> None:
    with App(SQL, _direct=True) as plain:
        for rows, _ in batches:
            plain.send("s", rows)
            plain.drain()
        expected = contents(plain), late(plain)
    with tempfile.TemporaryDirectory() as state:
        app = App(SQL, state=state, _direct=True)
        for rows, cut in batches:
            app.send("s", rows)
            if cut == "before":
                app._crash()
                app = App(SQL, state=state, _direct=True)
            app.drain()
            if cut == "after":
                app._crash()
                app = App(SQL, state=state, _direct=True)
        with app:
            assert (contents(app), late(app)) == expected
