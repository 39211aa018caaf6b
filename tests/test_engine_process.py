"""With 'engine' = 'process' nothing of a running statement is left to Spark: it is refused, at check and at start."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond import App, Error
from millpond.app.check import check_text, explain_text

DECLARED = """CREATE STREAM s (k INT, v STRING); CREATE STREAM p (k INT, w STRING);
CREATE TABLE d (k INT PRIMARY KEY, n STRING); CREATE TABLE e (k INT PRIMARY KEY, m STRING);
"""


def only_spark(text: str) -> str:
    return f"regexp_extract({text}, '(?<=a)b+', 0)"


JOIN = f"CREATE TABLE t{{}} AS SELECT s.k FROM s JOIN p ON s.k = p.k AND {only_spark('s.v')} = p.w"
STATEMENTS = {
    "pairs, in ON": (JOIN, "pairs refused, only Spark can find them"),
    "pairs, in WHERE": (
        "CREATE TABLE t{} AS SELECT s.k FROM s JOIN p ON s.k = p.k"
        f" WHERE {only_spark('concat(s.v, p.w)')} = 'b'",
        "pairs refused, only Spark can find them",
    ),
    "pairs below another join": (
        f"CREATE TABLE t{{}} AS SELECT s.k FROM s JOIN p ON s.k = p.k AND {only_spark('s.v')} = p.w"
        " JOIN s AS q ON q.k = s.k",
        "pairs refused, only Spark can find them",
    ),
    "rows of a side": (
        f"CREATE TABLE t{{}} AS SELECT s.k FROM s JOIN p ON s.k = p.k WHERE {only_spark('s.v')} = 'b'",
        "batch stage: refused, only Spark can evaluate it",
    ),
    "groups above a join": (
        f"CREATE TABLE t{{}} AS SELECT s.k, {only_spark('max(p.w)')} AS m FROM s JOIN p ON s.k = p.k GROUP BY s.k",
        "merge stage: refused, only Spark can merge groups",
    ),
    "rows that events concern": (
        f"DELETE FROM d USING s WHERE d.k = s.k AND d.k IN (SELECT k FROM e WHERE {only_spark('e.m')} = 'b'){{}}",
        "apply: refused, only Spark can fold it",
    ),
}


@pytest.mark.parametrize("case", STATEMENTS)
def test_it_is_refused_at_check(case: str) -> None:
    statement, line = STATEMENTS[case]
    option = " WITH ('engine' = 'process')"
    for found in (
        check_text(DECLARED + statement.format(""), engine="process"),
        check_text(DECLARED + statement.format(option)),
        check_text(DECLARED + statement.format(option), engine="spark"),
    ):
        (error,) = found.errors
        assert error.message == (
            "only Spark can evaluate this statement (a regular expression of Java's own kind), and its engine is"
            " 'process'"
        )
        assert error.hint == "use 'engine' = 'auto', or write it in another form"
        assert (error.line, error.column) == (3, 1)
    allowed = check_text(DECLARED + statement.format(" WITH ('engine' = 'auto')"), engine="process")
    assert not allowed.errors
    told = list(explain_text(check_text(DECLARED + statement.format("")), engine="process"))[-1][1]
    why = f"{line} (a regular expression of Java's own kind), and the engine is 'process'"
    assert any(why in one for one in told), told


def test_it_is_refused_at_start() -> None:
    with App(DECLARED, engine="process", _direct=True) as app:
        with pytest.raises(Error, match="only Spark can evaluate this statement") as caught:
            app.sql(JOIN.format(""))
        assert caught.value.place is not None and caught.value.hint is not None
        assert app.sql("SHOW QUERIES").rows() == []


def test_it_is_refused_when_a_directory_is_opened_with_another_engine(tmp_path: Path) -> None:
    with App(DECLARED + JOIN.format(""), state=tmp_path, _direct=True) as app:
        assert {q["state"] for q in app.sql("SHOW QUERIES").rows()} == {"running"}
    with App(state=tmp_path, engine="process", _direct=True) as app:
        (query,) = app.sql("SHOW QUERIES").rows()
        assert query["state"] == "failed" and "only Spark can evaluate this statement" in query["error"]


def test_what_duckdb_refuses_when_it_runs_is_an_error() -> None:
    """DuckDB mixes up the columns of this join. When it no longer does, another query is needed here."""
    text = """
        CREATE STREAM s (id INT); CREATE TABLE e (v STRING);
        CREATE TABLE d (id INT, v STRING, at TIMESTAMP);
        INSERT INTO d VALUES (1, 'a', TIMESTAMP '2026-01-01 00:00:00'), (2, 'b', TIMESTAMP '2026-01-01 00:00:01'),
            (3, NULL, NULL);
        INSERT INTO e VALUES ('a'), ('c');
        CREATE TABLE t AS SELECT s.id, x.n FROM s LEFT JOIN (
            SELECT c.id, a.n FROM (SELECT at, 1 AS n FROM d) a
            LEFT JOIN d b ON NOT EXISTS (SELECT 1 FROM e WHERE e.v = b.v)
            RIGHT JOIN d c ON a.at <> c.at) x ON x.id = s.id;
    """
    with App(text, engine="process", _direct=True) as app:
        app.send("s", [{"id": 1}])
        with pytest.raises(Error, match="only Spark can evaluate this statement"):
            app.drain()
        (query,) = app.sql("SHOW QUERIES").rows()
        assert query["state"] == "failed" and query["spark_batches"] == 0
        assert "DuckDB does not take it" in query["error"]
        assert app.sql("SELECT * FROM t").rows() == []
