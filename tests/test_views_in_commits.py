"""Views that change in the commit that changes their inputs: no reader sees one without the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from millpond import App, faults
from millpond.changes import ROW, Changes
from millpond.clock import ManualClock
from millpond.errors import CheckFailed, Error, InUse, QueryFailed, SqlError
from millpond.query.later import Later
from millpond.query.transaction import Transaction
from millpond.tables.memory import MemoryTable
from millpond.types import Column, Schema
from tests.random_views import TABLES, Views, bag, change

IN_COMMIT = "WITH ('consistency' = 'commit')"


def edit(app: App, random: Random) -> None:
    """Changes one row by the methods of a table."""
    table = app.table("a")
    key = random.randrange(12)
    match random.randrange(4):
        case 0 | 1:
            table.insert({"id": key, "k": random.randrange(3), "g": random.choice("xyz"), "n": key, "f": 1.5})
        case 2:
            table.update(id=key, changes={"k": random.randrange(3)})
        case _:
            table.delete(key)


class Reader(threading.Thread):
    """Compares views with their queries, as of one commit each time, until it is stopped."""

    def __init__(self, app: App, queries: list[str]):
        super().__init__()
        self._app, self._queries = app, queries
        self._ended = threading.Event()
        self.looks = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self._ended.is_set():
            with self._app.begin_transaction() as tx:
                for i, query in enumerate(self._queries):
                    if bag(tx, f"SELECT * FROM v{i}") != bag(tx, query):  # type: ignore[arg-type]
                        self.wrong.append(query)
            self.looks += 1

    def end(self) -> None:
        self._ended.set()
        self.join()


def follow(seed: int, views: int, changes: int) -> tuple[int, int]:
    """Makes random views and changes; returns how often both were compared meanwhile, and the rounds by changes."""
    random = Random(seed)
    with App(TABLES) as app:
        queries: list[str] = []
        while len(queries) < views:
            query = Views(random).query()
            try:
                app.sql(f"CREATE TABLE v{len(queries)} AS {query} {IN_COMMIT}")
            except SqlError as error:
                assert "'consistency' = 'commit'" in str(error)
                continue
            queries.append(query)
        reader = Reader(app, queries)
        reader.start()
        try:
            for step in range(changes):
                match random.randrange(8):
                    case 0:
                        app.sql(f"TRUNCATE TABLE {random.choice(('a', 'b', 'log'))}")
                    case 1 | 2:
                        with app.begin_transaction() as tx:
                            for _ in range(random.randint(1, 4)):
                                change(tx, random)
                    case 3 | 4 | 5:
                        edit(app, random)
                    case _:
                        change(app, random)
                for i, query in enumerate(queries):
                    assert bag(app, f"SELECT * FROM v{i}") == bag(app, query), (seed, step, query)
        finally:
            reader.end()
        assert not reader.wrong
        return reader.looks, sum(v.by_changes.rounds for v in app._runtime.views)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_every_reader_sees_views_and_tables_of_one_commit(seed: int) -> None:
    looks, rounds = follow(seed, views=4, changes=15)
    assert looks and rounds


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(100, 140))
def test_every_reader_of_many_views(seed: int) -> None:
    follow(seed, views=8, changes=60)


SQL = f"""
CREATE STREAM s (id INT, n INT);
CREATE TABLE a (id INT PRIMARY KEY, g STRING, n INT);
CREATE TABLE log (g STRING, n INT);
INSERT INTO a VALUES (1, 'x', 1), (2, 'y', 2);
INSERT INTO log VALUES ('x', 1), ('x', 1), ('y', 2);
CREATE TABLE totals AS SELECT g, SUM(n) AS s, COUNT(*) AS c FROM a GROUP BY g {IN_COMMIT};
CREATE TABLE shares AS SELECT a.id, 10 DIV a.n AS share FROM a {IN_COMMIT};
CREATE TABLE rest AS SELECT g, 10 DIV n AS share FROM log {IN_COMMIT};
CREATE TABLE above AS SELECT COUNT(*) AS groups, SUM(s) AS s FROM totals {IN_COMMIT};
CREATE TABLE after AS SELECT COUNT(*) AS n FROM above;
INSERT INTO a SELECT id, 's' AS g, n FROM s;
"""
QUERIES = {
    "totals": "SELECT g, SUM(n) AS s, COUNT(*) AS c FROM a GROUP BY g",
    "shares": "SELECT id, 10 DIV n AS share FROM a",
    "rest": "SELECT g, 10 DIV n AS share FROM log",
    "above": "SELECT COUNT(DISTINCT coalesce(g, '')) AS groups, SUM(n) AS s FROM a",
}


def check(app: App | Transaction) -> None:
    for name, query in QUERIES.items():
        assert bag(app, f"SELECT * FROM {name}") == bag(app, query), name  # type: ignore[arg-type]


def transaction(app: App, n: int) -> None:
    with app.begin_transaction() as tx:
        tx.table("a").insert({"id": 3, "g": "z", "n": n})
        tx.table("log").insert({"g": "z", "n": n})
        tx.sql("DELETE FROM a WHERE id = 1")


def sent(app: App, n: int) -> None:
    app.send("s", [{"id": 4, "n": n}, {"id": 4, "n": 5}, {"id": 5, "n": 5}])
    app.drain()


WAYS: dict[str, Callable[[App, int], object]] = {
    "insert": lambda app, n: app.sql("INSERT INTO a VALUES (3, 'z', ?)", [n]),
    "insert twice": lambda app, n: app.sql("INSERT INTO a VALUES (3, 'z', 7), (1, 'q', 3), (3, 'y', ?)", [n]),
    "update": lambda app, n: app.sql("UPDATE a SET n = ?, g = 'x'", [n]),
    "delete": lambda app, n: app.sql("BEGIN; DELETE FROM a WHERE id = 1; UPDATE a SET n = ?; COMMIT", [n]),
    "merge": lambda app, n: app.sql(
        "MERGE INTO a USING (SELECT 1 AS id) b ON a.id = b.id WHEN MATCHED THEN UPDATE SET n = ?", [n]
    ),
    "insert without a key": lambda app, n: app.sql("INSERT INTO log VALUES ('y', ?), ('x', 1)", [n]),
    "update without a key": lambda app, n: app.sql("UPDATE log SET n = ? WHERE g = 'x'", [n]),
    "row": lambda app, n: app.table("a").insert({"id": 3, "g": "z", "n": n}),
    "row without a key": lambda app, n: app.table("log").insert({"g": "z", "n": n}),
    "row update": lambda app, n: app.table("a").update(id=1, changes={"n": n}),
    "bulk": lambda app, n: app.table("a").bulk_insert([{"id": 3, "g": "x", "n": 1}, {"id": 4, "n": n}]),
    "transaction": transaction,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_change_and_its_views_are_one_commit(way: str) -> None:
    with App(SQL, _direct=True) as app:
        before = {name: bag(app, f"SELECT * FROM {name}") for name in ("a", "log", *QUERIES)}
        commits = app._runtime.journal.last_commit()
        with pytest.raises(QueryFailed, match=r'table "(shares|rest)" changes in the same commit.*zero'):
            WAYS[way](app, 0)
        assert {name: bag(app, f"SELECT * FROM {name}") for name in before} == before
        for n in (5, 2):
            WAYS[way](app, n)
            check(app)
        assert app._runtime.journal.last_commit() <= commits + 4
        app.drain()
        assert app.sql("SELECT * FROM after").rows() == [{"n": 1}]


def test_threads_edit_rows_and_only_a_wrong_one_is_refused() -> None:
    with App(SQL, _direct=True) as app:
        refused: list[int] = []

        def work(first: int) -> None:
            for i in range(first, first + 40):
                try:
                    app.table("a").insert({"id": i, "g": "t", "n": i % 10})
                except QueryFailed:
                    refused.append(i)

        threads = [threading.Thread(target=work, args=(1000 * t,)) for t in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 16 and all(i % 10 == 0 for i in refused)
        assert len(app.table("a")) == 2 + 144
        check(app)


def test_a_row_of_a_stream_that_a_view_refuses_becomes_an_error_record() -> None:
    with App(SQL, _direct=True) as app:
        sent(app, 3)
        check(app)
        app.send("s", [{"id": 6, "n": 1}, {"id": 7, "n": 0}, {"id": 8, "n": 2}])
        app.drain()
        check(app)
        assert {r["id"] for r in app.table("a")} == {1, 2, 4, 5, 6, 8}
        name = next(r.name for r in app._runtime.catalog if r.name.endswith("$errors"))
        (record,) = app.table(name).all_rows()
        assert 'table "shares" changes in the same commit' in record["reason"]


def test_rows_that_expire_leave_in_one_commit_with_the_views() -> None:
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    clock = ManualClock(begin)
    sql = f"""
    CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP) WITH ('ttl' = '1h', 'ttl.column' = 'at');
    CREATE TABLE n AS SELECT COUNT(*) AS n, SUM(id) AS s FROM t {IN_COMMIT};
    """
    with App(sql, _clock=clock, _direct=True) as app:
        app.table("t").bulk_insert([{"id": i, "at": begin + timedelta(minutes=i)} for i in range(60)])
        clock.advance(90 * 60)
        app._runtime.old_rows.remove()
        assert (
            app.sql("SELECT * FROM n").rows() == app.sql("SELECT COUNT(*) AS n, SUM(id) AS s FROM t").rows()
        )
        assert app.sql("SELECT n FROM n").rows() == [{"n": 30}]


def test_a_file_that_grows(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_text("id,n\n1,2\n2,5\n")
    sql = f"""
    CREATE TABLE f (PRIMARY KEY (id)) AS SELECT id, n FROM `file://{file}` WITH ('watch.interval' = '50ms');
    CREATE TABLE n AS SELECT COUNT(*) AS n, SUM(n) AS s FROM f {IN_COMMIT};
    """
    with App(sql) as app:
        assert app.sql("SELECT * FROM n").rows() == [{"n": 2, "s": 7}]
        file.write_text("id,n\n1,2\n2,6\n3,7\n")
        app.drain()
        assert app.sql("SELECT * FROM n").rows() == [{"n": 3, "s": 15}]


def test_a_paused_view_stays_as_it_was_and_is_equal_when_it_goes_on() -> None:
    with App(SQL, _direct=True) as app:
        app.sql("PAUSE QUERY shares")
        app.sql("INSERT INTO a VALUES (3, 'z', 0)")
        assert bag(app, "SELECT id FROM shares") == {(1,): 1, (2,): 1}
        app.sql("UPDATE a SET n = 4 WHERE id = 3")
        app.sql("RESUME QUERY shares")
        check(app)
        app.sql("DROP TABLE shares")
        app.sql("INSERT INTO a VALUES (3, 'z', 0)")
        assert app.sql("SELECT s FROM totals WHERE g = 'z'").rows() == [{"s": 0}]


def test_an_input_gets_other_columns() -> None:
    with App(SQL + f"CREATE TABLE every AS SELECT * FROM log {IN_COMMIT}", _direct=True) as app:
        app.sql("ALTER TABLE a ADD COLUMN more INT DEFAULT 7")
        app.sql("UPDATE a SET n = more WHERE id = 1")
        check(app)
        with pytest.raises(InUse, match='used by table "every", which changes in the same commit'):
            app.sql("ALTER TABLE log ADD COLUMN more INT DEFAULT 7")
        with pytest.raises(InUse):
            app.sql("ALTER TABLE a DROP COLUMN n")
        app.sql("DROP TABLE every; ALTER TABLE log ADD COLUMN more INT; INSERT INTO log VALUES ('q', 3, 4)")
        check(app)


def test_an_input_and_a_view_are_replaced() -> None:
    sql = f"""
    CREATE TABLE a (id INT PRIMARY KEY, n INT);
    CREATE TABLE m AS SELECT id, n FROM a {IN_COMMIT};
    CREATE TABLE v AS SELECT COUNT(*) AS c, SUM(n) AS s FROM m {IN_COMMIT};
    """
    with App(sql, _direct=True) as app:
        app.sql("INSERT INTO a VALUES (1, 1), (2, 2)")
        app.sql(f"CREATE OR REPLACE TABLE m AS SELECT id, n * 10 AS n FROM a {IN_COMMIT}")
        assert app.sql("SELECT * FROM v").rows() == [{"c": 2, "s": 30}]
        app.table("a").insert({"id": 3, "n": 3})
        assert app.sql("SELECT * FROM v").rows() == [{"c": 3, "s": 60}]
        app.sql(f"CREATE OR REPLACE TABLE v AS SELECT COUNT(*) AS c, MAX(n) AS s FROM m {IN_COMMIT}")
        app.table("a").insert({"id": 4, "n": 4})
        assert app.sql("SELECT * FROM v").rows() == [{"c": 4, "s": 40}]


def test_a_thread_that_must_not_wait_leaves_views_to_others() -> None:
    with App(SQL, _direct=True) as app:
        home = app.table("a")._writer.now  # type: ignore[attr-defined]
        assert home.put({"id": 3, "g": "z", "n": 3}, False) is None
        assert len(app.table("a")) == 2


def test_those_who_watch_tables_get_both_with_one_commit() -> None:
    class Seen:
        def __init__(self) -> None:
            self.commits: list[int] = []

        def committed(self, change: Changes) -> None:
            self.commits.append(app._runtime.store.backend("a").last_commit)

        def lost(self, why: str) -> None:
            raise AssertionError(why)

    with App(SQL, _direct=True) as app:
        seen = {name: Seen() for name in ("a", "totals", "above")}
        for name, watcher in seen.items():
            app._runtime.store.watch(name, watcher)
        app.sql("UPDATE a SET n = n + 1")
        app.table("a").insert({"id": 9, "g": "n", "n": 9})
        assert len(seen["a"].commits) == 2
        assert seen["a"].commits == seen["totals"].commits == seen["above"].commits


def test_what_cannot_change_in_the_same_commit_is_refused(tmp_path: Path) -> None:
    sqlite = f"'extension' = 'sqlite', 'path' = '{tmp_path}/d.db'"
    kept = "SELECT COUNT(*) AS n FROM a"
    refused = {
        "CREATE TABLE t AS SELECT n, (SELECT MAX(n) FROM a) - n AS m FROM a ORDER BY rand() ": "rand",
        f"CREATE TABLE t AS {kept}; CREATE TABLE u (id INT) WITH ('consistency' = 'commit')": "follows tables",
        "CREATE TABLE t AS SELECT id FROM s WITH ('consistency' = 'commit')": "follows tables",
        f"CREATE TABLE t AS {kept} WITH ('consistency' = 'commit', 'refresh' = 'full')": "'refresh' = 'full'",
        f"CREATE TABLE t AS {kept} WITH ('consistency' = 'commit', 'refresh' = 'once')": "follows tables",
        "CREATE TABLE t AS SELECT CORR(n, n) AS n FROM a WITH ('consistency' = 'commit')": "recomputed",
        f"CREATE TABLE t AS SELECT COUNT(*) AS n FROM d {IN_COMMIT}": 'table "d" is stored in',
        f"CREATE TABLE t AS {kept} WITH ('consistency' = 'commit', {sqlite})": 'table "t" is stored in',
        f"CREATE TABLE t AS {kept} WITH ('consistency' = 'sometimes')": "consistency",
    }
    tables = (
        f"CREATE STREAM s (id INT); CREATE TABLE a (id INT, n INT); CREATE TABLE d (id INT) WITH ({sqlite})"
    )
    with App(tables, state=tmp_path / "s", _direct=True) as app:
        for sql, why in refused.items():
            with pytest.raises((SqlError, CheckFailed)) as raised:
                app.sql(sql)
            assert why in str(raised.value), sql
            assert raised.value.place is not None


def test_explain_says_that_writers_wait() -> None:
    with App(SQL, _direct=True) as app:
        lines = app.sql(f"EXPLAIN CREATE TABLE t AS SELECT COUNT(*) AS n FROM a {IN_COMMIT}").to_arrow()[
            "plan"
        ]
        assert (
            "changes in the same commit as its inputs: whoever writes to a waits for it" in lines.to_pylist()
        )
        app.sql("UPDATE a SET n = n + 1")
        lines = app.sql("EXPLAIN ANALYZE UPDATE a SET n = n + 1").to_arrow()["plan"]
        assert any("change views in the same commit" in str(line) for line in lines.to_pylist())


def test_a_commit_that_fails_after_its_views_leaves_them_as_they_were(tmp_path: Path) -> None:
    with App(SQL, state=tmp_path, _direct=True) as app:
        for point in ("commit: views found", "journal: prepared"):

            def reached(name: str, point: str = point) -> None:
                if name == point:
                    raise MemoryError

            faults.on_reach(reached)
            try:
                with pytest.raises((MemoryError, Error)):
                    app.sql("INSERT INTO a SELECT id + 100, g, n + 1 FROM a")
            finally:
                faults.on_reach(None)
            check(app)
            app.sql("UPDATE a SET n = n + 1")
            check(app)
    with App(state=tmp_path, _read_only=True) as app:
        check(app)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_table_as_it_will_be(keyed: bool) -> None:
    random = Random(3)
    schema = Schema((Column("k", pa.int64()), Column("x", pa.int64())), ("k",) if keyed else ())
    for _ in range(40):
        table = MemoryTable(schema)
        table.apply(Changes(pa.table({"k": [1, 2, 3, 4], "x": [1, 2, 3, None]})))
        count = random.randint(1, 5)
        rows = pa.table(
            {
                "k": pa.array([random.randint(1, 6) for _ in range(count)], pa.int64()),
                "x": pa.array(range(10, 10 + count), pa.int64()),
            }
        )
        deleted = [random.random() < 0.4 for _ in range(count)]
        if not keyed:
            numbers = [random.choice((None, 0, 1, 2)) for _ in range(count)]
            deleted = [d and n is not None for d, n in zip(deleted, numbers, strict=True)]
            rows = rows.append_column(ROW, pa.array(numbers, pa.int64()))
        change = table.check(Changes(rows, pa.array(deleted, pa.bool_()) if any(deleted) else None))
        before = table.snapshot()
        later = Later(before, change)
        table.apply(change)
        now = table.snapshot()

        def shown(rows: pa.Table) -> list[str]:
            return sorted(map(repr, rows.select(["k", "x"]).to_pylist()))

        assert shown(later.scan()) == shown(now.scan()) and len(later) == len(now)
        keys = pa.table({"k": pa.array([1, 3, 5], pa.int64())})
        assert shown(later.get(["k"], keys)) == shown(now.get(["k"], keys))
        gone, came = later.difference
        left = shown(before.scan())
        for row in shown(gone):
            left.remove(row)
        assert sorted(left + shown(came)) == shown(now.scan())


def test_a_view_whose_query_fails_stays_paused() -> None:
    sql = f"""CREATE TABLE a (id INT PRIMARY KEY, n INT);
    CREATE TABLE v {IN_COMMIT} AS SELECT id, 10 DIV n AS q FROM a;
    CREATE TABLE w {IN_COMMIT} AS SELECT SUM(q) AS s FROM v;"""
    with App(sql, engine="process") as app:
        app.sql("INSERT INTO a VALUES (1, 1)")
        app.sql("PAUSE QUERY v")
        app.sql("INSERT INTO a VALUES (2, 0)")
        for statement in ("RESUME QUERY v", "RESUME QUERY v"):
            with pytest.raises(Error, match=r"(?i)division by zero"):
                app.sql(statement)
            shown = [r for r in app.sql("SHOW QUERIES").rows() if "DIV" in r["statement"]]
            assert [(r["state"].lower(), r["error"]) for r in shown] == [("paused", None)]
        app.sql("INSERT INTO a VALUES (3, 5)")
        assert bag(app, "SELECT * FROM v") == bag(app, "SELECT 1 AS id, 10L AS q")
        app.sql("UPDATE a SET n = 2 WHERE id = 2")
        app.sql("RESUME QUERY v")
        assert bag(app, "SELECT * FROM v") == bag(app, "SELECT id, 10 DIV n AS q FROM a")
        assert app.sql("SELECT s FROM w").rows() == [{"s": 17}]
        with pytest.raises(QueryFailed):
            app.sql("INSERT INTO a VALUES (4, 0)")


def test_two_rows_of_a_subquery_are_refused_though_nobody_reads_them() -> None:
    query = "SELECT a.id FROM a WHERE a.k = (SELECT b.x FROM b WHERE b.k = 9)"
    sql = "CREATE TABLE a (id INT PRIMARY KEY, k INT); CREATE TABLE b (id INT PRIMARY KEY, k INT, x INT);"
    with App(f"{sql} CREATE TABLE v {IN_COMMIT} AS {query};", engine="process") as app:
        app.sql("INSERT INTO b VALUES (1, 9, 1), (2, 8, 2)")
        for change in ("INSERT INTO b VALUES (3, 9, 1)", "UPDATE b SET k = 9"):
            with pytest.raises(QueryFailed, match="more than one row"):
                app.sql(change)
        app.sql("INSERT INTO a VALUES (1, 1)")
        assert app.sql("SELECT * FROM v").rows() == [{"id": 1}]


def test_a_refused_commit_leaves_the_state_of_the_views_that_it_reached(tmp_path: Path) -> None:
    with App(SQL, state=tmp_path, _direct=True) as app:
        views = {view.plan.target.name: view for view in app._runtime.views}
        app.sql("UPDATE a SET n = n + 1")
        for n in range(3):
            before = {name: view.by_changes.rounds for name, view in views.items()}
            with pytest.raises(QueryFailed):
                app.sql(f"INSERT INTO a VALUES ({n + 10}, 'z', 0)")
            assert views["totals"].by_changes.loaded
            check(app)
            app.sql(f"INSERT INTO a VALUES ({n + 20}, 'z', {n + 1})")
            check(app)
            after = {name: view.by_changes.rounds for name, view in views.items()}
            assert after["totals"] == before["totals"] + 2
            assert after["shares"] == before["shares"] + 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_operators_take_refused_changes_back(seed: int) -> None:
    """A change that is only tried leaves random views equal to their queries, and their operators at work."""
    random = Random(seed)
    with App(TABLES) as app:
        queries: list[str] = []
        while len(queries) < 5:
            query = Views(random).query()
            try:
                app.sql(f"CREATE TABLE v{len(queries)} AS {query} {IN_COMMIT}")
            except SqlError:
                continue
            queries.append(query)

        def reached(name: str) -> None:
            if name == "commit: views found":
                raise MemoryError

        for step in range(12):
            if random.random() < 0.5:
                faults.on_reach(reached)
                try:
                    change(app, random)
                except (MemoryError, Error):
                    pass
                finally:
                    faults.on_reach(None)
            change(app, random)
            for i, query in enumerate(queries):
                assert bag(app, f"SELECT * FROM v{i}") == bag(app, query), (seed, step, query)
        kept = [view.by_changes for view in app._runtime.views]
        assert sum(k.rounds for k in kept) > 12


def test_drain_returns_after_a_commit_that_a_view_has_refused() -> None:
    with App("CREATE TABLE a (id INT PRIMARY KEY, n INT)", _direct=True) as app:
        app.sql(f"CREATE TABLE t AS SELECT id, 100 / n AS x FROM a {IN_COMMIT}")
        app.sql("INSERT INTO a VALUES (1, 1)")
        with pytest.raises(Error, match="zero"):
            app.sql("INSERT INTO a VALUES (3, 0)")
        app.drain(timeout=20)
        app.sql("INSERT INTO a VALUES (2, 50)")
        assert app.sql("SELECT * FROM t ORDER BY id").rows() == [{"id": 1, "x": 100.0}, {"id": 2, "x": 2.0}]
