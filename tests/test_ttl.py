"""'ttl' of tables: rows leave by ordinary commits, on every backend, and what follows the table follows."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from millpond import App
from millpond.clock import ManualClock
from millpond.errors import Error
from millpond.store import expired_rows
from millpond.tables._storage import RowStorage
from millpond.testing.crash import crash
from tests.contract.places import EVERY, Places

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
KINDS = [kind for kind in EVERY if getattr(kind, "values", (kind,))[0] not in ("cache", "redis")]


Where = Callable[[], str]
TIMED = [kind for kind in KINDS if getattr(kind, "values", (kind,))[0] not in ("delta", "flushed")]
"""Kinds that store when a row was last changed."""


def at(minutes: float) -> datetime:
    return BEGIN + timedelta(minutes=minutes)


def ids(app: App, table: str = "t") -> list[int]:
    return sorted(r["id"] for r in app.table(table).all_rows())


def options(places: Places, kind: str) -> str:
    place = places.new(kind)
    return ", ".join(f"'{k}' = '{v}'" for k, v in {"extension": place.backend, **place.settings}.items())


@pytest.fixture
def where(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Returns what makes the options of a table in a new place; only what needs a server starts one."""
    if kind in ("memory", "sqlite"):
        made = itertools.count()
        form = {"memory": "", "sqlite": ", 'sync' = 'false', 'path' = '{}'"}[kind]
        return lambda: f"'extension' = '{kind}'" + form.format(tmp_path / f"{next(made)}.db")
    return partial(options, request.getfixturevalue("places"), kind)


