"""Views at the start of an app: those that nothing has changed since it was closed are not evaluated again."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from random import Random

import pytest

from millpond import App, faults
from millpond.testing.crash import crash
from millpond.views import materialized_view
from millpond.views.equal_views import EQUAL_VIEWS
from millpond.views.live_view import LiveView
from tests.random_views import TABLES, Views, bag, change

SQL = """
CREATE TABLE a (id INT PRIMARY KEY, g STRING, n INT);
CREATE TABLE totals AS SELECT g, SUM(n) AS s FROM a GROUP BY g;
CREATE TABLE few AS SELECT g, s FROM totals WHERE s < 10;
CREATE TABLE same AS SELECT g, COUNT(*) AS c FROM a GROUP BY g WITH ('consistency' = 'commit');
"""


def views(app: App) -> dict[str, LiveView]:
    return {view.plan.target.name: view for view in app._runtime.views}


def rounds(app: App) -> list[int]:
    return [view.rounds for view in app._runtime.views]


def check(app: App) -> None:
    app.drain()
    assert bag(app, "SELECT * FROM totals") == bag(app, "SELECT g, SUM(n) AS s FROM a GROUP BY g")
    assert bag(app, "SELECT * FROM few") == bag(app, "SELECT g, s FROM totals WHERE s < 10")
    assert bag(app, "SELECT * FROM same") == bag(app, "SELECT g, COUNT(*) AS c FROM a GROUP BY g")


def test_views_that_nothing_has_changed_are_not_evaluated(tmp_path: Path) -> None:
    with App(SQL, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO a VALUES (1, 'x', 1), (2, 'y', 2)")
        check(app)
    for n in range(3, 6):
        with App(SQL, state=tmp_path, _direct=True) as app:
            assert rounds(app) == [0, 0, 0]
            check(app)
            app.sql(f"INSERT INTO a VALUES ({n}, 'x', {n})")
            check(app)
            assert [v.by_changes.rounds for v in app._runtime.views] == [1, 1, 1]


@pytest.fixture
def never_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(materialized_view, "_QUIET", 3_600)


@pytest.mark.usefixtures("never_quiet")
def test_after_a_kill_those_are_evaluated_that_may_have_changed(tmp_path: Path) -> None:
    with App(SQL, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO a VALUES (1, 'x', 1), (2, 'y', 2)")
        app.drain()
    for n in (3, 4):
        app = App(SQL, state=tmp_path, _direct=True)
        assert rounds(app) == [0, 0, 0]
        app.sql(f"INSERT INTO a VALUES ({n}, 'x', {n})")
        crash(app)
        with App(SQL, state=tmp_path, _direct=True) as app:
            assert rounds(app) == [1, 1, 1]
            check(app)


def test_what_was_recorded_without_a_later_commit_is_believed_after_a_kill(tmp_path: Path) -> None:
    app = App(SQL, state=tmp_path, _direct=True)
    app.sql("INSERT INTO a VALUES (1, 'x', 1), (2, 'y', 2)")
    app.drain()
    assert app._runtime.views.record_equal()
    for n in range(3, 6):
        crash(app)
        app = App(SQL, state=tmp_path, _direct=True)
        assert rounds(app) == [0, 0, 0]
        check(app)
        app.sql(f"INSERT INTO a VALUES ({n}, 'x', {n})")
        check(app)
        assert app._runtime.views.record_equal()
    app.close()


def test_it_is_recorded_when_no_change_comes(tmp_path: Path) -> None:
    app = App(SQL, state=tmp_path, _direct=True)
    app.sql("INSERT INTO a VALUES (1, 'x', 1)")
    app.drain()
    deadline, journal = time.monotonic() + 60, app._runtime.journal
    while not any(
        e.kind == EQUAL_VIEWS and len(e.data["views"]) == 3 and e.data["commit"] == journal.last_commit()
        for e in journal.entries()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    crash(app)
    with App(SQL, state=tmp_path, _direct=True) as app:
        assert rounds(app) == [0, 0, 0]
        check(app)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE OR REPLACE TABLE a (id INT PRIMARY KEY, g STRING, n INT, m INT)",
        "CREATE OR REPLACE TABLE totals AS SELECT g, SUM(n) + 1 AS s FROM a GROUP BY g",
        "ALTER TABLE a ADD COLUMN m INT",
        "CREATE TABLE other (id INT)",
    ],
)
@pytest.mark.usefixtures("never_quiet")
def test_a_change_of_the_catalog_removes_what_was_recorded(statement: str, tmp_path: Path) -> None:
    """A kill may come right after it, before views have followed."""
    app = App(SQL, state=tmp_path, _direct=True)
    app.sql("INSERT INTO a VALUES (1, 'x', 1)")
    app.drain()
    assert app._runtime.views.record_equal()
    journal, after = app._runtime.journal, []

    def revised() -> None:
        found = [e for e in journal.entries() if e.kind == EQUAL_VIEWS]
        after.append(bool(found) and found[0].data["commit"] == journal.last_commit())

    revise, alter = journal.revise, journal.alter
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(journal, "revise", lambda revision: (revise(revision), revised()))
        patched.setattr(journal, "alter", lambda *args, **named: (alter(*args, **named), revised()))
        app.sql(statement)
    assert after and not any(after)
    crash(app)


def test_the_first_change_after_a_start_reads_rows_and_the_next_use_an_index(tmp_path: Path) -> None:
    sql = "CREATE TABLE a (id INT PRIMARY KEY, n INT); CREATE TABLE v AS SELECT n, n % 3 AS r FROM a WHERE n > 0"
    query = "SELECT n, n % 3 AS r FROM a WHERE n > 0"
    with App(sql, state=tmp_path, _direct=True) as app:
        app.table("a").bulk_insert([{"id": i, "n": i % 50 or None} for i in range(500)])
        app.drain()
    with App(sql, state=tmp_path, _direct=True) as app:
        (view,) = app._runtime.views
        for n in range(3):
            app.sql(f"UPDATE a SET n = {n} WHERE id % 7 = {n}")
            app.sql(f"DELETE FROM a WHERE id = {n * 20 + 5}")
            app.drain()
            assert bag(app, "SELECT * FROM v") == bag(app, query)
        assert view.by_changes.rounds


def test_what_may_have_changed_is_evaluated(tmp_path: Path) -> None:
    sql = SQL + (
        "CREATE TABLE lost (id INT PRIMARY KEY, n INT) WITH ('durability' = 'none');"
        "CREATE TABLE held AS SELECT COUNT(*) AS c FROM a;"
        "CREATE TABLE over AS SELECT COUNT(*) AS c FROM lost;"
    )
    with App(sql, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO a VALUES (1, 'x', 1)")
        app.sql("INSERT INTO lost VALUES (1, 1)")
        app.drain()
        app.sql("PAUSE QUERY held")
        app.sql("INSERT INTO a VALUES (2, 'x', 1)")
        app.drain()
    with App(sql, state=tmp_path, _direct=True) as app:
        assert {name: view.rounds for name, view in views(app).items()} == {
            **{"totals": 0, "few": 0, "same": 0},
            **{"held": 0, "over": 1},
        }
        assert app.sql("SELECT c FROM over").rows() == [{"c": 0}]
        app.sql("RESUME QUERY held")
        app.drain()
        assert app.sql("SELECT c FROM held").rows() == [{"c": 2}]
        check(app)


def follow(seed: int, folder: Path, starts: int) -> None:
    """Ends an app in order or as a kill would, again and again, and compares random views with their queries."""
    random = Random(seed)
    queries = [Views(random).query() for _ in range(5)]
    sql = TABLES + ";".join(f"CREATE TABLE v{i} AS {query}" for i, query in enumerate(queries))
    for start in range(starts):
        app = App(sql, state=folder, _direct=True)
        for _ in range(3):
            app.drain()
            for i, query in enumerate(queries):
                assert bag(app, f"SELECT * FROM v{i}") == bag(app, query), (seed, start, query)
            change(app, random)
        if random.random() < 0.5:
            app.drain()
        crash(app) if random.random() < 0.3 else app.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_random_views_after_starts(seed: int, tmp_path: Path) -> None:
    follow(seed, tmp_path, starts=4)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_random_views_after_starts(seed: int, tmp_path: Path) -> None:
    follow(seed, tmp_path, starts=10)


def test_functions_of_the_program_may_be_others(tmp_path: Path) -> None:
    sql = """
        CREATE TABLE a (id INT PRIMARY KEY, n INT);
        CREATE VIEW w AS SELECT id, times(n) AS m FROM a;
        CREATE TABLE t AS SELECT id, times(n) AS m FROM a;
        CREATE TABLE u AS SELECT SUM(m) AS s FROM w;
    """
    for by in (2, 3):

        def times(n: int, by: int = by) -> int:
            return by * n

        def function(n: int) -> int:
            return times(n)

        function.__name__ = "times"
        with App(sql, state=tmp_path, functions=[function], _direct=True) as app:
            if by == 2:
                app.sql("INSERT INTO a VALUES (1, 1), (2, 2)")
            app.drain()
            assert bag(app, "SELECT m FROM t") == bag(app, f"SELECT n * {by} AS m FROM a")
            assert bag(app, "SELECT s FROM u") == bag(app, f"SELECT SUM(n * {by}) AS s FROM a")


def test_a_commit_beside_the_end_is_seen_by_the_next_start(tmp_path: Path) -> None:
    app = App(SQL, state=tmp_path, _direct=True)
    app.sql("INSERT INTO a VALUES (1, 'x', 1), (2, 'y', 2)")
    app.drain()
    inside, go_on = threading.Event(), threading.Event()

    def work() -> None:
        app.sql("INSERT INTO a VALUES (3, 'z', 30)")

    thread = threading.Thread(target=work)

    def reached(point: str) -> None:
        if point == "commit: journalled" and threading.current_thread() is thread:
            inside.set()
            go_on.wait(20)

    faults.on_reach(reached)
    try:
        thread.start()
        assert inside.wait(20)
        threading.Timer(0.3, go_on.set).start()
        app.close()
        thread.join()
    finally:
        go_on.set()
        faults.on_reach(None)
    with App(SQL, state=tmp_path, _direct=True) as app:
        assert bag(app, "SELECT COUNT(*) AS c FROM a") == bag(app, "SELECT 3 AS c")
        check(app)
