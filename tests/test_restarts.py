"""Live aggregates and windows across restarts, of the app as it is: cut off between any two sends, also before what
was sent has been applied, or killed at any statement of its journal, the tables hold what the same rows in the same
batches give without a restart.

This file is also the program that is killed.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some

from millpond import App
from millpond.testing.crash import crash

pytestmark = pytest.mark.slow

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


def row(k: str | None, x: int | None, at: int) -> Row:
    return {"k": k, "x": x, "ts": ZERO + dt.timedelta(seconds=at)}


CELLS = some.tuples(
    some.sampled_from(["a", "b", None]), some.none() | some.integers(-5, 5), some.integers(0, 60)
)
ROW = CELLS.map(lambda cells: row(*cells))
CUTS = some.sampled_from(["no", "before", "after"])
"""Whether the app is cut off: before a batch is applied, or after."""


def contents(app: App) -> dict[str, list[str]]:
    return {t: sorted(repr(r) for r in app.table(t).all_rows()) for t in TABLES}


def late(app: App) -> list[str]:
    found = app.sql("DESCRIBE EXTENDED tumbling").rows()
    return [r["value"] for r in found if r["property"] in ("late rows", "watermark")]


UNSHRUNK = settings(
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)


@settings(UNSHRUNK, max_examples=5)
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
                crash(app)
                app = App(SQL, state=state, _direct=True)
            app.drain()
            if cut == "after":
                crash(app)
                app = App(SQL, state=state, _direct=True)
        with app:
            assert (contents(app), late(app)) == expected


# kills


def work(state: str, batches: list[list[Any]], at: int) -> None:
    """Sends what is not sent yet, batch after batch, and says what the tables hold; the process is killed at that
    statement of its journal, if it comes so far."""
    connect, seen = sqlite3.connect, 0

    def count(statement: str) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def traced(*args: Any, **settings: Any) -> sqlite3.Connection:
        connection = connect(*args, **settings)
        connection.set_trace_callback(count)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]
    with App(SQL, state=state, _direct=True) as app:
        app.drain()
        sent = app._runtime.journal.stream_end("s")
        for batch in batches:
            if sent <= 0:
                app.send("s", [row(*cells) for cells in batch])
                app.drain()
            sent -= len(batch)
        print(json.dumps([contents(app), late(app)]))


def outcome(state: str, batches: list[list[Any]], at: int) -> Any:
    """What the program said, None if it was killed."""
    arguments = [sys.executable, "-m", "tests.test_restarts", state, json.dumps(batches), str(at)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_kills(batches: list[list[Any]], kills: list[int]) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        expected = outcome(one, batches, 0)
        for at in kills:
            outcome(other, batches, at)
        assert outcome(other, batches, 0) == expected


BATCHES = some.lists(some.lists(CELLS, min_size=1, max_size=6), min_size=2, max_size=5)
KILLS = some.lists(some.integers(1, 1400), min_size=1, max_size=3)


@pytest.mark.slow
@settings(UNSHRUNK, max_examples=3)
@given(BATCHES, KILLS)
def test_killed_at_any_statement(batches: list[list[Any]], kills: list[int]) -> None:
    check_kills(batches, kills)


@pytest.mark.chaos
@settings(UNSHRUNK, max_examples=60)
@given(BATCHES, KILLS)
def test_killed_at_many_statements(batches: list[list[Any]], kills: list[int]) -> None:
    check_kills(batches, kills)


if __name__ == "__main__":
    work(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
