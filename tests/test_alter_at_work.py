"""ALTER TABLE while the table is written and read: nothing is lost, applied twice, or left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond import App, faults
from millpond.app.restore import Restorer
from millpond.errors import Conflict, Error, InUse, SourceError, StoreStopped
from millpond.tables.memory import MemoryTable
from millpond.testing.faults import Injected, failing

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a INT);"
EVENTS = "CREATE STREAM e (id INT, a INT);"
COUNTS = "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT);"
COUNT = "INSERT INTO t (id, n) SELECT id, COUNT(*) FROM e GROUP BY id WITH ('query.name' = 'q');"


def rows(app: App, sql: str = "SELECT * FROM t ORDER BY 1") -> list[tuple[object, ...]]:
    return [tuple(r.values()) for r in app.sql(sql).rows()]


def aside(work: Callable[[], object], *, seconds: float = 5) -> threading.Thread:
    """Runs something in another thread, and waits for it, but not for ever."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(seconds)
    return thread


def test_rows_that_were_checked_before_do_not_get_into_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with App(TABLE, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2)")
        check, once = MemoryTable.check, [True]

        def slow(self: MemoryTable, changes: Any) -> Any:
            found = check(self, changes)
            if once and once.pop():
                aside(lambda: app.sql("ALTER TABLE t RENAME COLUMN a TO c"))
            return found

        monkeypatch.setattr(MemoryTable, "check", slow)
        with pytest.raises(Conflict, match="altered"):
            app.table("t").bulk_insert([{"id": 5, "a": 50}, {"id": 6, "a": 60}])
        app.table("t").bulk_insert([{"id": 7, "c": 70}, {"id": 8, "c": 80}])
    with App(TABLE, state=tmp_path, _direct=True) as app:
        assert rows(app) == [(1, 2), (7, 70), (8, 80)]


def test_rows_for_a_database_wait_until_the_table_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with App(f"{TABLE[:-1]} WITH (extension = 'sqlite');", state=tmp_path, _direct=True) as app:
        table, reach, writers, errors = app.table("t"), faults.reach, list[threading.Thread](), list[str]()

        def insert() -> None:
            try:
                table.bulk_insert([{"id": 7, "a": 1}])
            except Conflict as error:
                errors.append(error.message)

        def reached(point: str, *args: Any) -> None:
            if point == "alter: changed in the database":
                writers.append(aside(insert, seconds=0.3))
            reach(point, *args)

        monkeypatch.setattr(faults, "reach", reached)
        app.sql("ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 5")
        writers[0].join(5)
        assert len(errors) == 1 and rows(app) == []
        app.sql("INSERT INTO t (id, a) VALUES (7, 1)")
        assert rows(app) == [(7, 1, 5)]


@pytest.mark.parametrize("durability", ["commit", "none"])
@pytest.mark.parametrize("stored", [True, False])
def test_statements_continue_where_they_stopped(tmp_path: Path, durability: str, stored: bool) -> None:
    sql = f"""
        {EVENTS}
        CREATE TABLE t (id INT, a INT) WITH ('durability' = '{durability}');
        CREATE TABLE u (id INT PRIMARY KEY, n BIGINT) WITH ('durability' = '{durability}');
        INSERT INTO t (id, a) SELECT id, 10 / (a - 5) FROM e WITH ('query.name' = 'q');
        INSERT INTO u (id, n) SELECT id, COUNT(*) FROM e GROUP BY id WITH ('query.name' = 'g');
    """
    with App(sql, state=tmp_path if stored else None, _direct=True) as app:
        app.send("e", [{"id": 1, "a": 6}])
        app.drain()
        app.send("e", [{"id": 1, "a": 7}, {"id": 2, "a": 5}])
        app.drain()
        app.sql("ALTER TABLE t ADD COLUMN c INT; ALTER TABLE u ADD COLUMN c INT DEFAULT 3")
        app.drain(timeout=10)
        assert len(rows(app)) == 2 and rows(app, "SELECT COUNT(*) FROM `q$errors`") == [(1,)]
        app.send("e", [{"id": 1, "a": 7}])
        app.drain(timeout=10)
        assert len(rows(app)) == 3
        assert rows(app, "SELECT * FROM u ORDER BY 1") == [(1, 3, 3), (2, 1, 3)]


def test_a_paused_query_stays_paused_and_a_dropped_one_leaves_nothing() -> None:
    with App(f"{EVENTS}{COUNTS[:-1]} WITH ('durability' = 'none'); {COUNT}", _direct=True) as app:
        app.send("e", [{"id": 1, "a": 1}])
        app.drain()
        app.sql("PAUSE QUERY q; ALTER TABLE t ADD COLUMN c INT")
        app.send("e", [{"id": 1, "a": 1}])
        app.drain()
        assert rows(app) == [(1, 1, None)]
        app.sql("RESUME QUERY q")
        app.drain()
        assert rows(app) == [(1, 2, None)]
        app.sql(f"DROP QUERY q; DELETE FROM t; {COUNT}")
        app.drain()
        assert rows(app) == [(1, 2, None)]


def test_options_that_statements_do_not_know_do_not_stop_them() -> None:
    with App(f"{EVENTS}{COUNTS}{COUNT}", _direct=True) as app:
        app.send("e", [{"id": 1, "a": 1}] * 3)
        app.drain()
        before = app._runtime.runner.get("q")
        app.sql("ALTER TABLE t SET ('hot.records' = '10')")
        assert app._runtime.runner.get("q") is before
        app.sql("ALTER TABLE t SET ('on.conflict' = 'error')")
        assert app._runtime.runner.get("q") is not before