@pytest.mark.parametrize("key", ["", "PRIMARY KEY"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_leave_by_the_time_in_a_column(
    kind: str, key: str, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expired_rows, "PIECE", 7)
    monkeypatch.setattr(expired_rows, "LARGE_PIECE", 7)
    clock = ManualClock(BEGIN)
    sql = f"""
    CREATE TABLE t (id INT {key}, v STRING, at TIMESTAMP)
      WITH ({options(places, kind)}, 'ttl' = '1h', 'ttl.column' = 'AT');
    CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n, SUM(id) AS total FROM t;
    """
    with App(sql, state=tmp_path, _clock=clock, _direct=True) as app:
        app.table("t").bulk_insert([{"id": i, "v": "x", "at": at(i)} for i in range(60)])
        app.table("t").insert({"id": 100, "v": "none", "at": None})
        app.drain()
        assert ids(app) == [*range(60), 100]
        clock.advance(90 * 60)
        app.drain()
        assert ids(app) == [*range(30, 60), 100]
        assert app.sql("SELECT n, total FROM n").rows() == [{"n": 31, "total": sum(range(30, 60)) + 100}]
        app.sql("UPDATE t SET at = TIMESTAMP '2024-01-01 05:00:00Z' WHERE id = 31")
        clock.advance(15 * 60)
        app.drain()
        assert ids(app) == [31, *range(45, 60), 100]
    clock.advance(60 * 60)
    with App(state=tmp_path, _clock=clock, _direct=True) as app:
        assert app._runtime.old_rows.remove() == 15
        app.drain()
        assert ids(app) == [31, 100] and app.sql("SELECT n FROM n").rows() == [{"n": 2}]


@pytest.mark.parametrize(
    ("dtype", "value", "leaves"),
    [
        ("DATE", date(2024, 1, 1), 24 * 60),
        ("TIMESTAMP_NTZ", datetime(2024, 1, 1, 0, 30), 24 * 60 + 30),
        ("TIMESTAMP", at(30), 24 * 60 + 30),
    ],
)
def test_every_type_of_a_time(dtype: str, value: Any, leaves: int) -> None:
    clock = ManualClock(BEGIN)
    sql = f"CREATE TABLE t (id INT, at {dtype}) WITH ('ttl' = '1 day', 'ttl.column' = 'at')"
    with App(sql, _clock=clock, _direct=True) as app:
        app.table("t").insert({"id": 1, "at": value})
        clock.advance(leaves * 60)
        app.drain()
        assert ids(app) == [1], "not before its time is over"
        clock.advance(0.000001)
        app.drain()
        assert ids(app) == []


@pytest.mark.parametrize("extension", ["memory", "sqlite"])
def test_retention_is_another_name_of_it(extension: str, tmp_path: Path) -> None:
    clock = ManualClock(BEGIN)
    sql = f"""
    CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP)
      WITH ('extension' = '{extension}', 'retention' = '1h', 'ttl.column' = 'at');
    """
    with App(sql, state=tmp_path, _clock=clock, _direct=True) as app:
        assert "'retention' = '1h'" in app.sql("SHOW CREATE TABLE t").rows()[0]["statement"]
        app.table("t").bulk_insert([{"id": i, "at": at(i)} for i in range(60)])
        clock.advance(90 * 60)
        app.drain()
        assert ids(app) == list(range(30, 60))
        app.sql("ALTER TABLE t SET ('retention' = '1 day')")
        text = app.sql("SHOW CREATE TABLE t").rows()[0]["statement"]
        assert "'retention' = '86400s', 'ttl.column' = 'at'" in text
        with pytest.raises(Error, match="is set twice"):
            app.sql("ALTER TABLE t SET ('retention' = '2 days', 'ttl' = '3 days')")
        clock.advance(60 * 60)
        app.drain()
        assert ids(app) == list(range(30, 60))
    with App(text, state=tmp_path, upgrade=True, _clock=clock, _direct=True) as app:
        clock.advance(24 * 60 * 60)
        app.drain()
        assert ids(app) == []


def test_a_retention_next_to_a_window_is_that_of_the_window() -> None:
    sql = """
    CREATE STREAM s (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
    CREATE TABLE t AS SELECT COUNT(*) AS n FROM s WINDOW TUMBLING(1m) WITH ('retention' = '1h');
    """
    with App(sql) as app:
        relation = app._runtime.catalog.find("t")
        assert relation is not None and relation.ttl is None
        with pytest.raises(Error, match="the columns of table"):
            app.sql("ALTER TABLE t SET ('retention' = '1d')")


def test_a_table_that_a_stream_fills(tmp_path: Path) -> None:
    clock = ManualClock(BEGIN)
    sql = """
    CREATE STREAM s (id INT, at TIMESTAMP);
    CREATE TABLE t WITH ('ttl' = '1h', 'ttl.column' = 'at', 'primary.key' = 'id') AS SELECT id, at FROM s;
    CREATE TABLE n AS SELECT COUNT(*) AS n FROM s;
    """
    with App(sql, state=tmp_path, _clock=clock, _direct=True) as app:
        app.send("s", [{"id": i, "at": at(i)} for i in range(10)])
        app.drain()
        clock.advance(3605 + 60 * 4)
        app.drain()
        assert ids(app) == list(range(5, 10)) and app.sql("SELECT n FROM n").rows() == [{"n": 10}]
        app.send("s", [{"id": 0, "at": at(100)}])
        app.drain()
        assert ids(app) == [0, *range(5, 10)]


def test_a_longer_time_holds_for_rows_that_are_being_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expired_rows, "PIECE", 10)
    clock = ManualClock(datetime(2024, 1, 1, tzinfo=UTC))
    with App(
        "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP) WITH ('ttl' = '1h', 'ttl.column' = 'at')",
        _clock=clock,
        _direct=True,
    ) as app:
        app.table("t").bulk_insert([{"id": i, "at": clock.now()} for i in range(100)])
        clock.advance(7_200)
        deletion, called = expired_rows._deletion, []

        def alter_then(rows: Any) -> Any:
            if not called:
                called.append(True)
                other = threading.Thread(target=app.sql, args=("ALTER TABLE t SET ('ttl' = '30d')",))
                other.start()
                called.append(other)
            return deletion(rows)

        monkeypatch.setattr(expired_rows, "_deletion", alter_then)
        change = app._runtime.store.change

        def change_then_wait(*args: Any) -> Any:
            found = change(*args)
            called[1].join(20)
            return found

        monkeypatch.setattr(app._runtime.store, "change", change_then_wait)
        app.drain()
        assert len(app.table("t")) == 90


def test_a_new_time_holds_for_what_remembers_changes() -> None:
    clock = ManualClock(datetime(2024, 1, 1, tzinfo=UTC))
    sql = "CREATE TABLE t (id INT PRIMARY KEY) WITH ('ttl' = '30d')"
    with App(sql, _clock=clock, _direct=True) as app:
        app.sql("ALTER TABLE t SET ('ttl' = '10s')")
        for i in range(100):
            app.sql(f"INSERT INTO t VALUES ({i})")
            clock.advance(1)
        app.drain()
        assert len(app.table("t")) <= 11


def test_those_who_watch_see_the_deletes() -> None:
    clock = ManualClock(BEGIN)
    sql = "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP) WITH ('ttl' = '1h', 'ttl.column' = 'at')"
    with App(sql, _clock=clock, _direct=True) as app:
        app.table("t").insert({"id": 1, "at": at(0)})
        changes = app.sql("SELECT id FROM t EMIT CHANGES WITH ('op.column' = 'op')")
        app.drain()
        clock.advance(4_000)
        app.drain()
        assert [(r["op"], r["id"]) for r in changes.rows()] == [("delete", 1)]


def test_the_app_looks_by_itself() -> None:
    sql = "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP) WITH ('ttl' = '500ms', 'ttl.column' = 'at')"
    with App(sql) as app:
        app.table("t").insert({"id": 1, "at": datetime.now(UTC)})
        app.table("t").insert({"id": 2, "at": datetime.now(UTC) + timedelta(hours=1)})
        end = time.monotonic() + 30
        while ids(app) != [2] and time.monotonic() < end:
            time.sleep(0.05)
        assert ids(app) == [2]


@pytest.mark.parametrize("key", ["", "PRIMARY KEY"])
@pytest.mark.parametrize("kind", TIMED)
def test_rows_leave_some_time_after_their_last_change(
    kind: str, key: str, where: Where, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expired_rows, "PIECE", 7)
    clock = ManualClock(BEGIN)
    sql = f"CREATE TABLE t (id INT {key}, v INT) WITH ({where()}, 'ttl' = '1h');"

    def opened() -> App:
        return App(sql, state=tmp_path, _clock=clock, _direct=True)

    with opened() as app:
        for minute in range(60):
            app.table("t").insert({"id": minute, "v": 0})
            clock.advance(60)
        app.sql("UPDATE t SET v = 1 WHERE id < 10")  # at minute 60
        app.table("t").delete(id=20)
        app._runtime.compactor.compact("t")
        clock.advance(30 * 60)
        app.drain()
        assert ids(app) == [*range(10), *range(30, 60)]
        app.sql("UPDATE t SET v = 2 WHERE id = 40")  # at minute 90
    with opened() as app:
        app.drain()
        assert ids(app) == [*range(10), *range(30, 60)]
        clock.advance(20 * 60)
        app.drain()
        assert ids(app) == [*range(10), 40, *range(50, 60)]
        app._runtime.compactor.compact("t")
    with opened() as app:
        clock.advance(9 * 60)
        app.drain()
        assert ids(app) == [*range(10), 40, 59]
        crash(app)
    clock.advance(2 * 60)
    with opened() as app:
        app.drain()
        assert ids(app) == [40]
        clock.advance(30 * 60)
        app.drain()
        assert ids(app) == []
        assert app.sql("SELECT COUNT(*) AS n FROM t").rows() == [{"n": 0}]


@pytest.mark.parametrize("key", ["", "PRIMARY KEY"])
@pytest.mark.parametrize("kind", TIMED)
def test_times_survive_changes_of_the_table(kind: str, key: str, where: Where, tmp_path: Path) -> None:
    clock = ManualClock(BEGIN)

    def opened(sql: str | None = None) -> App:
        return App(sql, state=tmp_path, _clock=clock, _direct=True)

    with opened(f"CREATE TABLE t (id INT {key}, v INT) WITH ({where()}, 'ttl' = '1h')") as app:
        for i in range(6):
            app.table("t").insert({"id": i, "v": i})
            clock.advance(600)
        app.sql("ALTER TABLE t ADD COLUMN w STRING; ALTER TABLE t RENAME TO u")
        clock.advance(601)
        app.sql("INSERT INTO u VALUES (10, 1, NULL)")
        app.drain()
        assert ids(app, "u") == [2, 3, 4, 5, 10]
    clock.advance(1_200)
    with opened() as app:
        app.drain()
        assert ids(app, "u") == [4, 5, 10]
        clock.advance(2_400)
        app.drain()
        assert ids(app, "u") == [10]
        clock.advance(1)
        app.drain()
        assert ids(app, "u") == []


def test_times_survive_the_compaction_of_a_table_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowStorage, "idle_dead", 0)
    clock = ManualClock(BEGIN)
    with App(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH ('ttl' = '1h')", _clock=clock, _direct=True
    ) as app:
        for minute in range(50):
            app.table("t").bulk_insert([{"id": i, "v": minute} for i in range(minute, 50)])
            clock.advance(60)
        assert len(app.table("t")) == 50
        for gone in range(50):
            clock.advance(60 * 10 if not gone else 60)
            app.drain()
            assert ids(app) == list(range(gone, 50)), gone


