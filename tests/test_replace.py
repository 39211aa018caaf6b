"""CREATE OR REPLACE of what exists: it is kept, altered or built again; what reads it follows, or it is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.app.app import runtime_of
from millpond.errors import (
    Conflict,
    Error,
    InUse,
    InvalidOption,
    NotSupported,
    SqlError,
    TypeMismatch,
    UpgradeNeeded,
)
from millpond.replace.shadow import Shadows
from millpond.replace.swap import Swaps
from millpond.testing.faults import failing

STREAM = "CREATE STREAM e (id INT, k STRING, n INT);"
ROWS = [{"id": i, "k": "abc"[i % 3], "n": i * 7 % 10} for i in range(40)]


def rows(app: App, sql: str = "SELECT * FROM t ORDER BY 1, 2") -> list[tuple[object, ...]]:
    return [tuple(r.values()) for r in app.sql(sql).rows()]


def fresh(sql: str, sent: list[dict[str, object]], read: str = "SELECT * FROM t ORDER BY 1, 2") -> object:
    """Returns what a new app over the same input has."""
    with App(sql, _direct=True) as app:
        app.send("e", sent)
        app.drain()
        return rows(app, read)


QUERIES = {
    "rows": "SELECT id, k, n FROM e WHERE n > 2",
    "other columns": "SELECT id, n * 2 AS twice FROM e",
    "groups": "SELECT k, COUNT(*) AS c, SUM(n) AS s FROM e GROUP BY k",
    "distinct": "SELECT k, COUNT(DISTINCT n) AS c, MEDIAN(n) AS m FROM e GROUP BY k",
    "join": "SELECT e.id, d.name FROM e JOIN d ON d.k = e.k",
    "totals": "SELECT COUNT(*) AS c, MAX(n) AS m FROM e",
    "over a table": "SELECT k, name FROM d WHERE k <> 'b'",
}
DIMENSION = """
    CREATE TABLE d (k STRING PRIMARY KEY, name STRING);
    INSERT INTO d VALUES ('a', 'A'), ('b', 'B'), ('c', 'C');
