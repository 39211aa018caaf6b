"""Faults at every step of a commit: between the journal and the last table, in rolling streams, in compaction.

After an exception the app goes on with what is committed, whole; a statement that raised has done nothing, and one
that returned is there, in memory and after a restart. After SIGKILL a restart finds what was acknowledged.

This file is also the program that is killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from millpond import App, Error, faults
from millpond.errors import StoreStopped
from millpond.journal import tail, writer
from millpond.tables._storage import RowStorage
from millpond.testing.crash import crash
from millpond.testing.faults import Injected, failing, killing, recorded

SQL = """
CREATE STREAM s (k INT, x INT);
CREATE TABLE keyed (k INT PRIMARY KEY, x INT, t STRING);
CREATE TABLE plain (x INT, t STRING);
CREATE TABLE copies AS SELECT k, x FROM s;
CREATE TABLE totals AS SELECT k, COUNT(*) AS n, SUM(x) AS total, COLLECT_LIST(x) AS l FROM s GROUP BY k;
CREATE MATERIALIZED VIEW doubled AS SELECT t, SUM(x) AS total, COUNT(*) AS n FROM plain GROUP BY t;
CREATE TABLE along AS SELECT t, SUM(x) AS total, COUNT(*) AS n FROM plain GROUP BY t WITH ('consistency' = 'commit');
CREATE TABLE above AS SELECT COUNT(*) AS n, SUM(total) AS total FROM along WITH ('consistency' = 'commit');
BEGIN;
UPDATE keyed SET x = keyed.x + s.x FROM s WHERE keyed.k = s.k;
INSERT INTO plain SELECT s.x, 'streamed' FROM s;
COMMIT;
"""
TABLES = ("keyed", "plain", "copies", "totals", "doubled", "along", "above")
POINTS = [
    p
    for p in faults.POINTS
    if p.split(":")[0] in ("journal", "commit", "edit", "table", "stream", "compaction")
]

Op = Callable[[App], Any]


def send(rows: int, first: int) -> Op:
    def work(app: App) -> None:
        app.send("s", [{"k": (first + i) % 5, "x": first + i} for i in range(rows)])
        app.drain()

    return work


def transaction(app: App) -> None:
    with app.begin_transaction() as begun:
        begun.table("keyed").update("k = 1", {"x": 1_000})
        begun.table("plain").insert({"x": 7, "t": "transaction"})
        begun.table("plain").delete("x = 1")


OPS: list[Op] = [
    lambda app: app.sql("INSERT INTO keyed VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')"),
    lambda app: app.sql("INSERT INTO plain VALUES (1, 'a'), (2, 'b'), (3, 'c'), (1, 'a')"),
    send(3, 0),
    lambda app: app.sql("UPDATE keyed SET x = x * 2, t = concat(t, '!') WHERE k >= 2"),
    lambda app: app.sql("DELETE FROM plain WHERE x = 2"),
    lambda app: app.table("keyed").insert({"k": 4, "x": 4, "t": "single"}),
    lambda app: app.table("keyed").update("k = 4", {"x": 40}),
    lambda app: app.table("plain").insert({"x": 9, "t": "single"}),
    lambda app: app.table("keyed").delete(k=2),
    transaction,
    lambda app: app.sql(
        "BEGIN; UPDATE plain SET t = 'block' WHERE x = 3; DELETE FROM keyed WHERE k = 3; COMMIT"
    ),
    lambda app: app.sql("UPDATE plain SET x = x + 1"),
    lambda app: app.table("keyed").bulk_insert([{"k": k, "x": k, "t": "bulk"} for k in range(3, 9)]),
    send(20, 3),
    lambda app: app.sql(
        "MERGE INTO keyed USING (SELECT DISTINCT x FROM plain) p ON keyed.k = p.x"
        " WHEN MATCHED THEN UPDATE SET t = 'met' WHEN NOT MATCHED THEN INSERT (k, x, t) VALUES (p.x, 0, 'merged')"
    ),
    lambda app: app.sql("DELETE FROM plain WHERE t = 'block'"),
]


def is_send(op: Op) -> bool:
    return op.__name__ == "work"


def opened(state: str | Path | None) -> App:
    return App(SQL, state=state, compact_after="20KB", _direct=True)


def contents(app: App) -> dict[str, list[str]]:
    app.drain()
    return {name: sorted(repr(r) for r in app.table(name).all_rows()) for name in TABLES}


def make_haste(patch: pytest.MonkeyPatch) -> None:
    """Streams roll, and tables are compacted in memory, when there is little to do."""
    patch.setattr(writer, "ROLL_BYTES", 500)
    patch.setattr(tail, "_MOST_COMMITS", 2)
    patch.setattr(RowStorage, "idle_dead", 0)
    patch.setattr(RowStorage, "kept_commits", 1)
    patch.setattr(RowStorage, "piece", 2)


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    make_haste(monkeypatch)


@pytest.fixture(scope="module")
def visits() -> Counter[str]:
    """How often each point is reached when nothing fails."""
    with tempfile.TemporaryDirectory() as state, pytest.MonkeyPatch.context() as patch, recorded() as counts:
        make_haste(patch)
        with opened(state) as app:
            for op in OPS:
                op(app)
            app._runtime.compactor.compact("keyed")
            app._runtime.compactor.compact("plain")
        return counts


def test_every_point_is_reached(visits: Counter[str]) -> None:
    assert set(visits) >= set(POINTS)


Contents = dict[str, list[str]]


@pytest.fixture(scope="module")
def prefixes() -> list[Contents]:
    """What the tables hold after none, one, … all of the operations."""
    found = []
    with opened(None) as app:
        found.append(contents(app))
        for op in OPS:
            op(app)
            found.append(contents(app))
    return found


def check_fault(point: str, visit: int, error: BaseException | None, prefixes: list[Contents]) -> None:
    """Runs all operations, one of which meets the fault."""
    with tempfile.TemporaryDirectory() as state:
        app = opened(state)
        met: BaseException | None = None
        with failing(point, error, visit=visit):
            for op, before, after in zip(OPS, prefixes, prefixes[1:], strict=False):
                sent = app._runtime.journal.stream_end("s")
                try:
                    op(app)
                except (Injected, Error, KeyboardInterrupt, MemoryError) as raised:
                    assert not isinstance(raised, StoreStopped)
                    met = raised
                    if is_send(op):
                        # Sent or not; what was sent takes effect, after a restart at the latest.
                        crash(app)
                        app = opened(state)
                        again = app._runtime.journal.stream_end("s") == sent
                    else:
                        found = contents(app)
                        interrupted = isinstance(raised, KeyboardInterrupt)
                        assert found in ((before, after) if interrupted else (before,)), (point, visit)
                        again = found == before
                    if again:
                        op(app)
                if met:
                    assert contents(app) == after, (point, visit, met)
        assert contents(app) == prefixes[-1]
        crash(app)
        with opened(state) as app:
            assert contents(app) == prefixes[-1], (point, visit, met)


def chosen(visits: Counter[str], each: int, seed: int) -> list[tuple[str, int]]:
    """Some visits of every point."""
    chance = random.Random(seed)
    return [
        (point, visit)
        for point in POINTS
        for visit in sorted(chance.sample(range(1, visits[point] + 1), min(each, visits[point])))
    ]


@pytest.mark.slow
def test_an_exception_anywhere(visits: Counter[str], prefixes: list[Contents]) -> None:
    for point, visit in chosen(visits, 1, 1):
        check_fault(point, visit, None, prefixes)


@pytest.mark.slow
def test_an_interrupt_anywhere(visits: Counter[str], prefixes: list[Contents]) -> None:
    for point, visit in random.Random(2).sample(chosen(visits, 1, 2), 6):
        check_fault(point, visit, KeyboardInterrupt(), prefixes)


@pytest.mark.chaos
@pytest.mark.parametrize("error", [None, MemoryError(), KeyboardInterrupt()], ids=repr)
def test_an_exception_everywhere(
    visits: Counter[str], prefixes: list[Contents], error: BaseException | None
) -> None:
    for point, visit in chosen(visits, 20, 3):
        check_fault(point, visit, error, prefixes)


@contextmanager
def always_failing(point: str) -> Iterator[None]:
    def reached(name: str) -> None:
        if name == point:
            raise MemoryError

    faults.on_reach(reached)
    try:
        yield
    finally:
        faults.on_reach(None)


def rows_of(app: App) -> list[str]:
    return sorted(map(str, app.sql("SELECT * FROM t").rows()))


CHANGES_OUTSIDE: dict[str, Callable[[App], object]] = {
    "insert": lambda app: app.sql("INSERT INTO t VALUES (2, 2)").count,
    "update": lambda app: app.sql("UPDATE t SET x = 5 WHERE k = 1").count,
    "delete": lambda app: app.sql("DELETE FROM t WHERE k = 1").count,
    "merge": lambda app: (
        app.sql("MERGE INTO t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN DELETE").count
    ),
    "row": lambda app: app.table("t").insert({"k": 2, "x": 2}),
    "bulk": lambda app: app.table("t").bulk_insert([{"k": 2, "x": 2}, {"k": 3, "x": 3}]),
    "get and set": lambda app: app.table("t").update("k = 1", {"x": 7}),
    "transaction": lambda app: (
        app.sql("BEGIN; INSERT INTO t VALUES (4, 4); DELETE FROM t WHERE k = 1; COMMIT").count
    ),
}


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("change", CHANGES_OUTSIDE)
def test_what_a_database_has_committed_is_not_told_to_have_failed(
    change: str, cached: bool, tmp_path: Path
) -> None:
    found: list[list[object]] = []
    for disturbed in (False, True):
        state = tmp_path / str(disturbed)
        kept = (
            f"'extension' = 'cache', 'max_size' = '9', 'cache.over' = 'sqlite:///{tmp_path}/{disturbed}.db'"
        )
        kept = kept if cached else "'extension' = 'sqlite'"
        sql = f"CREATE TABLE t (k INT PRIMARY KEY, x INT) WITH ({kept}); INSERT INTO t VALUES (1, 1)"
        with App(sql, state=state) as app:
            app.table("t").get_record(1)
            with failing("database: committed", MemoryError()) if disturbed else nullcontext():
                told = CHANGES_OUTSIDE[change](app)
            here = [app.table("t").get_record(k) for k in range(1, 5)]
            found.append([told, here, rows_of(app)])
        with App(sql, state=state) as app:
            found[-1].append(rows_of(app))
    assert found[0] == found[1]
    assert found[0][2] == found[0][3]


def test_a_table_that_cannot_take_a_commit_stops_the_app(tmp_path: Path) -> None:
    """What is durable is not told to have failed; nothing is read of what is behind; a restart has all of it."""
    app = App("CREATE TABLE t (k INT PRIMARY KEY, x INT); CREATE TABLE u (x INT)", state=tmp_path)
    held = app.table("t")
    app.sql("INSERT INTO t VALUES (1, 1)")

    with always_failing("table: linked"):
        assert app.sql("UPDATE t SET x = 2").count == 1
    for ask in (
        lambda: app.sql("SELECT * FROM t"),
        lambda: app.sql("SELECT * FROM t WHERE k = 1"),
        lambda: held.get_record(1),
        lambda: held.all_rows(),
        lambda: held.insert({"k": 2, "x": 2}),
        lambda: app.sql("INSERT INTO u VALUES (1)"),
        lambda: app.table("u").insert({"x": 1}),
        lambda: app.table("u").all_rows(),
    ):
        with pytest.raises(StoreStopped, match="behind what was committed"):
            ask()
    assert not app.ready()
    app.close()
    with App(state=tmp_path) as app:
        assert app.sql("SELECT * FROM t").rows() == [{"k": 1, "x": 2}]
        assert app.sql("SELECT * FROM u").rows() == []


def test_without_a_state_directory_a_change_that_fails_has_not_happened() -> None:
    with App("CREATE TABLE t (k INT PRIMARY KEY, x INT)") as app:
        app.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
        with always_failing("table: pointed"), pytest.raises(MemoryError):
            app.sql("UPDATE t SET x = 5")
        assert app.sql("SELECT * FROM t ORDER BY k").rows() == [{"k": 1, "x": 1}, {"k": 2, "x": 2}]
        app.sql("UPDATE t SET x = x + 1")
        assert app.sql("SELECT * FROM t ORDER BY k").rows() == [{"k": 1, "x": 2}, {"k": 2, "x": 3}]


# kills


def work(state: str, point: str, visit: int) -> None:
    """Runs the operations from the one that is not acknowledged on, and says when each is done."""
    make_haste(pytest.MonkeyPatch())
    fault = killing(point, visit=visit) if point else nullcontext()
    with fault, opened(state) as app:
        for number, op in enumerate(OPS):
            op(app)
            print(number, flush=True)
        # How often the threads beside compact and fold depends on time: the point is reached here at the latest.
        as_it_is = app.sql("SELECT x FROM keyed WHERE k = 4").rows()[0]
        for _ in range(100):
            app.table("keyed").update("k = 4", as_it_is)
        for _ in range(100):
            app._runtime.compactor.compact("keyed")
            app._runtime.compactor.compact("plain")


def check_one_commit(app: App) -> None:
    """The journal has the views that change in the same commit as it has their input."""
    found = {r["t"]: (r["total"], r["n"]) for r in app.sql("SELECT * FROM along").rows()}
    asked = app.sql("SELECT t, SUM(x) AS total, COUNT(*) AS n FROM plain GROUP BY t").rows()
    assert found == {r["t"]: (r["total"], r["n"]) for r in asked}
    asked = app.sql("SELECT COUNT(DISTINCT t) AS n, SUM(x) AS total FROM plain").rows()
    assert app.sql("SELECT n, total FROM above").rows() == asked


def check_kill(point: str, visit: int, prefixes: list[Contents]) -> None:
    with tempfile.TemporaryDirectory() as state:
        arguments = [sys.executable, "-m", "tests.test_commit_faults", state, point, str(visit)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
        assert done.returncode == -signal.SIGKILL, done.stderr
        acknowledged = len(done.stdout.split())
        with App(state=state, _read_only=True) as app:
            check_one_commit(app)
        with opened(state) as app:
            found = contents(app)
            expected = prefixes[acknowledged : acknowledged + 2]
            assert found in expected, (point, visit, acknowledged)
            for op in OPS[acknowledged + expected.index(found) :]:
                op(app)
            assert contents(app) == prefixes[-1], (point, visit)


@pytest.mark.slow
def test_killed_anywhere(visits: Counter[str], prefixes: list[Contents]) -> None:
    some = random.Random(4).sample(chosen(visits, 1, 5), 6)
    for point, visit in some:
        check_kill(point, visit, prefixes)


@pytest.mark.chaos
def test_killed_everywhere(visits: Counter[str], prefixes: list[Contents]) -> None:
    for point, visit in chosen(visits, 6, 6):
        check_kill(point, visit, prefixes)


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    os._exit(0)
