"""Tables that are stored in Delta: what is committed is seen at once and never lost, and the Delta table gets it in one
commit.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from millpond import App, faults
from millpond.errors import (
    AlreadyExists,
    BadData,
    ConfigurationIssue,
    ConnectionLost,
    Error,
    InvalidOption,
    InvalidRecord,
    NotSupported,
    StateForeign,
    TypeMismatch,
    UnknownName,
)
from millpond.testing.crash import crash
from millpond.testing.faults import Injected, failing

STEPS = [point for point in faults.POINTS if point.startswith("flush:")]


LATE = "'flush.interval' = '1h'"


def keyed(at: Path | str, more: str = "") -> str:
    return f"""CREATE TABLE t (id INT PRIMARY KEY, name STRING)
               WITH ('extension' = 'delta', 'path' = '{at}', {LATE}{more})"""


def plain(at: Path | str) -> str:
    return f"CREATE TABLE l (n INT, name STRING) WITH ('extension' = 'delta', 'path' = '{at}', {LATE})"


def flush(app: App, *names: str) -> None:
    for name in names:
        app._runtime.compactor.flusher.flush(name)


def rows(app: App, table: str, by: str = "id") -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in app.sql(f"SELECT * FROM {table} ORDER BY {by}").rows()]


def base(at: Path) -> list[tuple[Any, ...]]:
    """What others read."""
    found = DeltaTable(str(at)).to_pyarrow_table()
    names = [n for n in found.column_names if n != "_row"]
    return sorted(zip(*(found[n].to_pylist() for n in names), strict=True), key=repr)


def version(at: Path) -> int:
    return int(DeltaTable(str(at)).version())


def test_commits_are_seen_at_once_and_flushed_together(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    with App(keyed(at), state=tmp_path / "state") as app:
        app.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        app.sql("UPDATE t SET name = 'c' WHERE id = 2")
        app.sql("INSERT INTO t VALUES (3, 'd')")
        assert rows(app, "t") == [(1, "a"), (2, "c"), (3, "d")]
        assert base(at) == [] and version(at) == 0
        flush(app, "t")
        assert base(at) == [(1, "a"), (2, "c"), (3, "d")] and version(at) == 1
        app.sql("DELETE FROM t WHERE id = 1")
        app.sql("UPDATE t SET name = upper(name)")
        assert rows(app, "t") == [(2, "C"), (3, "D")] and len(app.table("t")) == 2
        assert app.sql("SELECT name FROM t WHERE id IN (1, 2)").rows() == [{"name": "C"}]
        assert app.table("t").get_record(3) == {"id": 3, "name": "D"} and not app.table("t").contains(1)
        flush(app, "t")
        flush(app, "t")
        assert base(at) == [(2, "C"), (3, "D")] and version(at) == 2
        app.sql("INSERT INTO t VALUES (7, 'x')")
        app.sql("DELETE FROM t WHERE id = 7")
        flush(app, "t")  # a merge that changes nothing
        assert base(at) == [(2, "C"), (3, "D")] and version(at) == 3
        app.sql("INSERT INTO t VALUES (4, 'e')")
    assert base(at) == [(2, "C"), (3, "D"), (4, "e")]  # closing flushes
    with App(state=tmp_path / "state") as app:
        assert rows(app, "t") == [(2, "C"), (3, "D"), (4, "e")]
        assert app._runtime.store.backend("t").stats()["pending_rows"] == 0


def test_rows_without_a_key(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    with App(plain(at), state=tmp_path / "state") as app:
        app.sql("INSERT INTO l VALUES (1, 'a'), (1, 'a'), (2, 'b')")
        flush(app, "l")
        app.sql("INSERT INTO l VALUES (3, 'c')")
        flush(app, "l")
        app.sql("UPDATE l SET name = 'x' WHERE n = 2")
        app.sql("DELETE FROM l WHERE n = 3")
        assert rows(app, "l", "n") == [(1, "a"), (1, "a"), (2, "x")]
        crash(app)
    with App(state=tmp_path / "state") as app:
        assert rows(app, "l", "n") == [(1, "a"), (1, "a"), (2, "x")]
        app.sql("INSERT INTO l VALUES (4, 'd')")
        flush(app, "l")
        numbers = DeltaTable(str(at)).to_pyarrow_table().sort_by("_row")["_row"].to_pylist()
        assert numbers == [0, 1, 2, 4]  # the number of a deleted row is not used again
    assert base(at) == [(1, "a"), (1, "a"), (2, "x"), (4, "d")]


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("point", STEPS)
def test_a_flush_that_ends_at_any_step(tmp_path: Path, point: str, crashes: bool) -> None:
    """The second of two flushes fails, or the process ends there; then more changes come."""
    at, log = tmp_path / "keyed", tmp_path / "plain"
    app = App(f"{keyed(at)}; {plain(log)}", state=tmp_path / "state")
    app.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    app.sql("INSERT INTO l VALUES (1, 'a'), (2, 'b')")
    flush(app, "t", "l")
    app.sql("UPDATE t SET name = 'c' WHERE id = 2")
    app.sql("INSERT INTO t VALUES (3, 'd')")
    app.sql("DELETE FROM l WHERE n = 1")
    app.sql("INSERT INTO l VALUES (3, 'd'), (3, 'd')")
    for name in ("t", "l"):
        with failing(point), pytest.raises(Injected):
            flush(app, name)
    if crashes:
        crash(app)
        app = App(state=tmp_path / "state")
    with app:
        assert rows(app, "t") == [(1, "a"), (2, "c"), (3, "d")]
        assert rows(app, "l", "n") == [(2, "b"), (3, "d"), (3, "d")]
        app.sql("DELETE FROM t WHERE id = 1")
        app.sql("INSERT INTO l VALUES (4, 'e')")
        app.sql("UPDATE l SET name = 'f' WHERE n = 3")
        flush(app, "t", "l")
        assert rows(app, "t") == [(2, "c"), (3, "d")]
        assert rows(app, "l", "n") == [(2, "b"), (3, "f"), (3, "f"), (4, "e")]
    assert base(at) == [(2, "c"), (3, "d")]
    assert base(log) == [(2, "b"), (3, "f"), (3, "f"), (4, "e")]


def test_random_changes_flushes_and_crashes_equal_duckdb(tmp_path: Path) -> None:
    at, log, chance = tmp_path / "keyed", tmp_path / "plain", random.Random(5)
    oracle = duckdb.connect()
    oracle.execute("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR); CREATE TABLE l (n INT, name VARCHAR)")
    app = App(f"{keyed(at)}; {plain(log)}", state=tmp_path / "state")
    for step in range(60):
        key, low = chance.randrange(20), chance.randrange(20)
        texts = chance.choice(
            [
                [f"INSERT INTO t VALUES ({key}, 'n{step}')", f"INSERT INTO l VALUES ({key}, 'n{step}')"],
                [f"UPDATE t SET name = 'u{step}' WHERE id > {low}"],
                [f"DELETE FROM t WHERE id = {key}", f"DELETE FROM l WHERE n = {key}"],
                [f"UPDATE l SET name = 'u{step}' WHERE n < {low}"],
            ]
        )
        for text in texts:
            app.sql(text)
            oracle.execute(text.replace("INSERT INTO t", "INSERT OR REPLACE INTO t"))
        if chance.random() < 0.3:
            flush(app, "t", "l")
        if step % 20 == 19:
            with failing(chance.choice(STEPS)), pytest.raises(Injected):
                app.sql(f"INSERT INTO t VALUES (100, 'n{step}')")
                oracle.execute(f"INSERT OR REPLACE INTO t VALUES (100, 'n{step}')")
                flush(app, "t")
            crash(app)
            app = App(state=tmp_path / "state")
        for table, by in (("t", "id"), ("l", "n, name")):
            assert rows(app, table, by) == oracle.execute(f"SELECT * FROM {table} ORDER BY {by}").fetchall()
    app.close()
    for table, place in (("t", at), ("l", log)):
        assert base(place) == sorted(oracle.execute(f"SELECT * FROM {table}").fetchall(), key=repr)


def test_running_statements_fill_delta_tables(tmp_path: Path) -> None:
    text = f"""
    CREATE STREAM s (k INT, v INT);
    CREATE TABLE sums WITH ('extension' = 'delta', 'path' = '{tmp_path / "sums"}') AS
        SELECT k, COUNT(*) AS n, SUM(v) AS v FROM s GROUP BY k;
    CREATE TABLE log (k INT, v INT) WITH ('extension' = 'delta', 'path' = '{tmp_path / "log"}');
    INSERT INTO log SELECT k, v FROM s WHERE v % 2 = 0;
    CREATE MATERIALIZED VIEW big AS SELECT k FROM sums WHERE n > 12;
    """
    events = [{"k": i % 7 or None, "v": i} for i in range(100)]
    app = App(text, state=tmp_path / "state")
    for few in (events[1:6], [events[0], *events[6:60]]):  # at first without NULL in the key
        app.send("s", few)
        app.drain()
        flush(app, "sums", "log")
    app.send("s", events[1:2])
    app.send("s", [{"k": 1, "v": -1}])
    app.drain()
    flush(app, "sums", "log")
    crash(app)
    with App(state=tmp_path / "state") as app:
        app.send("s", events[60:])
        app.drain()
        oracle = duckdb.connect()
        events += [events[1], {"k": 1, "v": -1}]
        oracle.register("s", pa.Table.from_pylist(events))
        sums = oracle.execute("SELECT k, COUNT(*) AS n, SUM(v)::BIGINT AS v FROM s GROUP BY k").fetchall()
        assert sorted(rows(app, "sums", "k"), key=repr) == sorted(sums, key=repr)
        assert rows(app, "log", "v") == [(e["k"], e["v"]) for e in events if e["v"] % 2 == 0]
        assert sorted(r["k"] or 0 for r in app.table("big")) == sorted(k or 0 for k, n, _ in sums if n > 12)
        joined = app.sql("SELECT s.v FROM log l JOIN sums s ON l.k = s.k WHERE l.v = 2").rows()
        assert joined == [{"v": next(v for k, _, v in sums if k == 2)}]
    assert base(tmp_path / "sums") == sorted(sums, key=repr)
    assert len(base(tmp_path / "log")) == 50


def test_a_state_directory_that_is_older_than_the_table_is_refused(tmp_path: Path) -> None:
    at, state = tmp_path / "lake", tmp_path / "state"
    with App(keyed(at), state=state) as app:
        app.sql("INSERT INTO t VALUES (1, 'a')")
    shutil.copytree(state, tmp_path / "old")
    with App(state=state) as app:
        app.sql("INSERT INTO t VALUES (2, 'b')")
    with pytest.raises(StateForeign, match="older than the table"):
        App(state=tmp_path / "old")
    with App(keyed(at), state=tmp_path / "new") as app:  # goes on from the rows of the table
        app.sql("INSERT INTO t VALUES (3, 'c')")
        assert rows(app, "t") == [(1, "a"), (2, "b"), (3, "c")]


def test_drop_removes_what_is_in_the_state_directory(tmp_path: Path) -> None:
    at, own = tmp_path / "lake", tmp_path / "state" / "delta"
    with App(keyed(at), state=tmp_path / "state") as app:
        app.sql("CREATE TABLE own (id INT PRIMARY KEY) WITH ('extension' = 'delta')")
        app.sql("INSERT INTO own VALUES (1)")
        app.sql("INSERT INTO t VALUES (1, 'a')")
        app.sql("ALTER TABLE own RENAME TO mine")
        flush(app, "mine")
        assert [p.name for p in own.iterdir()] == ["own"] and rows(app, "mine") == [(1,)]
    with App(state=tmp_path / "state") as app:
        assert rows(app, "mine") == [(1,)]
        with pytest.raises(AlreadyExists, match="another table has its rows"):
            app.sql("CREATE TABLE own (id INT PRIMARY KEY, x INT) WITH ('extension' = 'delta')")
        app.sql("INSERT INTO t VALUES (2, 'b')")
        app.sql("DROP TABLE mine")
        app.sql("DROP TABLE t")
        assert list(own.iterdir()) == []
        assert base(at) == [(1, "a"), (2, "b")]
        app.sql("CREATE TABLE own (id INT PRIMARY KEY) WITH ('extension' = 'delta')")
        assert rows(app, "own") == []
    with App(keyed(at)) as app:  # without a state directory
        app.sql("INSERT INTO t VALUES (3, 'c')")
    assert base(at) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_drop_that_is_killed_is_finished(tmp_path: Path) -> None:
    create = "CREATE TABLE own (id INT PRIMARY KEY) WITH ('extension' = 'delta')"
    app = App(create, state=tmp_path / "state")
    app.sql("INSERT INTO own VALUES (1)")
    with failing("drop journalled", KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        app.sql("DROP TABLE own")
    crash(app)
    with App(state=tmp_path / "state") as app:
        app.sql(create)
        assert rows(app, "own") == []


def made(at: Path, **columns: Any) -> Path:
    write_deltalake(str(at), pa.table(columns))
    return at


ID, NAME = pa.array([1, 2], pa.int32()), pa.array(["a", "b"])
WRONG: dict[str, tuple[Callable[[Path], str], type[Error], str]] = {
    "a column is missing": (lambda at: keyed(made(at, id=ID)), UnknownName, 'has no column "name"'),
    "another column is there": (lambda at: keyed(made(at, id=ID, name=NAME, x=ID)), NotSupported, '"x"'),
    "another type": (
        lambda at: keyed(made(at, id=ID, name=ID)),
        TypeMismatch,
        '"name" .* is INT, not STRING',
    ),
    "rows have no numbers": (lambda at: plain(made(at, n=ID, name=NAME)), NotSupported, '"_row"'),
    "a key is there twice": (
        lambda at: keyed(made(at, id=pa.array([1, 1], pa.int32()), name=NAME)),
        BadData,
        "2 rows with the key id = 1",
    ),
    "other partitions": (
        lambda at: keyed(made(at, id=ID, name=NAME), ", 'partition.by' = 'name'"),
        ConfigurationIssue,
        "partitioned by nothing",
    ),
    "an unknown partition": (lambda at: keyed(at, ", 'partition.by' = 'nmae'"), UnknownName, "nmae"),
    "a name that Delta refuses": (
        lambda at: "CREATE TABLE t (`a b` INT) WITH ('extension' = 'delta')",
        InvalidOption,
        "Delta allows no ' ' in names",
    ),
    "a cache in front": (
        lambda at: "CREATE TABLE t (id INT PRIMARY KEY) WITH ('extension' = 'cache', 'cache.over' = 'delta')",
        InvalidOption,
        "a cache cannot stand in front of delta",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused(tmp_path: Path, case: str) -> None:
    make, error, said = WRONG[case]
    with App() as app, pytest.raises(error, match=said):
        app.sql(make(tmp_path / "lake"))


def test_a_table_that_others_made_is_taken_over(tmp_path: Path) -> None:
    at = made(tmp_path / "lake", NAME=NAME, Id=ID)
    with App(keyed(at)) as app:
        assert rows(app, "t") == [(1, "a"), (2, "b")]
        app.sql("INSERT INTO t VALUES (2, 'c'), (3, 'd')")
        with pytest.raises(NotSupported, match="cannot change: its rows"):
            app.sql("ALTER TABLE t ADD COLUMN x INT")
        with pytest.raises(AlreadyExists, match="another table has its rows"):
            app.sql(keyed(at).replace("TABLE t", "TABLE u"))
    assert base(at) == [("a", 1), ("c", 2), ("d", 3)]


def test_others_may_read_and_optimize_but_one_app_writes(tmp_path: Path, caplog: Any) -> None:
    at = tmp_path / "lake"
    with App(keyed(at)) as app:
        for number in range(3):
            app.sql(f"INSERT INTO t VALUES ({number}, 'a')")
            flush(app, "t")
        DeltaTable(str(at)).optimize.compact()
        DeltaTable(str(at)).delete("id = 0")
        app.sql("INSERT INTO t VALUES (1, 'b')")
        flush(app, "t")
        assert rows(app, "t") == base(at) == [(1, "b"), (2, "a")]
        from deltalake import CommitProperties, Transaction

        other = CommitProperties(app_transactions=[Transaction("millpond writer", 5)])
        more = pa.table({"id": pa.array([9], pa.int32()), "name": ["z"]})
        write_deltalake(str(at), more, mode="append", commit_properties=other)
        app.sql("INSERT INTO t VALUES (1, 'c')")
        with pytest.raises(ConfigurationIssue, match="another app writes"):
            flush(app, "t")
        assert (1, "c") in rows(app, "t")


def test_changes_that_cannot_be_flushed_stay_up_to_a_limit(tmp_path: Path, monkeypatch: Any) -> None:
    at = tmp_path / "lake"
    with App(keyed(at, ", 'flush.size' = '1KB'"), state=tmp_path / "state") as app:
        table = app._runtime.store.backend("t")

        def lost(*_: Any) -> None:
            raise ConnectionLost("the store does not answer")

        monkeypatch.setattr(table._base, "write", lost)  # type: ignore[attr-defined]
        with pytest.raises(ConnectionLost, match="changes that its Delta table does not have") as refused:
            for number in range(1000):
                app.sql(f"INSERT INTO t VALUES ({number}, '{'x' * 200}')")
        assert refused.value.code == "table_full" and " 4.0 kB of " in refused.value.message
        there = rows(app, "t")
        assert 10 < len(there) < 40
        with pytest.raises(ConnectionLost):
            flush(app, "t")
        monkeypatch.undo()
        flush(app, "t")
        app.sql("INSERT INTO t VALUES (5000, 'y')")
    assert base(at) == sorted([*there, (5000, "y")], key=repr)


def test_files_that_cannot_have_the_rows_are_not_read(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    text = f"""CREATE TABLE t (id INT PRIMARY KEY, part STRING, day DATE)
               WITH ('extension' = 'delta', 'path' = '{at}', 'partition.by' = 'part', {LATE})"""
    with App(text) as app:
        for number in range(4):
            app.sql(f"INSERT INTO t VALUES ({number}, 'p{number % 2}', DATE'2026-01-0{number + 1}')")
            flush(app, "t")
        files = sorted(at.glob("part=*/*.parquet"), key=lambda f: f.stat().st_mtime_ns)
        assert len(files) == 4
        for file in files[1:]:
            file.rename(file.with_suffix(".away"))
        one = [{"id": 0}]
        assert app.sql("SELECT id FROM t WHERE id = 0").rows() == one
        assert app.sql("SELECT id FROM t WHERE part = 'p0' AND day < DATE'2026-01-02'").rows() == one
        assert app.sql("SELECT id FROM t WHERE day IN (DATE'2026-01-01')").rows() == one
        with pytest.raises(Error, match="file"):
            app.sql("SELECT id FROM t WHERE part = 'p0'").rows()
        for file in files[1:]:
            file.with_suffix(".away").rename(file)
        assert [r["id"] for r in app.sql("SELECT id FROM t WHERE part = 'p1' ORDER BY id").rows()] == [1, 3]
        with pytest.raises(InvalidRecord, match="empty text"):
            app.sql("INSERT INTO t VALUES (9, '', NULL)")
        app.sql("UPDATE t SET part = 'p1'")
        app.sql("INSERT INTO t VALUES (10, NULL, NULL)")
        flush(app, "t")
        assert [r["part"] for r in app.sql("SELECT part FROM t ORDER BY id").rows()] == ["p1"] * 4 + [None]


def test_a_table_is_not_built_again(tmp_path: Path) -> None:
    with App(keyed(tmp_path / "lake")) as app:
        app.sql("CREATE TABLE src (id INT PRIMARY KEY, name STRING)")
        app.sql("CREATE TABLE m AS SELECT * FROM src")
        for name in ("t", "m"):
            create = f"CREATE OR REPLACE TABLE {name} (PRIMARY KEY (id)) WITH ('extension' = 'delta')"
            with pytest.raises(NotSupported, match="cannot be built again"):
                app.sql(f"{create} AS SELECT * FROM src")
        app.sql("INSERT INTO t VALUES (1, 'a')")
        app._runtime.store.backend("t").flush_error = "the store does not answer"  # type: ignore[attr-defined]
        assert app.table("t").health_check().status == "stale"
        assert app.table("t").get_stats().rows == 1
