"""EXPLAIN ANALYZE: what it says was done, was done, with the rows that came out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.errors import AlreadyExists, Error, SqlError, UnknownName
from millpond.steps import Steps, recording, step

pytestmark = pytest.mark.slow


@pytest.fixture
def app() -> Any:
    with App() as made:
        made.sql("CREATE TABLE t (k INT PRIMARY KEY, v STRING)")
        made.sql("INSERT INTO t SELECT id, CONCAT('v', id % 5) FROM (SELECT explode(sequence(1, 100)) AS id)")
        yield made


def steps(app: App, sql: str) -> dict[str, dict[str, Any]]:
    (told,) = app.sql(f"EXPLAIN ANALYZE FORMAT JSON {sql}").to_arrow().column("plan").to_pylist()
    return {s["step"]: s for s in json.loads(told)["steps"]}


def lines(app: App, sql: str) -> list[str]:
    return app.sql(f"EXPLAIN ANALYZE {sql}").to_arrow().column("plan").to_pylist()


def test_a_query_is_run(app: App) -> None:
    found = steps(app, "SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    assert found["read table t"]["rows"] == 100
    assert found["evaluate in process (DuckDB)"]["rows"] == 5
    assert all(s["times"] == 1 and s["ms"] >= 0 and s["bytes"] > 0 for s in found.values())


def test_what_the_plan_says_stands_before_what_was_done(app: App) -> None:
    plain = app.sql("EXPLAIN SELECT * FROM t WHERE v = 'v1'").to_arrow().column("plan").to_pylist()
    told = lines(app, "SELECT * FROM t WHERE v = 'v1'")
    assert told[: len(plain)] == plain
    assert re.fullmatch(r"ran: 20 rows in [\d,.]+ ms", told[len(plain)])
    assert all(line.startswith("step: ") for line in told[len(plain) + 1 :])


def test_a_lookup_is_one_step(app: App) -> None:
    found = steps(app, "SELECT * FROM t WHERE k = 7")
    assert {(name, s["rows"]) for name, s in found.items()} == {("look up in table t by k", 1)}


@pytest.mark.parametrize(
    ("sql", "changed", "left"),
    [
        ("INSERT INTO t VALUES (101, 'n'), (102, 'n')", 2, 102),
        ("UPDATE t SET v = 'u' WHERE k <= 10", 10, 100),
        ("DELETE FROM t WHERE k <= 10", 10, 90),
        ("MERGE INTO t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN DELETE", 1, 99),
    ],
)
def test_what_changes_is_changed_once(app: App, sql: str, changed: int, left: int) -> None:
    found = steps(app, sql)
    assert found["apply to table t"]["rows"] == changed
    assert found["write the journal"]["times"] == 1
    assert len(app.table("t")) == left


def test_one_of_a_transaction_that_is_taken_back_changes_nothing(app: App) -> None:
    app.sql("BEGIN; EXPLAIN ANALYZE DELETE FROM t; ROLLBACK")
    assert len(app.table("t")) == 100


def test_a_file_that_runs_again_does_not_change_again(tmp_path: Path) -> None:
    text = "CREATE TABLE t (k INT); EXPLAIN ANALYZE INSERT INTO t VALUES (1)"
    for _ in range(2):
        with App(text, state=tmp_path / "state") as app:
            assert app.sql("SELECT * FROM t").to_arrow().num_rows == 1


def test_a_running_statement_is_looked_at(app: App) -> None:
    app.sql("CREATE STREAM s (k INT)")
    text = "CREATE TABLE found AS SELECT t.v, COUNT(*) AS n FROM s JOIN t ON s.k = t.k GROUP BY t.v"
    with pytest.raises(SqlError, match="is not running yet"):
        app.sql(f"EXPLAIN ANALYZE {text}")
    app.sql(text)
    app.send("s", [{"k": k} for k in range(1, 51)])
    app.drain()
    app.send("s", [{"k": k} for k in range(1, 51)])
    app.drain()
    for asked in (text, text.lower().replace("'v'", "'V'"), "QUERY found", "QUERY table:found"):
        found = steps(app, asked)
        assert found["read stream s"]["rows"] == 100
        assert found["apply to table found"]["rows"] >= 5
    assert "running" in lines(app, "QUERY found")[0]
    assert sum(r["n"] for r in app.table("found").to_arrow().to_pylist()) == 100  # nothing was done twice


def test_a_statement_that_inserts_is_looked_at_by_its_text(app: App) -> None:
    app.sql("CREATE STREAM s (k INT)")
    app.sql("CREATE TABLE copy (k INT)")
    text = "INSERT INTO copy SELECT k FROM s"
    app.sql(text)
    app.send("s", [{"k": 1}, {"k": 2}])
    app.drain()
    assert steps(app, text)["apply to table copy"]["rows"] == 2
    assert app.table("copy").to_arrow().num_rows == 2


def test_a_live_table_is_looked_at(app: App) -> None:
    text = "CREATE TABLE live AS SELECT v, COUNT(*) AS n FROM t GROUP BY v"
    assert steps(app, text)["read table t"]["rows"] == 100
    app.sql("DELETE FROM t WHERE k = 1")
    app.drain()
    found = steps(app, text)
    assert found["read by operators"]["rows"] == found["apply to table live"]["rows"] - 5 == 1
    assert found["evaluate in process (DuckDB)"]["times"] == 1, "the change itself needs no query"


def test_a_load_is_run_and_then_looked_at(app: App, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    text = f"CREATE TABLE loaded AS SELECT * FROM file://{tmp_path}/a.csv"
    for _ in range(2):
        found = steps(app, text)
        assert found[f"read file://{tmp_path}/a.csv"]["rows"] == 2
        assert found["apply to table loaded"]["rows"] == 2
    assert app.table("loaded").to_arrow().num_rows == 2


def test_explaining_a_statement_takes_no_name() -> None:
    with App("CREATE STREAM s (k INT)") as app:
        text = "CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k"
        app.sql(f"EXPLAIN {text}; {text}")
        assert any("running" in line for line in lines(app, text))


def test_what_finds_nothing_to_do_does_nothing(app: App) -> None:
    app.sql("CREATE INDEX by_v ON t (v)")
    plan, ran = lines(app, "CREATE INDEX IF NOT EXISTS by_v ON t (v)")
    assert plan == "CreateIndex: done at once" and ran.startswith("ran: 0 rows")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (k INT)",
        "CREATE TABLE t AS SELECT 1 AS x",
        "CREATE VIEW t AS SELECT 1 AS x",
        "CREATE STREAM t (k INT)",
        "CREATE MATERIALIZED VIEW t AS SELECT k FROM u",
    ],
)
def test_what_exists_is_not_created_again(app: App, statement: str) -> None:
    app.sql("CREATE TABLE u (k INT PRIMARY KEY)")
    before = app.sql("DESCRIBE t").rows(), app.sql("SELECT * FROM t ORDER BY k").rows()
    with pytest.raises(AlreadyExists, match='"t" already exists'):
        app.sql(f"EXPLAIN ANALYZE {statement}")
    kind, _, rest = statement.partition(" t ")
    lines = app.sql(f"EXPLAIN ANALYZE {kind} IF NOT EXISTS t {rest}").rows()
    assert 'table "t" exists: nothing was run' in lines[-1]["plan"]
    assert (app.sql("DESCRIBE t").rows(), app.sql("SELECT * FROM t ORDER BY k").rows()) == before


def test_mistakes_are_those_of_the_statement(app: App) -> None:
    with pytest.raises(UnknownName, match="nope"):
        app.sql("EXPLAIN ANALYZE SELECT nope FROM t")
    with pytest.raises(UnknownName, match='no query "nope"'):
        app.sql("EXPLAIN ANALYZE QUERY nope")
    with pytest.raises(Error, match="has no picture"):
        app.sql("EXPLAIN ANALYZE FORMAT SVG SELECT 1")


@pytest.mark.spark
def test_what_only_spark_can_evaluate_says_so(app: App) -> None:
    found = steps(app, "SELECT regexp_extract(v, '(?<=v)(.)', 1) FROM t")
    assert found["evaluate by Spark"]["rows"] == 100


def test_steps_inside_others_count_in_both() -> None:
    record = Steps()
    with step("nobody listens"):
        pass
    with recording(record):
        for _ in range(3):
            with step("outer"), step("inner") as noted:
                noted.tell(2, 10)
        with recording(Steps()), step("elsewhere"):
            pass
        with pytest.raises(ValueError), step("outer"):
            raise ValueError
    assert [(s.name, s.depth, s.times, s.rows) for s in record] == [
        ("outer", 0, 4, None),
        ("inner", 1, 3, 6),
    ]
    outer, inner = record
    assert outer.seconds >= inner.seconds
