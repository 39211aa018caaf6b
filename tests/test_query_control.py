"""SHOW QUERIES, PAUSE, RESUME, STOP, START and DROP QUERY; a statement that is tried again."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.changes import Position
from millpond.engine.pipeline import Pipeline
from millpond.engine.states import State, moved
from millpond.errors import AlreadyExists, InUse, QueryFailed, SqlError, TimedOut, UnknownName
from millpond.testing.crash import crash
from millpond.testing.faults import failing

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
    crash(app)
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
        with pytest.raises(AlreadyExists, match='query "second" already exists'):
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
        (pipeline,) = app._runtime.runner
        stream = app._runtime.runner._running[pipeline.name][1]
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


EVERY_NAME = """
    CREATE STREAM s (x INT, y INT); CREATE STREAM ab (x INT, y INT);
    CREATE TABLE t (x INT PRIMARY KEY, y INT);
    CREATE STREAM d AS SELECT x FROM s;
    CREATE TABLE n AS SELECT COUNT(*) AS n FROM s;
    CREATE MATERIALIZED VIEW m AS SELECT MAX(x) AS x FROM t;
    CREATE TABLE j AS SELECT a.x FROM s a JOIN ab b ON a.x = b.x;
    INSERT INTO t SELECT x, y FROM s;
    INSERT INTO t SELECT x, y FROM s;
    INSERT INTO t SELECT x, y + 1 FROM s WITH ('query.name' = 'Plus 1: the `first`, "quoted" / ''both''');
    INSERT INTO kafka://topic.a/b?x=1 SELECT x FROM s;
    UPDATE t SET y = t.y + 1 FROM s WHERE s.x = t.x;
    BEGIN; INSERT INTO t SELECT x, y FROM s; DELETE FROM t USING s WHERE s.x = t.x; COMMIT;
    SELECT x FROM s;
    SELECT y FROM t EMIT CHANGES;