def test_views_show_a_new_column_without_another_commit() -> None:
    with App(f"{TABLE} CREATE MATERIALIZED VIEW v AS SELECT * FROM t;", _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2)")
        app.drain()
        app.sql("ALTER TABLE t ADD COLUMN c INT DEFAULT 5")
        app.drain(timeout=10)
        assert rows(app, "SELECT * FROM v") == [(1, 2, 5)]


def test_a_decimal_becomes_wider_whatever_lies_under_its_nulls(tmp_path: Path) -> None:
    words = pa.py_buffer(np.array([[125, 0], [9 * 10**17, 0]], dtype=np.int64))
    values = pa.Array.from_buffers(pa.decimal128(5, 2), 2, [pa.py_buffer(b"\x01"), words])
    sql = "CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(5, 2));"
    with App(sql, state=tmp_path, _direct=True) as app:
        app.table("t").bulk_insert(pa.table({"id": pa.array([1, 2], pa.int32()), "d": values}))
        app.sql("ALTER TABLE t ALTER COLUMN d TYPE DECIMAL(12, 4)")
        assert [(i, None if d is None else str(d)) for i, d in rows(app)] == [(1, "1.2500"), (2, None)]


def test_a_table_that_cannot_take_the_change_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with App(TABLE, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2)")
        with monkeypatch.context() as patched, pytest.raises(Exception, match="no room"):

            def alter(*_: object) -> None:
                raise MemoryError("no room")

            patched.setattr(MemoryTable, "alter", alter)
            app.sql("ALTER TABLE t ADD COLUMN c INT")
        app.sql("INSERT INTO t VALUES (2, 3)")
    with App(TABLE, state=tmp_path, _direct=True) as app:
        assert rows(app) == [(1, 2), (2, 3)]


def test_a_query_that_cannot_go_on_is_shown_and_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with App(f"{EVENTS}{COUNTS[:-1]} WITH ('durability' = 'none'); {COUNT}", _direct=True) as app:
        app.send("e", [{"id": 1, "a": 1}])
        app.drain()

        def away(*_: object) -> None:
            raise SourceError("the broker is away")

        with monkeypatch.context() as patched:
            patched.setattr(Restorer, "go_on", away)
            app.sql("ALTER TABLE t ADD COLUMN c INT")
        assert [q["state"] for q in app.sql("SHOW QUERIES").rows()] == ["failed"]
        app.sql("START QUERY q")
        app.send("e", [{"id": 1, "a": 1}])
        app.drain()
        assert rows(app) == [(1, 2, None)]


def test_views_over_views_get_the_new_column(tmp_path: Path) -> None:
    sql = f"""
        {TABLE}{EVENTS}
        CREATE VIEW w AS SELECT * FROM t;
        CREATE VIEW x AS SELECT w.* FROM w JOIN t ON t.id = w.id;
        CREATE VIEW named (p, q) AS SELECT id, a FROM x;
        CREATE MATERIALIZED VIEW m AS SELECT * FROM x;
        CREATE TABLE j AS SELECT x.* FROM e JOIN x ON x.id = e.id;
    """
    with App(sql, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2)")
        app.drain()
        app.sql("ALTER TABLE t ADD COLUMN c INT DEFAULT 3")
        app.send("e", [{"id": 1}])
        app.drain(timeout=10)
        for name in "twxmj":
            assert rows(app, f"SELECT * FROM {name}") == [(1, 2, 3)], name
        app.sql("UPDATE t SET a = 9")
        app.drain(timeout=10)
    with App(sql, state=tmp_path, _direct=True) as app:
        for name in "twxm":
            assert rows(app, f"SELECT * FROM {name}") == [(1, 9, 3)], name
        assert rows(app, "SELECT * FROM named") == [(1, 9)]


@pytest.mark.parametrize("change", ["ADD COLUMN c INT", "RENAME TO u", "SET ('hot.records' = '10')"])
def test_what_fails_after_the_journal_stops_the_store(tmp_path: Path, change: str) -> None:
    with App(TABLE, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2)")
        with failing("alter: journalled", Injected("it fails")), pytest.raises((Error, Injected)):
            app.sql(f"ALTER TABLE t {change}")
        with pytest.raises(StoreStopped, match="behind"):
            app.sql("INSERT INTO t VALUES (2, 3)")
    with App(TABLE, state=tmp_path, _direct=True) as app:
        name = "u" if "RENAME" in change else "t"
        assert rows(app, f"SELECT id, a FROM {name}") == [(1, 2)]


@pytest.mark.parametrize(
    "more",
    [
        "CREATE TABLE g AS SELECT t.*, COUNT(*) AS n FROM e JOIN t ON t.id = e.id GROUP BY ALL;",
        "CREATE TABLE g AS SELECT t.* FROM e JOIN t ON t.id = e.id; INSERT INTO g (id, a) SELECT id, a FROM e;",
    ],
)
def test_a_table_that_would_no_longer_be_filled_is_named(more: str) -> None:
    with App(f"{TABLE}{EVENTS}{more}", _direct=True) as app:
        with pytest.raises(InUse, match='"g" cannot get the new columns'):
            app.sql("ALTER TABLE t ADD COLUMN c INT")
        app.sql("INSERT INTO t VALUES (1, 2)")
        app.send("e", [{"id": 1}])
        app.drain()
        assert rows(app, "SELECT id FROM g")
