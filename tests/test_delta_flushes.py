"""Flushes of tables in Delta beside what goes wrong: stores that do not answer or are slow, others that change the
Delta table, and commits that come at the wrong time.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from millpond import App
from millpond.errors import ConnectionLost, Error, NotSupported, SourceChanged
from millpond.store import flusher as flushing
from millpond.testing.crash import crash
from millpond.testing.faults import Injected, failing

SMALL, SHORT = "'flush.size' = '1KB'", "'flush.interval' = '1ms'"
SOON = 30.0
"""Longer than anything takes: only a test that fails waits so long."""


def create(at: Path | str, more: str = "'flush.interval' = '1h'", name: str = "t") -> str:
    return f"""CREATE TABLE {name} (id INT PRIMARY KEY, name STRING)
               WITH ('extension' = 'delta', 'path' = '{at}', {more})"""


def flusher(app: App) -> flushing.Flusher:
    return app._runtime.compactor.flusher


def base_of(app: App, name: str = "t") -> Any:
    backend: Any = app._runtime.store.backend(name)
    return backend._base


def count(app: App, name: str = "t") -> int:
    return int(app.sql(f"SELECT COUNT(*) AS n FROM {name}").rows()[0]["n"])


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def lost(*_: Any) -> None:
    raise ConnectionLost("the store does not answer")


@pytest.mark.parametrize("again", [False, True])
def test_a_kill_after_the_flush_beside_commits_that_are_not_journalled(tmp_path: Path, again: bool) -> None:
    """The base has the number of a commit that the journal has, also of changes that a restart has restored."""
    memory = "CREATE TABLE m (k INT PRIMARY KEY) WITH ('durability' = 'none')"
    app = App(f"{memory}; {create(tmp_path / 'lake')}", state=tmp_path / "state")
    app.sql("INSERT INTO t VALUES (1, 'a')")
    if again:
        crash(app)
        app = App(state=tmp_path / "state")
    app._runtime.journal.boundary()  # as the compaction of another table does
    for number in range(3):
        app.sql(f"INSERT INTO m VALUES ({number})")
    with failing("flush: in the base"), pytest.raises(Injected):
        flusher(app).flush("t")
    crash(app)
    with App(state=tmp_path / "state") as app:
        assert count(app) == 1
        assert app._runtime.store.backend("t").stats()["pending_rows"] == 0
        app.sql("INSERT INTO t VALUES (2, 'b')")
        flusher(app).flush("t")
    assert DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().num_rows == 2


def test_a_running_statement_goes_on_when_the_store_is_back(tmp_path: Path) -> None:
    text = f"""CREATE STREAM s (id INT, name STRING); {create(tmp_path / "lake", SMALL)};
               INSERT INTO t SELECT id, name FROM s"""
    with App(text, state=tmp_path / "state") as app:
        write, table = base_of(app).write, app._runtime.store.backend("t")
        base_of(app).write = lost
        app.send("s", [{"id": number, "name": "x" * 500} for number in range(10)])
        app.drain()
        app.send("s", [{"id": number, "name": "x" * 500} for number in range(10, 20)])
        (pipeline,) = app._runtime.runner
        until(lambda: pipeline.error is not None)
        error = pipeline.error
        assert error is not None and error.code == "table_full" and error.retryable
        assert "has 5.1 kB of changes" in error.message and "does not answer" in error.message
        base_of(app).write = write
        flusher(app)._try("t", table)  # type: ignore[arg-type]
        until(lambda: count(app) == 20)
    assert DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().num_rows == 20


def test_commits_wait_for_a_flush_and_others_do_not(tmp_path: Path, monkeypatch: Any) -> None:
    """A flush is held up: a commit to a full table waits, one to another table does not, and none is refused."""
    text = f"CREATE TABLE m (k INT PRIMARY KEY); {create(tmp_path / 'lake', SMALL)}"
    with App(text, state=tmp_path / "state") as app:
        write, go_on, begun = base_of(app).write, threading.Event(), threading.Event()

        def slow(*args: Any) -> None:
            begun.set()
            assert go_on.wait(SOON)
            write(*args)

        monkeypatch.setattr(base_of(app), "write", slow)
        table: Any = app._runtime.store.backend("t")
        waits, wait = threading.Event(), table._done.wait_for

        def waiting(predicate: Any, timeout: float | None = None) -> Any:
            if not predicate():
                waits.set()
            return wait(predicate, timeout)

        monkeypatch.setattr(table._done, "wait_for", waiting)

        def fill() -> None:
            for number in range(30):
                app.sql(f"INSERT INTO t VALUES ({number}, '{'x' * 500}')")

        filling = threading.Thread(target=fill)
        filling.start()
        assert begun.wait(SOON) and waits.wait(SOON)
        app.sql("INSERT INTO m VALUES (1)")  # nobody holds the lock of commits
        assert filling.is_alive()
        go_on.set()
        filling.join(SOON)
        assert count(app) == 30


def test_a_commit_during_the_flush_of_another_table_is_flushed_in_time(tmp_path: Path) -> None:
    text = "; ".join(create(tmp_path / name, SHORT, name) for name in ("a", "b"))
    with App(text, state=tmp_path / "state") as app:
        base, done = base_of(app, "a"), threading.Event()
        first, write = base_of(app, "b").write, base.write

        def and_commit(*args: Any) -> None:
            first(*args)
            app.sql("INSERT INTO a VALUES (1, 'x')")  # after the thread has looked at it

        def and_tell(*args: Any) -> None:
            write(*args)
            done.set()

        base_of(app, "b").write, base.write = and_commit, and_tell
        app.sql("INSERT INTO b VALUES (1, 'x')")
        assert done.wait(SOON)


def test_a_table_with_a_short_interval_does_not_wait_for_one_with_a_long_interval(tmp_path: Path) -> None:
    text = f"{create(tmp_path / 'a', name='a')}; {create(tmp_path / 'b', SHORT, 'b')}"
    with App(text, state=tmp_path / "state") as app:
        done, write = threading.Event(), base_of(app, "b").write

        def and_tell(*args: Any) -> None:
            write(*args)
            done.set()

        base_of(app, "b").write = and_tell
        app.sql("INSERT INTO a VALUES (1, 'x')")
        app.sql("INSERT INTO b VALUES (1, 'x')")
        assert done.wait(SOON)


def test_files_that_others_have_removed_are_not_missed(tmp_path: Path) -> None:
    """OPTIMIZE and VACUUM, and nothing is written here: the next version is read."""
    at = tmp_path / "lake"
    with App(create(at)) as app:
        for number in range(3):
            app.sql(f"INSERT INTO t VALUES ({number}, 'a')")
            flusher(app).flush("t")
        before = app._runtime.store.backend("t").snapshot()
        DeltaTable(str(at)).optimize.compact()
        DeltaTable(str(at)).vacuum(0, dry_run=False, enforce_retention_duration=False)
        assert len(app.sql("SELECT * FROM t").rows()) == 3 and before.scan().num_rows == 3
        app.sql("INSERT INTO t VALUES (3, 'b')")
        assert len(app.sql("SELECT * FROM t").rows()) == 4
        flusher(app).flush("t")
        assert app.sql("SELECT name FROM t WHERE id = 3").rows() == [{"name": "b"}]
        with pytest.raises(SourceChanged, match="does not have a file of version"):
            for file in at.glob("*.parquet"):
                file.unlink()
            app.sql("SELECT * FROM t").rows()
        with pytest.raises(
            SourceChanged
        ):  # a flush came after it: the newer rows are not those of the snapshot
            before.scan()


def test_a_column_that_another_engine_adds_is_told(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    with App(create(at)) as app:
        app.sql("INSERT INTO t VALUES (1, 'a')")
        flusher(app).flush("t")
        DeltaTable(str(at)).alter.add_columns([Field("extra", PrimitiveType("integer"))])
        app.sql("INSERT INTO t VALUES (2, 'b')")
        for _ in range(2):
            with pytest.raises(NotSupported, match='has the column "extra", which is not declared'):
                flusher(app).flush("t")
        assert count(app) == 2
        rows = pa.table({"id": pa.array([9], pa.int32()), "name": ["z"], "extra": pa.array([1], pa.int32())})
        write_deltalake(str(at), rows, mode="append")
        assert count(app) == 2


def test_a_start_beside_a_column_that_another_engine_has_added(tmp_path: Path) -> None:
    at, state = tmp_path / "lake", tmp_path / "state"
    with App(create(at), state=state) as app:
        app.sql("INSERT INTO t VALUES (1, 'a')")
    DeltaTable(str(at)).alter.add_columns([Field("extra", PrimitiveType("integer"))])
    with App(create(at), state=state) as app:
        assert count(app) == 1
        app.sql("INSERT INTO t VALUES (2, 'b')")
        with pytest.raises(NotSupported, match='has the column "extra", which is not declared'):
            flusher(app).flush("t")
        assert count(app) == 2
    with App(create(at), state=state) as app:
        assert count(app) == 2


def test_a_query_fills_no_table_that_has_other_rows(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    write_deltalake(str(at), pa.table({"k": pa.array([1, 2], pa.int32()), "n": pa.array([1, 5], pa.int64())}))
    text = f"CREATE STREAM s (k INT, v INT); CREATE TABLE g WITH ('extension' = 'delta', 'path' = '{at}')"
    with App() as app:
        with pytest.raises(NotSupported, match="there are 2 rows of something else already"):
            app.sql(text + " AS SELECT k, COUNT(*) AS n FROM s GROUP BY k")
        assert app.sql(f"SELECT COUNT(*) AS n FROM 'delta://{at}'").rows() == [{"n": 2}]


def test_ttl_needs_a_column(tmp_path: Path) -> None:
    with App() as app:
        with pytest.raises(NotSupported, match="does not store when a row was last changed") as refused:
            app.sql(create(tmp_path / "lake", "'ttl' = '1h'"))
        assert refused.value.hint == "name a column with a time: 'ttl.column' = 'at'"
        app.sql("CREATE TABLE m (id INT PRIMARY KEY) WITH ('ttl' = '1h')")


def noted(at: Path) -> Any:
    """The positions in the user metadata of the newest commit of a Delta table, by statement."""
    found = json.loads(DeltaTable(str(at)).history(1)[0].get("millpond.positions", "[]"))
    return {pipeline: next(iter(offsets.values()))["seq"] for pipeline, _, _, offsets in found}


def test_a_flush_notes_how_far_the_statements_have_come(tmp_path: Path) -> None:
    """Also one that is tried again: the positions are those of its rows, not of later ones."""
    one, sums = tmp_path / "one", tmp_path / "sums"
    text = f"""CREATE STREAM s (id INT, name STRING); {create(one, name="one")};
        INSERT INTO one SELECT id, name FROM s WITH ('query.name' = 'fill');
        CREATE TABLE sums WITH ('extension' = 'delta', 'path' = '{sums}', 'flush.interval' = '1h') AS
            SELECT name, COUNT(*) AS n FROM s GROUP BY name"""

    def send(app: App, number: int) -> None:
        app.send("s", [{"id": number, "name": "x"}])
        app.drain()

    with App(text, state=tmp_path / "state") as app:
        for number, offset in ((1, 1), (1, 2)):  # an append, and a merge
            send(app, number)
            for table in ("one", "sums"):
                flusher(app).flush(table)
            assert noted(one) == {"fill": offset} and list(noted(sums).values()) == [offset]
        send(app, 3)
        with failing("flush: set apart"), pytest.raises(Injected):
            flusher(app).flush("one")
        send(app, 4)
        app._runtime.store.backend("one").flush(app._runtime.store._state.identity)  # type: ignore[attr-defined]
        assert noted(one) == {"fill": 3} and count(app, "one") == 3
        app.sql("INSERT INTO one VALUES (9, 'by hand')")
    assert noted(one) == {"fill": 4}


def test_explain_says_where_rows_and_state_are(tmp_path: Path) -> None:
    groups = "SELECT id, COUNT(*) AS n FROM s GROUP BY id"

    def lines(app: App, text: str) -> list[str]:
        said = [r["plan"] for r in app.sql(f"EXPLAIN {text}").rows()]
        wanted = ("flush:", "batches that Spark evaluates:")
        return [line for line in said if line.startswith(wanted) or "never in the store" in line]

    text = f"CREATE STREAM s (id INT, name STRING); CREATE TABLE m (id INT); {create(tmp_path / 'lake')}"
    for state, kept in ((tmp_path / "state", "in the journal and in memory"), (None, "in memory")):
        with App(text, state=state) as app:
            flush = f"flush: rows are {kept} until a flush, which is written by the app's process, with delta-rs, "
            insert, late = "INSERT INTO t SELECT id, name FROM s", [flush + "large batches too"]
            now = [
                flush.removesuffix(", "),
                "batches that Spark evaluates: its executors merge them, past the journal, each in a commit of its own,"
                " if they can and nothing follows the changes of t",
            ]
            assert lines(app, insert) == (late if state is None else now)
            assert lines(app, f"{insert} WITH ('engine' = 'process')") == late
            found = lines(
                app, f"CREATE TABLE g WITH ('extension' = 'delta', 'path' = '{tmp_path}/g') AS {groups}"
            )
            assert found == [flush + "large batches too", f"state: {kept}, never in the store of g"]
            assert lines(app, "INSERT INTO m SELECT id FROM s") == []


def test_closing_does_not_wait_for_a_slow_store(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(flushing, "CLOSING", 0.05)
    app, go_on = App(create(tmp_path / "lake"), state=tmp_path / "state"), threading.Event()
    app.sql("INSERT INTO t VALUES (1, 'a')")
    monkeypatch.setattr(base_of(app), "write", lambda *_: go_on.wait(SOON))
    app.close()
    assert "stay in the journal: their store took more than 0.05 s" in caplog.text
    go_on.set()
    with App(state=tmp_path / "state") as app:
        assert count(app) == 1


def test_a_table_is_dropped_while_another_one_is_flushed(tmp_path: Path, monkeypatch: Any) -> None:
    text = "; ".join(create(tmp_path / name, name=name) for name in ("a", "b"))
    with App(text, state=tmp_path / "state") as app:
        for name in ("a", "b"):
            app.sql(f"INSERT INTO {name} VALUES (1, 'x')")
        write, go_on, begun = base_of(app, "a").write, threading.Event(), threading.Event()

        def slow(*args: Any) -> None:
            begun.set()
            assert go_on.wait(SOON)
            write(*args)

        monkeypatch.setattr(base_of(app, "a"), "write", slow)
        flushing_a = threading.Thread(target=lambda: flusher(app).flush("a"))
        flushing_a.start()
        assert begun.wait(SOON)
        app.sql("DROP TABLE b")
        assert flushing_a.is_alive()
        go_on.set()
        flushing_a.join(SOON)
    for name in ("a", "b"):
        assert DeltaTable(str(tmp_path / name)).to_pyarrow_table().num_rows == 1


def test_drop_flushes_only_what_stays(tmp_path: Path, monkeypatch: Any) -> None:
    with App(create(tmp_path / "lake"), state=tmp_path / "state") as app:
        app.sql("CREATE TABLE own (id INT PRIMARY KEY) WITH ('extension' = 'delta')")
        app.sql("INSERT INTO own VALUES (1)")
        app.sql("INSERT INTO t VALUES (1, 'a')")
        monkeypatch.setattr(base_of(app, "own"), "write", lost)
        app.sql("DROP TABLE own")
        monkeypatch.setattr(base_of(app), "write", lost)
        with pytest.raises(Error, match="does not answer") as refused:
            app.sql("DROP TABLE t")
        assert "does not have 1 changed rows yet: drop it when the store answers" in str(refused.value.hint)
        assert count(app) == 1
        monkeypatch.undo()
        app.sql("DROP TABLE t")
    assert DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().num_rows == 1
