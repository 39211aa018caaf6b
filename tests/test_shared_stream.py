"""Several statements on one stream: one Spark query reads it, each statement has its own place."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.errors import QueryFailed
from millpond.testing.crash import crash

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s (x INT, y INT);"


def ints(app: App, table: str) -> list[int]:
    return [r["x"] for r in app.sql(f"SELECT x FROM {table} ORDER BY x").rows()]


def test_one_query_reads_the_stream_for_all(spark: object) -> None:
    sql = STREAM + "".join(
        f"CREATE TABLE t{i} (x INT); INSERT INTO t{i} SELECT x + {i} FROM s;" for i in range(5)
    )
    with App(sql) as app:
        app.send("s", [{"x": 1}, {"x": 2}])
        app.drain()
        assert [ints(app, f"t{i}") for i in range(5)] == [[1 + i, 2 + i] for i in range(5)]
        assert len(app._runtime.runner.readers) == 1


@pytest.mark.parametrize("path", ["auto", "spark"])
def test_a_statement_that_comes_later_catches_up_and_joins(spark: object, path: Any) -> None:
    with App(STREAM + "CREATE TABLE a (x INT); INSERT INTO a SELECT x FROM s", _path=path) as app:
        app.send("s", [{"x": i} for i in range(10)])
        app.drain()
        app.sql("CREATE TABLE b (x INT); INSERT INTO b SELECT x FROM s WHERE x % 2 = 0")
        late = app.sql("SELECT x FROM s WHERE x > 7")
        app.sql("CREATE TABLE c AS SELECT COUNT(*) AS x FROM s")
        app.drain()
        assert ints(app, "b") == [0, 2, 4, 6, 8]
        for x in range(10, 14):
            app.send("s", {"x": x})
        app.drain()
        assert ints(app, "a") == list(range(14))
        assert ints(app, "b") == [0, 2, 4, 6, 8, 10, 12]
        assert [r["x"] for r in late.rows()] == list(range(8, 14))
        assert ints(app, "c") == [14]
        assert len(app._runtime.runner.readers) == 1


def test_one_fails_alone_and_a_restart_finds_each_at_its_place(spark: object, tmp_state: Path) -> None:
    good = "CREATE TABLE good (x INT); INSERT INTO good SELECT x FROM s;"
    bad = "CREATE TABLE bad (x INT); INSERT INTO bad SELECT x DIV y FROM s WITH ('on.error' = 'fail');"
    new = "CREATE TABLE new (x INT); INSERT INTO new SELECT x FROM s;"
    app = App(STREAM + good + bad, state=tmp_state)
    app.send("s", [{"x": 1, "y": 1}])
    app.drain()
    app.send("s", [{"x": 2, "y": 0}])
    with pytest.raises(QueryFailed, match=r"insert_bad.*ivision by zero"):
        app.drain()
    app.send("s", [{"x": 3, "y": 1}])
    deadline = time.monotonic() + 60
    while ints(app, "good") != [1, 2, 3] and time.monotonic() < deadline:
        time.sleep(0.05)
    crash(app)
    app = App(STREAM + good + bad + new, state=tmp_state)
    with pytest.raises(QueryFailed, match="insert_bad"):
        app.drain()
    crash(app)
    with App(STREAM + good + "CREATE TABLE bad (x INT);" + new, state=tmp_state, upgrade=True) as app:
        app.send("s", [{"x": 4, "y": 1}])
        app.drain()
        assert ints(app, "good") == ints(app, "new") == [1, 2, 3, 4]
        assert ints(app, "bad") == [1]