def test_a_table_in_delta_has_no_time_of_its_own(tmp_path: Path) -> None:
    with (
        App(state=tmp_path) as app,
        pytest.raises(Error, match="does not store when a row was last changed") as raised,
    ):
        app.sql(
            f"CREATE TABLE t (id INT) WITH ('extension' = 'delta', 'path' = '{tmp_path / 'd'}', 'ttl' = '7d')"
        )
    assert raised.value.place is not None and "ttl.column" in str(raised.value.hint)


@pytest.mark.parametrize("kind", TIMED[1:])
def test_a_table_that_was_made_without_times_is_refused(kind: str, where: Where) -> None:
    table = f"CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH ({where()}, 'table' = 'x'"
    with App(table + ")", _direct=True) as app:
        app.table("t").insert({"id": 1, "v": 1})
    with App() as app, pytest.raises(Error, match="does not store when a row was last changed"):
        app.sql(table + ", 'ttl' = '1h')")
    with App(table + ")", _direct=True) as app:
        assert app.table("t").all_rows() == [{"id": 1, "v": 1}]


def test_a_table_of_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, millpond_at INTEGER)")
    table = f"CREATE TABLE t (id BIGINT PRIMARY KEY) WITH ('extension' = 'sqlite', 'path' = '{path}'"
    with App() as app, pytest.raises(Error, match="others have created it"):
        app.sql(table + ", 'ttl' = '1h')")
    with App(table + ")") as app:
        app.table("t").insert({"id": 1})
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM t").fetchall() == [(1, None)], "its columns are theirs"