"""


def spellings(name: str) -> list[str]:
    """How a name can be written: as it is printed if it stands together, or quoted."""
    doubled, escaped = name.replace("`", "``"), name.replace("'", "''")
    bare = [name] if re.fullmatch(r"[\w:.$-]+", name) else []
    return [f"`{doubled}`", f"'{escaped}'", *bare]


def test_names_that_are_shown_are_names_that_are_taken() -> None:
    with App(EVERY_NAME, _direct=True, _stand_in=lambda *_: None) as app:
        shown = queries(app)
        assert len(shown) == 13
        for name in shown:
            for spelt in spellings(name):
                for action, state in (
                    ("PAUSE", "paused"),
                    ("RESUME", "running"),
                    ("STOP", "stopped"),
                    ("START", "running"),
                ):
                    app.sql(f"{action} QUERY {spelt}")
                    assert queries(app)[name]["state"] == state, (action, spelt)
        app.drain()
        for name in shown:
            for spelt in spellings(name) if name in queries(app) else ():
                if name.startswith(("table:", "stream:")):
                    with pytest.raises(InUse, match="fills"):
                        app.sql(f"DROP QUERY {spelt}")
                else:
                    app.sql(f"DROP QUERY IF EXISTS {spelt}")
        assert {name.partition(":")[0] for name in queries(app)} == {"table", "stream"}


def test_an_unknown_query_is_found_before_anything_runs() -> None:
    with App(_direct=True) as app:
        for name, hint in (
            ("tabel:n", "table:n"),
            ("n2", None),
            ("insert_t_00000000", "insert_t_"),
            ("s", None),
        ):
            with pytest.raises(UnknownName, match=f'there is no query "{name}"') as caught:
                app.sql(EVERY_NAME.replace("kafka://topic.a/b?x=1", "t (x)") + f";\nPAUSE QUERY {name}")
            assert caught.value.line == EVERY_NAME.count("\n") + 2
            assert hint is None or hint in str(caught.value.hint)
        with pytest.raises(UnknownName, match='no query "d"'):
            app.sql(
                "CREATE STREAM s (x INT); CREATE STREAM d AS SELECT x FROM s; DROP STREAM d; PAUSE QUERY d"
            )
        assert app.tables() == []


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("INSERT INTO a SELECT x FROM s WITH ('query.name' = 'table:x')", "cannot be the name of a query"),
        ("INSERT INTO a SELECT x FROM s WITH ('query.name' = ' ')", "cannot be the name of a query"),
        ("INSERT INTO a SELECT x FROM s WITH ('query.name' = 'N')", 'query "table:n" already exists'),
        ("CREATE TABLE q AS SELECT x FROM s", 'query "q" already exists'),
        ("SELECT x FROM s WITH ('query.name' = 'q')", 'query "q" already exists'),
    ],
)
def test_queries_and_what_they_fill_share_their_names(sql: str, message: str) -> None:
    taken = "CREATE TABLE n AS SELECT x FROM s; INSERT INTO a SELECT x FROM s WITH ('query.name' = 'q');"
    with App(STREAM, _direct=True) as app:
        with pytest.raises(SqlError, match=re.escape(message)):
            app.sql(taken + sql)
        app.sql(taken)
        with pytest.raises(SqlError, match=re.escape(message)):
            app.sql(sql)


def test_a_statement_that_is_run_again_after_a_restart_is_another_query(tmp_state: Path) -> None:
    sql = STREAM + "INSERT INTO a SELECT x FROM s;"
    with App(sql, state=tmp_state, _direct=True) as app:
        (first,) = queries(app)
    with App(sql, state=tmp_state, _direct=True) as app:
        app.sql("INSERT INTO a SELECT x FROM s")
        assert list(queries(app)) == [first, f"{first}_1"]
        app.send("s", {"x": 1})
        app.drain()
        assert ints(app, "a") == [1, 1]


CONTROLS = [
    ("PAUSE QUERY q", "", "paused"),
    ("PAUSE QUERY q", "RESUME QUERY q", "running"),
    ("PAUSE QUERY q", "STOP QUERY q", "stopped"),
    ("STOP QUERY q", "", "stopped"),
    ("STOP QUERY q", "START QUERY q", "running"),
    ("PAUSE QUERY q; RESUME QUERY q", "", "running"),
    ("PAUSE QUERY q; RESUME QUERY q", "PAUSE QUERY q", "paused"),
]
DROPS = [
    ("PAUSE QUERY q", "DROP QUERY q", None),
    ("PAUSE QUERY q; RESUME QUERY q", "DROP QUERY q", None),
    ("DROP QUERY q", "", None),
]
NONE = (
    "CREATE STREAM s (x INT); CREATE TABLE a (x INT) WITH ('durability' = 'none'); CREATE TABLE b (x INT); "
)
QUERIES = [
    STREAM + "INSERT INTO a SELECT x FROM s WITH ('query.name' = 'q'); ",
    NONE + "INSERT INTO a SELECT x FROM s WITH ('query.name' = 'q'); ",
    NONE.replace("a (", "q (") + "INSERT INTO b SELECT x FROM s WITH ('query.name' = 'q'); ",
    "CREATE STREAM s (x INT); SELECT x FROM s WITH ('query.name' = 'q'); ",
]
FILLED = [
    "CREATE TABLE a (x INT); CREATE TABLE q AS SELECT x FROM a; ",
    "CREATE TABLE a (x INT); CREATE TABLE q WITH ('durability' = 'none') AS SELECT x FROM a; ",
    "CREATE STREAM s (x INT); CREATE TABLE q WITH ('durability' = 'none') AS SELECT x FROM s; ",
]


@pytest.mark.parametrize(
    ("sql", "text", "told", "left"),
    [
        (sql, *case)
        for sql in (*QUERIES, *FILLED)
        for case in (*CONTROLS, *(DROPS if sql in QUERIES else ()))
        # What a query that begins anew was told while it ran is not kept.
        if "none" not in sql or case[1].startswith(("RESUME", "START", "DROP")) or not case[1]
    ],
)
def test_a_text_that_controls_a_query_can_be_run_again(
    sql: str, text: str, told: str, left: str | None, tmp_state: Path
) -> None:
    """After a restart a query is as it was left, whatever the text says of it."""
    for number in range(4):
        app = App(sql + text, state=tmp_state, _direct=True)
        if not number and told:
            app.sql(told)
        assert [q["state"] for q in queries(app).values()] == ([] if left is None else [left])
        if number % 2:
            app.close()
        else:
            crash(app)


def test_a_text_that_controls_a_query_that_begins_anew(tmp_state: Path) -> None:
    """What a restart does not find is told again."""
    sql = "CREATE STREAM s (x INT); SELECT x FROM s WITH ('query.name' = 'q'); PAUSE QUERY q"
    for _ in range(3):
        with App(sql, state=tmp_state, _direct=True) as app:
            assert [q["state"] for q in queries(app).values()] == ["paused"]


def test_the_name_of_a_query_that_the_file_has_and_that_was_dropped_is_free(tmp_state: Path) -> None:
    sql = STREAM + "INSERT INTO a SELECT x FROM s WITH ('query.name' = 'q')"
    for number in range(3):
        with App(sql, state=tmp_state, _direct=True) as app:
            if not number:
                app.sql("DROP QUERY q")
                continue
            with pytest.raises(UnknownName):
                app.sql("PAUSE QUERY q")
            app.sql("INSERT INTO b SELECT x FROM s WITH ('query.name' = 'q')")
            app.sql("DROP QUERY q")
    with App(sql + "; PAUSE QUERY q", state=tmp_state, _direct=True) as app:
        assert queries(app) == {}


def test_control_waits_for_no_commit() -> None:
    sql = STREAM + "INSERT INTO a SELECT x FROM s WITH ('query.name' = 'q')"
    with App(sql, _direct=True) as app, app._runtime.store.writing:
        thread = threading.Thread(target=app.sql, args=("PAUSE QUERY q",))
        thread.start()
        thread.join(30)
        assert not thread.is_alive()


def test_a_query_that_is_named_as_a_table_keeps_its_groups_apart_from_it(
    tmp_state: Path, tmp_path: Path
) -> None:
    sql = (
        f"CREATE STREAM s (x INT); CREATE TABLE a (x INT) WITH ('extension' = 'sqlite', 'path' = '{tmp_path}/a.db');"
        "SELECT x, COUNT(*) AS n FROM s GROUP BY x WITH ('query.name' = 'a')"
    )
    shown: list[Any] = []
    for _ in range(2):
        with App(sql, state=tmp_state, _direct=True, _on_emit=lambda name, rows: shown.append(rows)) as app:
            app.send("s", [{"x": 1}, {"x": 1}])
            app.drain()
    assert shown[-1].to_pylist()[-1]["n"] == 4


def test_who_waits_for_commits_is_called_whatever_others_do() -> None:
    called: list[int] = []
    with App("CREATE TABLE a (x INT)") as app:
        app._runtime.store.visibility.listen(lambda: 1 // 0)
        app._runtime.store.visibility.listen(lambda: called.append(1))
        app.sql("INSERT INTO a VALUES (1)")
    assert called == [1]


def test_draining_tells_of_the_only_query_that_could_not_be_started(tmp_state: Path) -> None:
    text = STREAM + "INSERT INTO a SELECT x FROM s WITH ('query.name' = 'only');"
    with App(text, state=tmp_state, _direct=True) as app:
        app.send("s", [{"x": 1}])
    with (
        failing("pipeline enrolled", QueryFailed("it fails")),
        App(text, state=tmp_state, _direct=True) as app,
    ):
        with pytest.raises(QueryFailed, match="it fails"):
            app.drain()
        assert queries(app)["only"]["state"] == "failed"
