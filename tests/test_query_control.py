"""SHOW QUERIES, PAUSE, RESUME, STOP, START and DROP QUERY; a statement that is tried again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.changes import Position
from millpond.engine.pipeline import Pipeline
from millpond.engine.states import State, moved
from millpond.errors import AlreadyExists, InUse, QueryFailed, SqlError, TimedOut, UnknownName

STREAM = "CREATE STREAM s (x INT, y INT); CREATE TABLE a (x INT); CREATE TABLE b (x INT);"
BOTH = (
    STREAM
    + "INSERT INTO a SELECT x FROM s WITH ('query.name' = 'first');"
    + "INSERT INTO b SELECT x FROM s WITH ('query.name' = 'second');"
)


def ints(app: App, table: str) -> list[int]:
    return [r["x"] for r in app.sql(f"SELECT x FROM {table} ORDER BY x").rows()]


def queries(app: App) -> dict[str, dict[str, Any]]:
    return {r["name"]: r for r in app.sql("SHOW QUERIES").rows()}


@pytest.mark.spark
def test_pause_and_resume_across_a_restart(spark: object, tmp_state: Path) -> None:
    app = App(BOTH, state=tmp_state)
    app.send("s", [{"x": 1}, {"x": 2}])
    app.drain()
    seen = queries(app)
    assert (seen["first"]["state"], seen["first"]["rows"], seen["first"]["lag"]) == ("running", 2, 0)
    assert seen["first"]["rate"] > 0 and seen["first"]["last_batch"] is not None
    app.sql("PAUSE QUERY first")
    app.send("s", {"x": 3})
    app.drain()
    assert (ints(app, "a"), ints(app, "b")) == ([1, 2], [1, 2, 3])
    assert (queries(app)["first"]["state"], queries(app)["first"]["lag"]) == ("paused", 1)
    app._crash()
    with App(BOTH, state=tmp_state) as app:
        app.send("s", {"x": 4})
        app.drain()
        assert (ints(app, "a"), ints(app, "b")) == ([1, 2], [1, 2, 3, 4])
        app.sql("RESUME QUERY first")
        app.drain()
        assert ints(app, "a") == [1, 2, 3, 4]
        app.sql("STOP QUERY first; STOP QUERY second")
        app.send("s", {"x": 5})
        app.drain()
        assert ints(app, "a") == ints(app, "b") == [1, 2, 3, 4]
        with pytest.raises(SqlError, match="it is stopped") as caught:
            app.sql("RESUME QUERY first")
        assert caught.value.hint == "possible: START QUERY"
        app.sql("START QUERY second")
        app.drain()
        assert (ints(app, "a"), ints(app, "b")) == ([1, 2, 3, 4], [1, 2, 3, 4, 5])


@pytest.mark.spark
def test_a_dropped_query_does_not_come_back(spark: object, tmp_state: Path) -> None:
    sql = BOTH + "CREATE TABLE n AS SELECT COUNT(*) AS n FROM s;"
    with App(sql, state=tmp_state) as app:
        app.send("s", {"x": 1})
        app.drain()
        app.sql("DROP QUERY first")
        with pytest.raises(InUse, match='fills table "n"'):
            app.sql("DROP QUERY n")
        with pytest.raises(UnknownName, match='no query "secnd"') as caught:
            app.sql("PAUSE QUERY secnd")
        assert caught.value.hint == 'did you mean "second"?'
        with pytest.raises(AlreadyExists, match='query "Second"'):
            app.sql("SELECT x FROM s WITH ('query.name' = 'Second')")
        app.sql("DROP QUERY IF EXISTS first; PAUSE QUERY n")
        assert queries(app)["table:n"]["state"] == "paused"
    with App(sql, state=tmp_state) as app:
        app.send("s", {"x": 2})
        app.drain()
        assert (ints(app, "a"), ints(app, "b")) == ([1], [1, 2])
        assert set(queries(app)) == {"second", "table:n"}
        assert app.sql("SELECT n FROM n").rows() == [{"n": 1}]
        app.sql("RESUME QUERY n")
        app.drain()
        assert app.sql("SELECT n FROM n").rows() == [{"n": 2}]


@pytest.mark.spark
def test_start_tries_a_failed_query_again(spark: object) -> None:
    sql = "CREATE TABLE k (x INT PRIMARY KEY, n INT); INSERT INTO k VALUES (1, 0), (2, 0);"
    options = "WITH ('query.name' = 'div', 'on.error' = 'fail')"
    div = f"INSERT INTO b SELECT 10 DIV k.n FROM s JOIN k ON k.x = s.x {options};"
    with App(STREAM + sql + div) as app:
        app.send("s", {"x": 1})
        with pytest.raises(QueryFailed, match='query "div"'):
            app.drain()
        assert queries(app)["div"]["state"] == "failed"
        assert "ivision by zero" in queries(app)["div"]["error"]
        app.sql("UPDATE k SET n = 5; START QUERY div")
        app.drain()
        assert ints(app, "b") == [2]
        assert (queries(app)["div"]["state"], queries(app)["div"]["error"]) == ("running", None)


def test_the_name_of_a_dropped_query_can_be_given_again() -> None:
    with App(STREAM, _direct=True) as app:
        app.sql("INSERT INTO a SELECT x FROM s WITH ('query.name' = 'q')")
        app.sql("DROP QUERY q")
        app.sql("INSERT INTO b SELECT x + 1 FROM s WITH ('query.name' = 'q')")
        app.send("s", {"x": 1})
        app.drain()
        assert (ints(app, "a"), ints(app, "b")) == ([], [2])


def test_options_of_running_statements_need_one() -> None:
    with App(STREAM) as app, pytest.raises(SqlError, match="is for running statements"):
        app.sql("INSERT INTO a SELECT x FROM b WITH ('query.name' = 'q')")


def test_moves() -> None:
    assert moved(State.FAILED, "start") is State.RUNNING
    with pytest.raises(SqlError, match="it is running"):
        moved(State.RUNNING, "start")


class Flaky:
    """A statement that cannot reach its target twice."""

    ephemeral = True
    errors = 0
    position: Position | None = None

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.calls = 0

    def apply(self, batch: Any, position: Position) -> int:
        self.calls += 1
        if self.calls < 3:
            raise TimedOut("the target does not answer")
        return 1

    def drop(self) -> None:
        return


@pytest.mark.spark
def test_an_error_that_may_pass_is_tried_again(spark: Any) -> None:
    with App(STREAM + "INSERT INTO a SELECT x FROM s") as app:
        app.send("s", {"x": 1})
        app.drain()
        (pipeline,) = app._runner
        stream = app._runner._running[pipeline.name][1]
        flaky = Pipeline(Flaky(pipeline.plan), pipeline.source)
        seen: list[State] = []
        done = threading.Event()
        flaky.on_progress = lambda: (seen.append(flaky.state), flaky.batches and done.set())  # type: ignore[func-returns-value]
        stream.add(flaky)
        stream.settle()
        assert done.wait(60)
        assert seen == [State.RETRYING, State.RETRYING, State.RUNNING]
        app.send("s", {"x": 2})
        app.drain()
        assert ints(app, "a") == [1, 2]