def test_a_table_keeps_its_times_while_it_has_no_ttl(tmp_path: Path) -> None:
    clock = ManualClock(BEGIN)
    table = (
        f"CREATE TABLE t (id INT PRIMARY KEY) WITH ('extension' = 'sqlite', 'path' = '{tmp_path / 'x.db'}'"
    )
    with App(table + ", 'ttl' = '1h')", _clock=clock, _direct=True) as app:
        app.table("t").bulk_insert([{"id": 1}, {"id": 2}])
    clock.advance(50 * 60)
    with App(table + ")", _clock=clock, _direct=True) as app:
        app.table("t").insert({"id": 1})
        app.drain()
        assert app.sql("SELECT * FROM t").columns == ["id"]
    clock.advance(20 * 60)
    with App(table + ", 'ttl' = '1h')", _clock=clock, _direct=True) as app:
        app.drain()
        assert ids(app) == [1]


@pytest.mark.parametrize("kind", TIMED[1:])
def test_no_column_has_the_name_of_the_time(kind: str, where: Where) -> None:
    with App(_direct=True) as app:
        there = where()
        with pytest.raises(Error, match="millpond_at"):
            app.sql(f"CREATE TABLE t (id INT PRIMARY KEY, millpond_at INT) WITH ({there}, 'ttl' = '1h')")
        app.sql(f"CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH ({there}, 'ttl' = '1h')")
        for change in ("ADD COLUMN Millpond_AT INT", "RENAME COLUMN v TO millpond_at"):
            with pytest.raises(Error, match="millpond_at"):
                app.sql(f"ALTER TABLE t {change}")
        app.table("t").insert({"id": 1, "v": 2})
        assert app.sql("SELECT * FROM t").rows() == [{"id": 1, "v": 2}]


