"""CREATE OR REPLACE: what means the same, what a restart finds, and what goes on meanwhile."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from millpond import App
from millpond.errors import (
    ConnectionLost,
    Error,
    NotSupported,
)
from millpond.testing.faults import failing

STREAM = "CREATE STREAM e (id INT, k STRING, n INT);"
ROWS = [{"id": i, "k": "abc"[i % 3], "n": i * 7 % 10} for i in range(40)]


def rows(app: App, sql: str = "SELECT * FROM t ORDER BY 1, 2") -> list[tuple[object, ...]]:
    return [tuple(r.values()) for r in app.sql(sql).rows()]


# what a statement means

TWO_STREAMS = """
    CREATE STREAM e (id INT, k STRING, n INT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL 1 SECOND);
    CREATE STREAM f (id INT, k STRING, n INT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL 1 SECOND);
"""
PAIRS = (
    "SELECT e.id AS x, f.id AS y FROM e {} JOIN f ON e.k = f.k AND f.at BETWEEN e.at - INTERVAL {} SECONDS"
    " AND e.at + INTERVAL 3 SECONDS {}"
)


@pytest.mark.parametrize(
    ("create", "old", "new"),
    [
        ("TABLE", "SELECT x.id FROM e x", "SELECT x.id FROM f x"),
        ("STREAM", "SELECT x.id FROM e x", "SELECT x.id FROM f x"),
        ("VIEW", "SELECT x.id FROM e x", "SELECT x.id FROM f x"),
        ("VIEW", "SELECT x.k FROM p x", "SELECT x.k FROM q x"),
        ("MATERIALIZED VIEW", "SELECT x.k FROM p x", "SELECT x.k FROM q x"),
        ("TABLE", "SELECT x.k FROM p x", "SELECT x.k FROM q x"),
        (
            "TABLE",
            "SELECT k FROM p WHERE k IN (SELECT x.k FROM q x)",
            "SELECT k FROM p WHERE k IN (SELECT x.k FROM p x)",
        ),
        ("TABLE", PAIRS.format("", 3, ""), PAIRS.format("", 3, "AND e.id < f.id")),
        ("TABLE", PAIRS.format("", 3, ""), PAIRS.format("", 4, "")),
        ("TABLE", PAIRS.format("", 3, ""), PAIRS.format("LEFT", 3, "")),
        ("TABLE", PAIRS.format("", 3, ""), PAIRS.format("", 3, "WHERE e.n > 1")),
        ("TABLE", PAIRS.format("", 3, ""), PAIRS.format("", 3, "").replace("e.k = f.k", "e.n = f.n")),
    ],
)
def test_other_inputs_and_other_joins_mean_something_else(create: str, old: str, new: str) -> None:
    tables = """
        CREATE TABLE p (k STRING); CREATE TABLE q (k STRING);
        INSERT INTO p VALUES ('p'); INSERT INTO q VALUES ('q');
    """
    start = datetime(2026, 1, 1)
    sent = {
        name: [
            {"id": by * i, "k": "abc"[i % 3], "n": i % 4, "at": start + timedelta(seconds=by * i)}
            for i in range(12)
        ]
        for name, by in (("e", 1), ("f", 3))
    }

    def found(*statements: str) -> object:
        with App(TWO_STREAMS + tables + statements[0], _direct=True) as app:
            for stream, some in sent.items():
                app.send(stream, some)
            app.drain()
            for statement in statements[1:]:
                assert "means the same" not in str(app.sql(f"EXPLAIN {statement}").rows())
                app.sql(statement)
                app.drain()
            read = [{**r} for r in app.sql("SELECT * FROM t").rows()] if create != "STREAM" else []
            if create in ("STREAM", "VIEW") and " p " not in old:
                app.sql("CREATE TABLE seen AS SELECT * FROM t")
                app.drain()
                read = [{**r} for r in app.sql("SELECT * FROM seen").rows()]
            return sorted(map(repr, read))

    before, after = f"CREATE {create} t AS {old}", f"CREATE {create} t AS {new}"
    assert found(before, f"CREATE OR REPLACE {create} t AS {new}") == found(after) != found(before)


def test_other_aliases_and_parentheses_mean_the_same() -> None:
    with App(STREAM + "CREATE TABLE t AS SELECT x.id FROM e x WHERE x.n > 1", _direct=True) as app:
        same = "CREATE OR REPLACE TABLE t AS SELECT y.id FROM e AS y WHERE (y.n > 1)"
        assert "means the same" in str(app.sql(f"EXPLAIN {same}").rows())


# after a restart


@pytest.mark.parametrize("file", [None, STREAM + "CREATE TABLE d (k STRING PRIMARY KEY)"])
def test_what_no_file_has_is_replaced_after_a_restart(tmp_path: Path, file: str | None) -> None:
    with App(STREAM + "CREATE TABLE d (k STRING PRIMARY KEY)", state=tmp_path, _direct=True) as app:
        app.sql(
            "CREATE TABLE t AS SELECT id FROM e; CREATE VIEW v AS SELECT k FROM d; CREATE TABLE declared (a INT);"
            " CREATE MATERIALIZED VIEW m AS SELECT COUNT(*) AS c FROM d"
        )
        app.sql("INSERT INTO d VALUES ('a'), ('b'); INSERT INTO declared VALUES (1)")
        app.send("e", ROWS)
        app.drain()
    with App(file, state=tmp_path, _direct=True) as app:
        app.sql("CREATE OR REPLACE TABLE t AS SELECT id, n FROM e WHERE id < 3")
        app.sql("CREATE OR REPLACE VIEW v AS SELECT k, 1 AS one FROM d")
        app.sql("CREATE OR REPLACE TABLE declared (a INT, b INT DEFAULT 7)")
        app.sql("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT COUNT(*) AS c, MAX(k) AS k FROM d")
        app.drain()
    for _ in range(2):
        with App(file, state=tmp_path, _direct=True) as app:
            app.drain()
            assert rows(app) == [(r["id"], r["n"]) for r in ROWS[:3]]
            assert rows(app, "SELECT * FROM v ORDER BY k") == [("a", 1), ("b", 1)]
            assert rows(app, "SELECT * FROM declared") == [(1, 7)]
            assert rows(app, "SELECT * FROM m") == [(2, "b")]


@pytest.mark.parametrize("in_file", [True, False])
def test_a_renamed_table_that_was_replaced_is_still_that_of_the_file(tmp_path: Path, in_file: bool) -> None:
    rename = "ALTER TABLE t RENAME TO u;"
    file = "CREATE TABLE t (id INT PRIMARY KEY);" + (rename if in_file else "")
    with App(file, state=tmp_path, _direct=True) as app:
        if not in_file:
            app.sql(rename)
        app.sql("INSERT INTO u VALUES (1)")
        app.sql("CREATE OR REPLACE TABLE u (id INT PRIMARY KEY, b INT)")
    for _ in range(2):
        with App(file, state=tmp_path, _direct=True) as app:
            assert app.tables() == ["u"]
            assert rows(app, "SELECT * FROM u") == [(1, None)]


# columns


def test_a_table_whose_alter_is_pending_is_not_replaced(tmp_path: Path) -> None:
    stored = f"WITH ('extension' = 'sqlite', 'path' = '{tmp_path}/x.db')"
    file, state = f"CREATE TABLE t (id INT PRIMARY KEY) {stored};", tmp_path / "state"
    with App(file, state=state, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1)")
        with failing("alter: changed in the database", ConnectionLost("gone")), pytest.raises(ConnectionLost):
            app.sql("ALTER TABLE t ADD COLUMN b INT")
        for columns in (
            "id INT PRIMARY KEY, b STRING",
            "id INT PRIMARY KEY, b INT",
            "id INT PRIMARY KEY, c STRING",
        ):
            with pytest.raises(NotSupported, match="has begun"):
                app.sql(f"CREATE OR REPLACE TABLE t ({columns}) {stored}")
    with App(file, state=state, _direct=True) as app:
        assert app.sql("SELECT * FROM t").rows() == [{"id": 1, "b": None}]


def test_columns_keep_their_spelling(tmp_path: Path) -> None:
    file = "CREATE TABLE t (id INT PRIMARY KEY, a INT); CREATE INDEX i ON t (a);"
    with App(file, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 5)")
        app.sql("CREATE OR REPLACE TABLE t (ID INT PRIMARY KEY, A BIGINT, b INT DEFAULT 2)")
        app.sql("INSERT INTO t (id, A) VALUES (2, 6)")
        assert app.sql("SELECT id, a FROM t WHERE A = 5").rows() == [{"id": 1, "a": 5}]
        assert app.table("t").get_record(2) == {"id": 2, "a": 6, "b": 2}
    with App(file, state=tmp_path, _direct=True) as app:
        assert app.table("t").get_record(1) == {"id": 1, "a": 5, "b": 2}
        assert rows(app, "SELECT id FROM t WHERE a = 6") == [(2,)]


def test_what_stays_as_it_is_has_the_new_text(tmp_path: Path) -> None:
    file = """
        CREATE TABLE d (k INT, n INT);
        CREATE VIEW v AS SELECT k, n FROM d;
        CREATE MATERIALIZED VIEW m AS SELECT k, n FROM d;
    """
    with App(file, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO d VALUES (1, 2)")
        app.sql("CREATE OR REPLACE VIEW v AS SELECT * FROM d")
        app.sql("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT * FROM d")
        app.sql("ALTER TABLE d ADD COLUMN x INT DEFAULT 5")
        app.drain()
        assert rows(app, "SELECT * FROM v") == rows(app, "SELECT * FROM m") == [(1, 2, 5)]
    with App(file, state=tmp_path, _direct=True) as app:
        assert "SELECT *" in str(app.sql("SHOW CREATE VIEW v").rows())
        assert rows(app, "SELECT * FROM v") == rows(app, "SELECT * FROM m") == [(1, 2, 5)]


def test_views_over_a_replaced_view_have_its_types() -> None:
    file = "CREATE TABLE d (k INT); CREATE VIEW v AS SELECT k FROM d; CREATE VIEW w AS SELECT * FROM v;"
    with App(file, _direct=True) as app:
        app.sql("CREATE OR REPLACE VIEW v AS SELECT CAST(k AS STRING) AS k FROM d")
        assert "STRING" in str(app.sql("DESCRIBE w").rows())


@pytest.mark.parametrize(
    "new", ["CREATE OR REPLACE STREAM s (b STRING)", "CREATE OR REPLACE VIEW v AS SELECT 2 AS a"]
)
def test_an_interrupt_after_the_commit_stops_the_store(tmp_path: Path, new: str) -> None:
    file = "CREATE STREAM s (a INT); CREATE TABLE d (a INT); CREATE VIEW v AS SELECT a FROM d;"
    with App(file, state=tmp_path, _direct=True) as app:
        with failing("replace: journalled", KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
            app.sql(new)
        with pytest.raises(Error):
            app.send("s", [{"a": 2}])
    with App(file, state=tmp_path, _direct=True) as app:
        assert "CREATE OR REPLACE" in new and ("STRING" in str(app.sql("DESCRIBE s").rows())) == (
            "STREAM" in new
        )


def test_objects_of_tables_go_on_over_a_swap() -> None:
    with App(STREAM + "CREATE TABLE t AS SELECT id, 10 / n AS q FROM e", _direct=True) as app:
        app.send("e", ROWS)
        app.drain()
        table, errors = app.table("t"), app.table("t$errors")
        before = len(errors)
        app.sql("CREATE OR REPLACE TABLE t AS SELECT id, 10 / n AS q, 10 / (n - 1) AS p FROM e")
        app.drain()
        assert len(table) == len(app.table("t")) and len(errors) == len(app.table("t$errors")) > before > 0


@pytest.mark.parametrize("consistency", ["", "WITH ('consistency' = 'commit')"])
def test_views_over_the_errors_of_a_table_follow_it(consistency: str) -> None:
    errors = f"CREATE TABLE mc AS SELECT reason, COUNT(*) AS c FROM `t$errors` GROUP BY reason {consistency}"
    with App(STREAM + "CREATE TABLE t AS SELECT id, 10 / n AS q FROM e", _direct=True) as app:
        app.send("e", ROWS)
        app.drain()
        app.sql(errors)
        for query in ("10 / (n - 1) AS q, 20 / n AS z", "n AS q", "10 / (n - 2) AS q"):
            app.sql(f"CREATE OR REPLACE TABLE t AS SELECT id, {query} FROM e")
            app.send("e", ROWS)
            app.drain()
            asked = rows(app, "SELECT reason, COUNT(*) AS c FROM `t$errors` GROUP BY reason ORDER BY 1")
            assert rows(app, "SELECT * FROM mc ORDER BY 1") == asked
