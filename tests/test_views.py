"""Tables that follow queries over tables: equal to the query's answer after any changes, by parts or as a whole."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from millpond import App, faults
from millpond.errors import QueryFailed, SqlError
from millpond.plan.connectors import Connectors
from millpond.plan.view import find_parts
from millpond.query.transaction import Transaction
from millpond.sql.catalog import Catalog
from millpond.sql.check import Checker
from millpond.sql.checked import CheckedQuery
from millpond.sql.parse import parse
from millpond.testing.crash import crash

pytestmark = pytest.mark.slow

TABLES = """
CREATE TABLE a (id INT PRIMARY KEY, g STRING, n DECIMAL(10,2));
CREATE TABLE b (id BIGINT PRIMARY KEY, aid INT, g STRING);
CREATE TABLE log (g STRING, n INT);
"""

# query → the columns that divide it
QUERIES: dict[str, tuple[str, ...] | None] = {
    "SELECT id, g FROM a WHERE n > 2": ("id",),
    "SELECT upper(g) AS u, n FROM a": ("n",),
    "SELECT g, SUM(n) AS s, COUNT(*) AS c FROM a GROUP BY g": ("g",),
    "SELECT g, MAX(n) AS m FROM a GROUP BY g HAVING COUNT(*) > 1": ("g",),
    "SELECT DISTINCT g FROM log": ("g",),
    "SELECT g, n FROM log WHERE n > 1": ("g", "n"),
    "SELECT g, SUM(n) AS s FROM log GROUP BY g": ("g",),
    "SELECT a.id, a.g, b.g AS bg FROM a JOIN b ON a.id = b.aid": ("id",),
    "SELECT a.id, b.id AS bid FROM a LEFT JOIN b ON b.aid = a.id AND b.g = 'x'": ("id",),
    "SELECT b.aid, a.g FROM a LEFT JOIN b ON b.aid = a.id": None,
    "SELECT a.g, COUNT(*) AS c FROM a, b WHERE a.g = b.g GROUP BY a.g": ("g",),
    "SELECT a.id FROM a LEFT ANTI JOIN b ON a.id = b.aid": ("id",),
    "SELECT a.id FROM a RIGHT JOIN b ON a.id = b.aid": None,
    "SELECT x.g, x.s, b.id FROM (SELECT g, SUM(n) AS s FROM a GROUP BY g) x JOIN b ON x.g = b.g": ("g",),
    "SELECT g FROM a UNION ALL SELECT g FROM b": ("g",),
    "SELECT g FROM a EXCEPT SELECT g FROM b": ("g",),
    "SELECT a.id, a.n FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.aid = a.id)": None,
    "SELECT id, RANK() OVER (PARTITION BY g ORDER BY n) AS r FROM a": None,
    "SELECT id, n FROM a ORDER BY n DESC, id LIMIT 2": None,
    "SELECT COUNT(*) AS c, SUM(n) AS s FROM a": None,
    "WITH w AS (SELECT g FROM a) SELECT g, COUNT(*) AS c FROM w GROUP BY g": None,
}


@pytest.mark.parametrize("query", QUERIES)
def test_what_divides_a_view(query: str) -> None:
    parsed = parse(TABLES + f"CREATE TABLE v AS {query}")
    checker = Checker(Catalog(), Connectors(), locate=parsed.script.place)
    checked = [checker.check(s) for s in parsed.require()][-1]
    assert isinstance(checked, CheckedQuery) and checked.live, checker.errors
    parts = find_parts(checked.resolved)
    assert (parts and parts.columns) == QUERIES[query]


groups = st.sampled_from(["x", "y", "z", None])
numbers = st.integers(0, 5)
changes = st.one_of(
    st.tuples(st.just("a"), numbers, groups, numbers),
    st.tuples(st.just("b"), numbers, st.one_of(st.none(), numbers), groups),
    st.tuples(st.just("log"), groups, numbers),
    st.tuples(st.sampled_from(["-a", "-b", "-log"]), numbers),
    st.tuples(st.just("regroup"), groups, groups),
    st.just(("restart",)),
)


def apply(app: Transaction, change: tuple[Any, ...]) -> None:
    name, *values = change
    if name in ("a", "b"):
        app.sql(f"INSERT INTO {name} VALUES (?, ?, ?)", values)
    elif name == "log":
        app.sql("INSERT INTO log VALUES (?, ?)", values)
    elif name == "-log":
        app.sql("DELETE FROM log WHERE n = ?", values)
    elif name == "regroup":
        app.sql("UPDATE a SET g = ? WHERE g <=> ?", values)
    elif name != "restart":
        app.sql(f"DELETE FROM {name[1:]} WHERE id = ?", values)


def bag(app: App, sql: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r.values()) for r in app.sql(sql).rows())


SQL = TABLES + ";".join(f"CREATE TABLE v{i} AS {q}" for i, q in enumerate(QUERIES))


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.lists(changes, min_size=1, max_size=6), min_size=1, max_size=4))
def test_a_view_is_what_its_query_answers(steps: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    state = tmp_path_factory.mktemp("views")
    app = App(SQL, state=state)
    try:
        for step in steps:
            if ("restart",) in step:
                crash(app)
                app = App(SQL, state=state)
            with app.begin_transaction() as tx:
                for change in step:
                    apply(tx, change)
            app.drain()
            for i, query in enumerate(QUERIES):
                assert bag(app, f"SELECT * FROM v{i}") == bag(app, query), query
    finally:
        app.close()


def test_readers_see_each_commit_whole() -> None:
    """A view over two tables that change together never shows one without the other."""
    with App(
        "CREATE TABLE p (id INT PRIMARY KEY, x INT); CREATE TABLE q (id INT PRIMARY KEY, x INT);"
        "CREATE TABLE both AS SELECT p.id, p.x + q.x AS total FROM p JOIN q ON p.id = q.id;"
        "INSERT INTO p VALUES (1, 500); INSERT INTO q VALUES (1, 500)"
    ) as app:
        stop = threading.Event()
        seen: set[int] = set()

        def read() -> None:
            while not stop.is_set():
                seen.update(r["total"] for r in app.sql("SELECT total FROM both").rows())

        app.drain()
        reader = threading.Thread(target=read)
        reader.start()
        for n in range(60):
            with app.begin_transaction() as tx:
                tx.table("p").update({"id": 1}, {"x": 500 - n})
                tx.table("q").update({"id": 1}, {"x": 500 + n})
        app.drain()
        stop.set()
        reader.join()
        assert seen == {1000}


@pytest.mark.parametrize("key", ["x INT", "x DOUBLE"])
def test_a_key_that_is_there_twice_is_found_among_many(key: str) -> None:
    """Arrow finds that there is none among exact values; DuckDB finds the others, and which one it is."""
    with App(f"CREATE TABLE t (id INT PRIMARY KEY, {key}, s STRING)") as app:
        app.table("t").bulk_insert([{"id": n, "x": n, "s": str(n)} for n in range(3_000)])
        app.sql("CREATE TABLE v (PRIMARY KEY (x, s)) WITH ('refresh' = 'full') AS SELECT x, s FROM t")
        app.sql("INSERT INTO t VALUES (-1, 2999, 'another'), (-2, 3000, '2999')")
        app.drain()
        assert len(app.table("v")) == 3_002
        app.sql("INSERT INTO t VALUES (-3, 2999, '2999')")
        with pytest.raises(QueryFailed, match=r"several rows for the key x = 2999.*s = '2999'"):
            app.drain()
        app.sql("DELETE FROM t WHERE id = -3")
        app.drain()
        assert len(app.table("v")) == 3_002


def test_a_view_whose_key_is_not_unique_says_so() -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY, x INT); INSERT INTO t VALUES (1, 7), (2, 7)") as app:
        with pytest.raises(QueryFailed, match="several rows for the key x = 7"):
            app.sql("CREATE TABLE v (PRIMARY KEY (x)) AS SELECT x, id FROM t")
        assert app.tables() == ["t"]
        app.sql("DELETE FROM t WHERE id = 2; CREATE TABLE v (PRIMARY KEY (x)) AS SELECT x, id FROM t")
        app.sql("INSERT INTO t VALUES (2, 7)")
        with pytest.raises(QueryFailed, match="several rows"):
            app.drain()
        assert app.sql("SELECT * FROM v").rows() == [{"x": 7, "id": 1}]
        (query,) = app.sql("SHOW QUERIES").rows()
        assert query["state"] == "failed" and "several rows" in query["error"] and not app.ready()
        app.sql("UPDATE t SET x = 8 WHERE id = 2")
        app.drain()
        assert app.ready() and len(app.table("v").all_rows()) == 2


def test_a_view_that_could_not_be_stored_is_tried_again(tmp_path: Path) -> None:
    """Also if nothing else is committed after it."""

    def fail(point: str) -> None:
        if point == "journal: prepared" and threading.current_thread().name == "millpond-views":
            raise QueryFailed("the disk is full")

    def wait(query: str, expected: str) -> None:
        while expected not in str(app.sql(query).rows()):
            time.sleep(0.01)

    sql = "CREATE TABLE t (id INT PRIMARY KEY, x INT); CREATE TABLE v AS SELECT SUM(x) AS x FROM t"
    with App(sql, state=tmp_path / "s") as app:
        faults.on_reach(fail)
        try:
            app.sql("INSERT INTO t VALUES (1, 7)")
            wait("SHOW QUERIES", "the disk is full")
        finally:
            faults.on_reach(None)
        wait("SELECT x FROM v", "7")
        app.drain()
        assert app.ready()


def test_single_rows_reach_a_view() -> None:
    with App(
        "CREATE TABLE t (id INT PRIMARY KEY, x INT); CREATE TABLE v AS SELECT SUM(x) AS x FROM t;"
        "CREATE TABLE w (PRIMARY KEY (id)) AS SELECT id, x FROM t"
    ) as app:
        table = app.table("t")
        for n in range(5):
            table.insert({"id": n, "x": n})
        table.update("id = 1", {"x": 100})
        table.delete(id=2)
        app.drain()
        assert app.sql("SELECT * FROM v").rows() == [{"x": 107}]
        assert sorted(r["x"] for r in app.table("w").all_rows()) == [0, 3, 4, 100]


def test_a_view_of_a_view_that_becomes_empty() -> None:
    with App(
        "CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE v AS SELECT id FROM t;"
        "CREATE TABLE w AS SELECT COUNT(*) AS n FROM v; INSERT INTO t VALUES (1), (2)"
    ) as app:
        app.drain()
        assert app.sql("SELECT n FROM w").rows() == [{"n": 2}]
        app.sql("TRUNCATE TABLE t")
        app.drain()
        assert app.sql("SELECT n FROM w").rows() == [{"n": 0}]


def test_a_view_over_a_table_of_a_database(tmp_path: Path) -> None:
    with App(
        "CREATE TABLE t (id INT PRIMARY KEY, g STRING) WITH ('extension' = 'sqlite');"
        "CREATE TABLE v AS SELECT g, COUNT(*) AS n FROM t GROUP BY g",
        state=tmp_path / "s",
    ) as app:
        app.sql("INSERT INTO t VALUES (1, 'a'), (2, 'a'), (3, 'b')")
        app.drain()
        app.sql("UPDATE t SET g = 'b' WHERE id < 3")
        app.drain()
        assert app.sql("SELECT * FROM v").rows() == [{"g": "b", "n": 3}]


def test_nobody_else_changes_a_view(tmp_path: Path) -> None:
    sql = "CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE v AS SELECT id FROM t"
    for _ in range(2):  # also after a restart
        with App(sql, state=tmp_path / "s") as app:
            for write in (
                lambda: app.table("v").insert({"id": 1}),
                lambda: app.table("v").delete("id > 0"),
                lambda: app.sql("MERGE INTO v USING t ON v.id = t.id WHEN MATCHED THEN DELETE"),
            ):
                with pytest.raises(SqlError, match="follows its query"):
                    write()
            with pytest.raises(SqlError, match="follows its query"), app.begin_transaction() as tx:
                tx.table("v").insert({"id": 1})