PLAIN = "CREATE TABLE t (id INT, at TIMESTAMP) WITH "


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (PLAIN + "('ttl' = 'soon', 'ttl.column' = 'at')", 'option "ttl" .* cannot be "soon"'),
        (PLAIN + "('ttl' = '0s', 'ttl.column' = 'at')", "must be greater than 0"),
        (PLAIN + "('ttl' = '1d', 'ttl.column' = 'att')", 'column "att" of .* is not in table "t"'),
        (PLAIN + "('ttl' = '1d', 'ttl.column' = 'id')", 'is for a TIMESTAMP or DATE, "id" is INT'),
        (PLAIN + "('ttl.column' = 'at')", "'ttl.column' needs 'ttl'"),
        (PLAIN + "('ttl' = '1d', 'retention' = '1d')", 'option "retention" of table "t" is set twice'),
        (PLAIN + "('retention' = '10MB')", 'option "retention" of table "t" cannot be "10MB"'),
        (PLAIN + "('retention' = '0s')", 'option "retention" .* must be greater than 0'),
        (PLAIN + "('retention' = '1d', 'ttl.column' = 'att')", 'column "att" of .* is not in table "t"'),
        (
            "CREATE STREAM s (id INT); CREATE TABLE t WITH ('retention' = '1d') AS SELECT COUNT(*) AS n FROM s",
            "it has no 'retention'",
        ),
        (
            "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1) WITH ('retention' = '1d')",
            "retention",
        ),
        (
            "CREATE STREAM s (id INT); CREATE TABLE t WITH ('ttl' = '1d') AS SELECT COUNT(*) AS n FROM s",
            'table "t" is a live aggregate',
        ),
        (
            "CREATE TABLE a (at TIMESTAMP); CREATE MATERIALIZED VIEW v WITH ('ttl' = '1d', 'ttl.column' = 'at')"
            " AS SELECT at FROM a",
            'table "v" follows its inputs',
        ),
        ("CREATE STREAM s (id INT) WITH ('ttl' = '1d')", 'option "ttl" is not known for stream "s"'),
    ],
)
def test_what_is_wrong_is_refused_at_its_place(sql: str, message: str) -> None:
    with App() as app, pytest.raises(Error, match=message) as raised:
        app.sql(sql)
    assert raised.value.place is not None and raised.value.place.column > 1


def test_backends_with_a_ttl_of_their_own_keep_it() -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY) WITH ('extension' = 'cache', 'ttl' = '10m')") as app:
        relation = app._runtime.catalog.find("t")
        assert relation is not None and relation.ttl is None
        with pytest.raises(Error, match=r'option "ttl.column" is not known'):
            app.sql(
                "CREATE TABLE u (id INT PRIMARY KEY, at TIMESTAMP)"
                " WITH ('extension' = 'cache', 'ttl' = '1d', 'ttl.column' = 'at')"
            )