"""


def test_a_table_becomes_any_other_one(tmp_path: Path) -> None:
    start = f"{STREAM} {DIMENSION} CREATE TABLE t AS {QUERIES['rows']};"
    sent: list[dict[str, object]] = []
    with App(start, state=tmp_path, _direct=True) as app:
        for number, (what, query) in enumerate([*QUERIES.items(), *reversed(QUERIES.items())]):
            app.send("e", ROWS[number : number + 5])
            sent += ROWS[number : number + 5]
            if number % 2:
                app.drain()
            app.sql(f"CREATE OR REPLACE TABLE t AS {query}")
            app.send("e", ROWS[number : number + 3])
            sent += ROWS[number : number + 3]
            app.drain()
            order = "SELECT * FROM t ORDER BY ALL"
            expected = fresh(f"{STREAM} {DIMENSION} CREATE TABLE t AS {query};", sent, order)
            assert rows(app, order) == expected, (number, what)
            assert app.tables() == ["d", "t"]
            assert not [n for n in runtime_of(app).catalog.names() if "$next" in n]
            assert not [n for n in runtime_of(app).journal.table_names() if "$next" in n]
    last = QUERIES["rows"]
    for text in (start, f"{STREAM} {DIMENSION} CREATE TABLE t AS {last};", None):
        with App(text, state=tmp_path, _direct=True) as app:
            app.send("e", ROWS[:1])
            sent += ROWS[:1]
            app.drain()
            assert rows(app) == fresh(f"{STREAM} CREATE TABLE t AS {last};", sent)


def test_joins_of_streams_windows_waiting_rows_and_errors(tmp_path: Path) -> None:
    base = """
        CREATE STREAM e (id INT, k STRING, n INT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL 5 SECONDS);
        CREATE STREAM f (id INT, k STRING, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL 5 SECONDS);
        CREATE TABLE d (k STRING PRIMARY KEY, name STRING); INSERT INTO d VALUES ('a', 'A');
    """
    queries = {
        "window": "SELECT k, COUNT(*) AS c FROM e GROUP BY k WINDOW TUMBLING(10s)",
        "join": """SELECT e.id AS a, f.id AS b FROM e JOIN f ON e.k = f.k
            AND f.at BETWEEN e.at - INTERVAL 3 SECONDS AND e.at + INTERVAL 3 SECONDS""",
        "waiting": "SELECT e.id, d.name FROM e JOIN d ON d.k = e.k WITH ('on.miss' = 'retry')",
        "errors": "SELECT id, 10 / n AS q FROM e",
    }
    begin = datetime(2024, 1, 1)
    rows_of = [
        {"id": i, "k": "abc"[i % 3], "n": i % 5, "at": begin + timedelta(seconds=i)} for i in range(40)
    ]

    def feed(app: App, number: int) -> None:
        part = rows_of[4 * number : 4 * number + 4]
        app.send("e", part)
        app.send("f", [{k: r[k] for k in ("id", "k", "at")} for r in part])
        app.drain()

    start = f"{base} CREATE TABLE t AS {queries['window']};"
    app = App(start, state=tmp_path, _direct=True)
    for number, name in enumerate(("join", "errors", "waiting", "window", "join")):
        feed(app, 2 * number)
        app.sql(f"CREATE OR REPLACE TABLE t AS {queries[name]}")
        if number % 2:
            app.close()
            app = App(start, state=tmp_path, _direct=True)
        feed(app, 2 * number + 1)
        order = "SELECT * FROM t ORDER BY ALL"
        with App(f"{base} CREATE TABLE t AS {queries[name]};", _direct=True) as other:
            for done in range(2 * number + 2):
                feed(other, done)
            assert rows(app, order) == rows(other, order), name
            if name == "errors":
                errors = "SELECT query, seq, reason FROM `t$errors` ORDER BY seq"
                assert rows(app, errors) == rows(other, errors) != []
        assert not [p for p in runtime_of(app).journal.positions() if "$next" in p]
    app.close()


def test_what_reads_it_follows(tmp_path: Path) -> None:
    sql = f"""
        {STREAM} CREATE STREAM f (k STRING);
        CREATE TABLE t AS SELECT k, SUM(n) AS s FROM e GROUP BY k;
        CREATE INDEX by_s ON t (s);
        CREATE TABLE joined AS SELECT f.k, t.s FROM f JOIN t ON t.k = f.k;
        CREATE STREAM out AS SELECT f.k, t.s FROM f JOIN t ON t.k = f.k;
        CREATE TABLE outs (k STRING, s BIGINT);
        INSERT INTO outs SELECT k, s FROM out;
        CREATE VIEW named AS SELECT * FROM t;
        CREATE MATERIALIZED VIEW total AS SELECT SUM(s) AS s FROM t;
    """
    with App(sql, state=tmp_path, _direct=True) as app:
        table = app.table("t")
        app.send("e", ROWS)
        app.drain()
        app.send("f", [{"k": "a"}])
        app.drain()
        before = dict(rows(app))
        app.sql("CREATE OR REPLACE TABLE t AS SELECT k, SUM(n * 10) AS s, COUNT(*) AS c FROM e GROUP BY k")
        app.send("f", [{"k": "a"}])
        app.drain()
        after = {k: s for k, s, _ in rows(app)}  # type: ignore[misc]
        assert after == {k: 10 * s for k, s in before.items()}  # type: ignore[operator]
        wanted = [("a", before["a"]), ("a", after["a"])]
        assert rows(app, "SELECT * FROM joined ORDER BY s") == wanted
        assert rows(app, "SELECT * FROM outs ORDER BY s") == wanted
        assert rows(app, "SELECT * FROM total") == [(sum(after.values()),)]
        assert rows(app, "SELECT k, s FROM named ORDER BY k") == sorted(after.items())
        assert list(table.schema.names) == ["k", "s", "c"] and table.get_record("a")["s"] == after["a"]
        assert rows(app, f"SELECT k FROM t WHERE s = {after['b']}") == [("b",)]
        explained = rows(app, "EXPLAIN CREATE OR REPLACE TABLE t AS SELECT k, SUM(n) AS s FROM e GROUP BY k")
        assert 'replaces: table "t", which is built again beside the old one' in str(explained[0])
        for query, named in (
            ("SELECT k, COUNT(*) AS c FROM e GROUP BY k", 'index "by_s"'),
            ("SELECT k, SUM(n * 1.5) AS s FROM e GROUP BY k", "joined"),
            ("SELECT k, SUM(s) AS s FROM joined GROUP BY k", "itself"),
            ("SELECT k, s FROM t", "not known"),
        ):
            with pytest.raises(Error, match=named):
                app.sql(f"CREATE OR REPLACE TABLE t AS {query}")
        assert {k: s for k, s, _ in rows(app)} == after  # type: ignore[misc]
    with App(sql, state=tmp_path, _direct=True) as app:
        assert {k: s for k, s, _ in rows(app)} == after  # type: ignore[misc]
        assert rows(app, "SELECT * FROM joined ORDER BY s") == wanted
        assert rows(app, "SELECT * FROM outs ORDER BY s") == wanted


def test_a_materialized_view_and_a_load_are_built_again(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,n\nx,1\ny,2\n")
    file = f"file://{tmp_path}/a.csv"
    sql = f"""
        {DIMENSION} CREATE MATERIALIZED VIEW t AS SELECT k, name FROM d;
        CREATE MATERIALIZED VIEW many AS SELECT COUNT(*) AS c FROM t;
        CREATE TABLE loaded AS SELECT k, n FROM {file};
    """
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        app.sql("CREATE OR REPLACE MATERIALIZED VIEW t AS SELECT k, name FROM d WHERE k > 'a'")
        app.sql("INSERT INTO d VALUES ('z', 'Z')")
        app.sql(f"CREATE OR REPLACE TABLE loaded AS SELECT k, n + 1 AS m FROM {file}")
        app.drain()
        assert rows(app) == [("b", "B"), ("c", "C"), ("z", "Z")]
        assert rows(app, "SELECT * FROM many") == [(3,)]
        assert rows(app, "SELECT * FROM loaded ORDER BY 1") == [("x", 2), ("y", 3)]
        (tmp_path / "a.csv").write_text("k,n\nx,1\ny,2\nz,3\n")
        app.drain()
        assert rows(app, "SELECT * FROM loaded ORDER BY 1") == [("x", 2), ("y", 3), ("z", 4)]
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        assert rows(app, "SELECT * FROM loaded ORDER BY 1") == [("x", 2), ("y", 3), ("z", 4)]
        assert rows(app) == [("b", "B"), ("c", "C"), ("z", "Z")]


def test_a_declared_table_keeps_its_rows(tmp_path: Path) -> None:
    sql = f"""
        CREATE TABLE t (id INT PRIMARY KEY, a INT) WITH ('hot.records' = 10);
        {STREAM} INSERT INTO t SELECT id, n FROM e;
        CREATE VIEW v AS SELECT * FROM t;
    """
    with App(sql, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2)")
        app.sql("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, a INT) WITH ('hot.records' = 10)")
        app.sql("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, a INT) WITH ('hot.records' = 20)")
        assert rows(app) == [(1, 2)]
        new = "(id INT PRIMARY KEY, a BIGINT, b STRING DEFAULT 'x', c INT) WITH ('hot.records' = 20)"
        with pytest.raises(InUse, match="insert_t"):
            app.sql(f"CREATE OR REPLACE TABLE t {new}")
        query = next(iter(runtime_of(app).runner)).name
        app.sql(f"DROP QUERY {query}; CREATE OR REPLACE TABLE t {new}")
        assert rows(app) == rows(app, "SELECT * FROM v") == [(1, 2, "x", None)]
        for columns, error, match in (
            ("(id INT, a BIGINT PRIMARY KEY, b STRING DEFAULT 'x', c INT)", SqlError, "primary key"),
            ("(id INT PRIMARY KEY, a INT, b STRING DEFAULT 'x', c INT)", TypeMismatch, '"a" is BIGINT'),
            ("(id INT PRIMARY KEY, a BIGINT, c INT)", NotSupported, "DROP COLUMN|values would be lost"),
            ("(id INT PRIMARY KEY, b STRING DEFAULT 'x', a BIGINT, c INT)", NotSupported, "cannot move"),
            ("AS SELECT 1 AS id", NotSupported, "come from statements"),
        ):
            with pytest.raises(error, match=match):
                app.sql(f"CREATE OR REPLACE TABLE t {columns}")
        assert rows(app) == [(1, 2, "x", None)]
    wanted = f"CREATE TABLE t {new}; {STREAM} CREATE VIEW v AS SELECT * FROM t;"
    for text in (wanted, wanted.replace("CREATE TABLE", "CREATE OR REPLACE TABLE"), None):
        with App(text, state=tmp_path, _direct=True) as app:
            assert rows(app) == [(1, 2, "x", None)]


def test_views_and_streams(tmp_path: Path) -> None:
    sql = f"""
        {STREAM} {DIMENSION}
        CREATE VIEW v AS SELECT k, name FROM d;
        CREATE VIEW over AS SELECT * FROM v;
        CREATE MATERIALIZED VIEW m AS SELECT COUNT(*) AS c FROM over;
        CREATE TABLE t AS SELECT e.id, v.name FROM e JOIN v ON v.k = e.k;
        CREATE VIEW late AS SELECT id, n FROM e WHERE n > 5;
        CREATE TABLE of_late AS SELECT SUM(n) AS s FROM late;
        CREATE STREAM lonely (a INT);
    """
    with App(sql, state=tmp_path, _direct=True) as app:
        app.send("e", ROWS[:1])
        app.drain()
        app.sql("CREATE OR REPLACE VIEW v AS SELECT k, lower(name) AS name, 1 AS one FROM d WHERE k < 'c'")
        app.send("e", ROWS[1:3])
        app.drain()
        assert rows(app) == [(0, "A"), (1, "b")]
        assert rows(app, "SELECT * FROM m") == [(2,)]
        assert rows(app, "SELECT * FROM over ORDER BY 1") == [("a", "a", 1), ("b", "b", 1)]
        with pytest.raises(InUse, match='"of_late"'):
            app.sql("CREATE OR REPLACE VIEW late AS SELECT id, n FROM e")
        with pytest.raises(InUse, match='"t"'):
            app.sql("CREATE OR REPLACE VIEW v AS SELECT k FROM d")
        with pytest.raises(InUse, match="query"):
            app.sql("CREATE OR REPLACE STREAM e (id INT)")
        with pytest.raises(SqlError, match="is a stream, not a table"):
            app.sql("CREATE OR REPLACE TABLE e (id INT)")
        app.sql("CREATE OR REPLACE STREAM e (id INT, k STRING, n INT) WITH ('batch.max.rows' = 7)")
        app.send("lonely", [{"a": 1}])
        app.sql("CREATE OR REPLACE STREAM lonely (b STRING)")
        app.send("lonely", [{"b": "x"}])
        app.sql("CREATE OR REPLACE STREAM lonely AS SELECT id FROM e")
        app.sql("CREATE OR REPLACE STREAM lonely AS SELECT n FROM e")
        app.sql("CREATE TABLE of_lonely AS SELECT * FROM lonely")
        app.drain()
        assert rows(app, "SELECT n FROM of_lonely ORDER BY n") == sorted((r["n"],) for r in ROWS[:3])
        assert rows(app) == [(0, "A"), (1, "b")]
    with App(sql, state=tmp_path, _direct=True) as app:
        app.drain()
        assert rows(app) == [(0, "A"), (1, "b")]
        assert rows(app, "SELECT * FROM over ORDER BY 1") == [("a", "a", 1), ("b", "b", 1)]
        assert rows(app, "SELECT n FROM of_lonely ORDER BY n") == sorted((r["n"],) for r in ROWS[:3])


def test_a_failure_leaves_the_old_one(tmp_path: Path) -> None:
    sql = f"{STREAM} CREATE TABLE t AS SELECT id, n FROM e; CREATE VIEW v AS SELECT * FROM t;"
    with App(sql, state=tmp_path, _direct=True) as app:
        app.send("e", ROWS)
        app.drain()
        before = rows(app)
        with pytest.raises(Error):
            app.sql(
                "CREATE OR REPLACE TABLE t AS SELECT id, n / (n - 7) AS n FROM e WITH ('on.error' = 'fail')"
            )
        for point in ("replace: begun", "replace: caught up", "replace: stopped"):
            with failing(point), pytest.raises(Exception, match=point):
                app.sql("CREATE OR REPLACE TABLE t AS SELECT id, n, k FROM e")
            app.send("e", ROWS[:1])
            app.drain()
            before = sorted([*before, (0, 0)])
            assert rows(app) == before, point
            assert not [n for n in runtime_of(app).catalog.names() if "$next" in n]
            assert not [n for n in runtime_of(app).journal.table_names() if "$next" in n]
    with App(sql, state=tmp_path, _direct=True) as app:
        assert rows(app) == before


def test_the_file_with_or_replace(tmp_path: Path) -> None:
    def sql(query: str) -> str:
        return f"{STREAM} CREATE OR REPLACE TABLE t AS {query};"

    for query in (QUERIES["groups"], QUERIES["rows"], QUERIES["groups"]):
        with App(sql(query), state=tmp_path, _direct=True) as app:
            app.send("e", ROWS[:4])
            app.drain()
            found, sent = rows(app), runtime_of(app).journal.stream_end("e")
            assert found == fresh(sql(query), ROWS[:4] * (sent // 4))
    with pytest.raises(UpgradeNeeded):
        App(f"{STREAM} CREATE TABLE t AS SELECT id FROM e;", state=tmp_path, _direct=True)


def test_others_work_while_it_is_built() -> None:
    sql = f"{STREAM} CREATE TABLE t AS {QUERIES['groups']}; CREATE TABLE x (id INT);"
    with App(sql, engine="process") as app:
        app.send("e", ROWS)
        app.drain()
        started, errors = threading.Event(), list[BaseException]()
        stop = threading.Event()

        def read() -> None:
            try:
                while not stop.is_set():
                    assert len(rows(app)) == 3
                    app.sql("INSERT INTO x VALUES (1)")
                    app.send("e", ROWS[:3])
                    started.set()
                    time.sleep(0.002)
            except BaseException as error:
                errors.append(error)
                started.set()

        thread = threading.Thread(target=read)
        thread.start()
        started.wait(20)
        for _ in range(3):
            app.sql("CREATE OR REPLACE TABLE t AS SELECT k, SUM(n) AS s FROM e GROUP BY k")
            app.sql(f"CREATE OR REPLACE TABLE t AS {QUERIES['groups']}")
        stop.set()
        thread.join()
        assert not errors, errors
        app.drain()
        (count,) = rows(app, "SELECT SUM(c) FROM t")
        assert count == (runtime_of(app).journal.stream_end("e"),)


@contextmanager
def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> Iterator[None]:
    """Does something in another thread while the first table is being built."""
    has_reached, threads = Shadows._has_reached, list[threading.Thread]()

    def reached(self: Shadows, *args: Any) -> bool:
        if not threads:
            threads.append(threading.Thread(target=act))
            threads[0].start()
        return not threads[0].is_alive() and has_reached(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Shadows, "_has_reached", reached)
        yield
    assert threads and not threads[0].is_alive()


@pytest.mark.parametrize(
    ("change", "query", "why"),
    [
        (
            "CREATE OR REPLACE VIEW v AS SELECT id, k FROM e WHERE n > 8",
            "SELECT COUNT(*) AS c FROM v",
            "changed",
        ),
        ("DROP VIEW w", "SELECT e.id, w.name FROM e JOIN w ON w.k = e.k", '"w" is not known'),
    ],
)
def test_a_view_changes_while_a_table_over_it_is_built(
    change: str, query: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = "CREATE VIEW v AS SELECT id, k FROM e WHERE n > 2; CREATE VIEW w AS SELECT k, name FROM d;"
    with App(f"{STREAM} {DIMENSION} {views} CREATE TABLE t AS SELECT id, n FROM e;", _direct=True) as app:
        app.send("e", ROWS)
        app.drain()
        before = rows(app)
        with meanwhile(monkeypatch, lambda: app.sql(change)), pytest.raises(Conflict, match=why):
            app.sql(f"CREATE OR REPLACE TABLE t AS {query}")
        app.send("e", [{"id": 100, "k": "a", "n": 9}])
        app.drain()
        assert rows(app) == [*before, (100, 9)]
        if "DROP" not in change:
            app.sql(f"CREATE OR REPLACE TABLE t AS {query}")
            assert rows(app, "SELECT c FROM t") == [(sum(r["n"] > 8 for r in ROWS) + 1,)]


def test_a_declared_table_gets_a_row_before_it_is_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    with App(f"{STREAM} CREATE TABLE t (id INT, n INT);", _direct=True) as app:
        table, tables_of = app.table("t"), Swaps._tables_of

        def insert_first(self: Swaps, *args: Any) -> list[str]:
            if not len(table):
                table.insert({"id": 99, "n": 99})
            return tables_of(self, *args)

        monkeypatch.setattr(Swaps, "_tables_of", insert_first)
        with pytest.raises(Conflict, match="got rows"):
            app.sql("CREATE OR REPLACE TABLE t AS SELECT id, n FROM e")
        table.insert({"id": 100, "n": 1})
        assert rows(app) == [(99, 99), (100, 1)]


def test_an_index_whose_column_is_spelled_in_another_way(tmp_path: Path) -> None:
    sql = f"{STREAM} CREATE TABLE t AS SELECT id, n FROM e; CREATE INDEX i ON t (n);"
    with App(sql, state=tmp_path, _direct=True) as app:
        app.send("e", ROWS[:5])
        app.drain()
        app.sql("CREATE OR REPLACE TABLE t AS SELECT ID, N, k FROM e")
        assert rows(app, "SELECT id FROM t WHERE n = 7") == [(1,)]
    with App(sql, state=tmp_path, _direct=True) as app:
        assert rows(app, "SELECT id FROM t WHERE n = 7") == [(1,)]
        app.sql("DROP INDEX i")


def test_names_of_tables_that_are_built() -> None:
    with pytest.raises(InvalidOption, match="cannot be the name"):
        App("CREATE TABLE `x$next$y` (id INT);", _direct=True)


def test_a_stream_gets_retention() -> None:
    with App(STREAM) as app:
        old_rows = runtime_of(app).old_rows
        assert old_rows._thread is None
        app.sql("CREATE OR REPLACE STREAM e (id INT, k STRING, n INT) WITH ('retention' = '1h')")
        assert old_rows._thread is not None