OPS = some.lists(
    some.one_of(
        some.tuples(some.just("put"), some.integers(0, 9), some.integers(-90, 90)),
        some.tuples(some.just("delete"), some.integers(0, 9), some.just(0)),
        some.tuples(some.just("advance"), some.sampled_from([1, 10, 30, 60]), some.just(0)),
        some.tuples(some.just("drain"), some.just(0), some.just(0)),
        some.tuples(some.just("restart"), some.booleans(), some.booleans()),
    ),
    max_size=40,
)


@pytest.mark.parametrize("by_column", [True, False])
@pytest.mark.parametrize("kind", TIMED)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ops=OPS)
def test_random_changes_against_a_dictionary(
    ops: list[tuple[str, int, int]], by_column: bool, kind: str, where: Where
) -> None:
    column = ", 'ttl.column' = 'at'" if by_column else ""
    sql = f"""
    CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP) WITH ({where()}, 'ttl' = '1h'{column});
    CREATE MATERIALIZED VIEW v AS SELECT id % 3 AS k, COUNT(*) AS n FROM t GROUP BY id % 3;
    """
    with tempfile.TemporaryDirectory() as state:
        clock, model, now = ManualClock(BEGIN), dict[int, int](), 0

        def opened() -> App:
            return App(sql, state=state, _clock=clock, _direct=True)

        app = opened()
        for op, value, more in [*ops, ("drain", 0, 0)]:
            if op == "put":
                more = more if by_column else 0
                app.table("t").insert({"id": value, "at": at(now + more)})
                model[value] = now + more
            elif op == "delete":
                app.table("t").delete(id=value)
                model.pop(value, None)
            elif op == "advance":
                clock.advance(60 * value)
                now += value
            elif op == "drain":
                app.drain()
                model = {k: minute for k, minute in model.items() if minute >= now - 60}
                assert ids(app) == sorted(model)
                groups = {k % 3: sum(1 for i in model if i % 3 == k % 3) for k in model}
                assert {r["k"]: r["n"] for r in app.table("v").all_rows()} == groups
            else:
                if more:
                    app._runtime.compactor.compact("t")
                crash(app) if value else app.close()
                app = opened()
        with closing(app):
            assert ids(app) == sorted(model)


KILLED = """
import sys
from millpond.store import expired_rows
from millpond.testing.faults import killing
from tests.test_ttl import steps

expired_rows.PIECE = 100
with killing(sys.argv[2], visit=int(sys.argv[3])):
    steps(sys.argv[1])
"""


def steps(state: str) -> list[dict[str, Any]]:
    clock = ManualClock(at(100))
    sql = """
    CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP) WITH ('ttl' = '1h', 'ttl.column' = 'at');
    CREATE MATERIALIZED VIEW v AS SELECT id % 3 AS k, COUNT(*) AS n FROM t GROUP BY id % 3;
    """
    with App(sql, state=state, _clock=clock, _direct=True) as app:
        if not app.table("t").all_rows():
            app.table("t").bulk_insert([{"id": i, "at": at(i / 10)} for i in range(1_000)])
        app.drain()
        assert ids(app) == list(range(400, 1_000))
        return sorted(app.table("v").all_rows(), key=lambda r: r["k"])


@pytest.mark.slow
def test_a_kill_while_rows_leave(tmp_path: Path) -> None:
    undisturbed, root = steps(str(tmp_path / "whole")), Path(__file__).parent.parent
    for point, visit in (("commit: journalled", 3), ("journal: written", 6)):
        state = str(tmp_path / point)
        run = subprocess.run(
            [sys.executable, "-c", KILLED, state, point, str(visit)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            check=False,
        )
        assert run.returncode == -signal.SIGKILL, run.stderr.decode()
        assert steps(state) == undisturbed
