"""The log of small commits: what is acknowledged is there after kill -9 and a torn write, once, and nothing else is.

This file is also the program that is killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import App
from millpond.changes import Position
from millpond.errors import StateCorrupt, StateUnwritable
from millpond.journal import Journal, tail
from millpond.journal.damage_report import survey
from millpond.journal.requests import GroupCommit, Receipt, Request
from millpond.journal.row_log import ROWS, Found, RowLog
from millpond.journal.small_changes import RowChange, RowForm

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
FORM = RowForm(SCHEMA)


def put(journal: Journal, *ids: int, table: str = "t", sync: bool = False, deleted: bool = False) -> int:
    changes = [RowChange(table, FORM, deleted, [i, None if deleted else f"n{i}"]) for i in ids]
    return journal.commit_rows(changes, sync=sync, receipt=Receipt())


def ids_of(journal: Journal, table: str = "t") -> list[int]:
    """The ids of all changes of the table, in order, of deletes below zero."""
    found = []
    for change in journal.restore(table):
        gone = change.deleted.to_pylist() if change.deleted is not None else [False] * len(change)
        ids = change.rows["id"].to_pylist()
        found += [-1 - i if is_gone else i for i, is_gone in zip(ids, gone, strict=True)]
    return found


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Journal]:
    """A journal with ten commits, of which the database has the first."""
    journal = Journal(tmp_path, durable=True)
    for i in range(10):
        assert put(journal, i) == i + 1
    yield journal
    journal.abandon()


@pytest.mark.parametrize("read_only", [False, True])
def test_what_the_log_has_is_there_after_a_crash(tmp_path: Path, logged: Journal, read_only: bool) -> None:
    put(logged, 3, deleted=True)
    put(logged, 20, 21)
    put(logged, 0, table="other")
    logged.abandon()
    for _ in range(2):
        again = Journal(tmp_path, durable=True, read_only=read_only)
        assert ids_of(again) == [*range(10), -4, 20, 21]
        assert ids_of(again, "other") == [0] and again.last_commit() == 13
        assert again.has_table("other")
        again.abandon()
    again = Journal(tmp_path, durable=True)
    assert put(again, 22) == 14
    again.close()
    assert not (tmp_path / ROWS).exists()
    assert ids_of(Journal(tmp_path, durable=True)) == [*range(10), -4, 20, 21, 22]


def test_a_torn_record_ends_the_log(tmp_path: Path, logged: Journal) -> None:
    before = (tmp_path / ROWS).stat().st_size
    put(logged, 10)
    put(logged, 11)
    logged.abandon()
    whole = (tmp_path / ROWS).read_bytes()
    last = len(whole) - (len(whole) - before) // 2
    for cut in {last, last + 1, last + 15, last + 16, last + 17, len(whole) - 1}:
        for torn in (whole[:cut], whole[:cut] + bytes(len(whole) - cut)):
            (tmp_path / ROWS).write_bytes(torn)
            found = Found(tmp_path, 2)
            assert len(found.records) == 10 and found.revision == 12
    again = Journal(tmp_path, durable=True)
    assert ids_of(again) == [*range(11)]
    put(again, 12)
    again.abandon()
    assert ids_of(Journal(tmp_path, durable=True)) == [*range(11), 12]


def test_a_damaged_record_that_was_on_the_disk_is_told(tmp_path: Path, logged: Journal) -> None:
    put(logged, 10, sync=True)
    logged.abandon()
    whole = (tmp_path / ROWS).read_bytes()
    for at in (0, 12, 40, len(whole) // 2, len(whole) - 2):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        (tmp_path / ROWS).write_bytes(damaged)
        for read_only in (False, True):
            with pytest.raises(StateCorrupt):
                Journal(tmp_path, durable=True, read_only=read_only)
        assert (tmp_path / ROWS).read_bytes() == bytes(damaged)


def test_records_of_before_a_restart_of_the_log_do_not_count(tmp_path: Path, logged: Journal) -> None:
    """The new records have the lengths of the old ones, which follow them in the file."""
    logged.commit(done=["a"])
    for i in range(4):
        put(logged, i)
    logged.abandon()
    again = Journal(tmp_path, durable=True)
    assert ids_of(again) == [*range(10), *range(4)] and again.done("a")
    again.abandon()


def test_a_log_that_is_ahead_of_the_database_does_not_count(tmp_path: Path) -> None:
    """The power went: a transaction that waited for no disk is lost, and records that came after it are there."""
    journal = Journal(tmp_path, durable=True)
    put(journal, 1)
    journal.close()
    log = RowLog(tmp_path)
    for revision in (40, 41):
        record = log.record(revision, b"\x02\x00\x00\x00[]")
        log.write(record, sync=True)
        log.end += len(record)
    log.close()
    assert not Found(tmp_path, 10).records and Found(tmp_path, 10).highest == 41
    again = Journal(tmp_path, durable=True)
    for i in range(2, 60):
        put(again, i)
    again.abandon()
    assert ids_of(Journal(tmp_path, durable=True)) == [*range(1, 60)]


def test_the_database_gets_many_commits_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_MOST_COMMITS", 10)
    monkeypatch.setattr(tail, "_LOG_BYTES", 1_000)
    journal = Journal(tmp_path, durable=True)
    for i in range(95):
        put(journal, i)
    assert (tmp_path / ROWS).stat().st_size < 3_000
    journal.abandon()
    again = Journal(tmp_path, durable=True)
    assert ids_of(again) == [*range(95)]
    assert again.weight("t").changes < 20 * (1 << 14)


def test_a_dropped_table_does_not_come_back(tmp_path: Path, logged: Journal) -> None:
    put(logged, 1, table="new")
    logged.drop_table("new")
    logged.drop_table("t")
    logged.abandon()
    again = Journal(tmp_path, durable=True)
    assert ids_of(again, "new") == [] and ids_of(again) == []


def test_a_compacted_table_has_its_rows_once(tmp_path: Path, logged: Journal) -> None:
    """Rows without a key are added again by a change that is applied twice."""
    commit = logged.boundary()
    put(logged, 10)
    snapshot = logged.snapshot([pa.table({"id": list(range(10)), "name": ["x"] * 10}, SCHEMA)])
    put(logged, 11)
    logged.compact("t", snapshot, commit=commit)
    put(logged, 12)
    logged.abandon()
    assert sorted(ids_of(Journal(tmp_path, durable=True))) == [*range(13)]


@pytest.mark.parametrize("name", ["pwrite", "fdatasync"])
def test_a_write_that_fails_leaves_nothing(
    tmp_path: Path, logged: Journal, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, name, full)
        with pytest.raises(StateUnwritable, match="No space"):
            put(logged, 99, sync=True)
    put(logged, 10, sync=True)
    logged.abandon()
    assert ids_of(Journal(tmp_path, durable=True)) == [*range(11)]


VALUES = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**31), 2**31 - 1),
        "f": st.none() | st.floats(allow_nan=False),
        "b": st.none() | st.booleans(),
        "s": st.none() | st.text(st.characters(codec="utf-8"), max_size=5),
        "d": st.none() | st.dates(date(1700, 1, 1), date(2300, 1, 1)),
        "ts": st.none()
        | st.datetimes(datetime(1700, 1, 1), datetime(2300, 1, 1)).map(lambda v: v.replace(tzinfo=UTC)),
        "n": st.none() | st.decimals(-1000, 1000, places=2),
        "w": st.none() | st.decimals(Decimal(-(10**29)), Decimal(10**29), places=3),
    }
)


def test_a_log_whose_sync_has_failed_is_not_trusted_again(
    tmp_path: Path, logged: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next sync would succeed, although the disk does not have what the failed one left out."""

    def fail(file: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(StateUnwritable, match="Input/output"):
            put(logged, 10, sync=True)
    before = (tmp_path / ROWS).read_bytes()[:16]
    put(logged, 11, sync=True)
    (tmp_path / ROWS).write_bytes(b"")  # whatever the disk has of it
    put(logged, 12, sync=True)
    assert (tmp_path / ROWS).read_bytes()[:16] != before
    logged.abandon()
    again = Journal(tmp_path, durable=True)
    assert ids_of(again) == [*range(10), 11, 12]
    again.close()


def test_the_log_does_not_grow_beside_commits_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_LOG_BYTES", 10_000)
    journal = Journal(tmp_path, durable=True)
    for number in range(300):
        put(journal, number)
        journal.commit(position=Position("p", "c", number), sync=False)
    assert (tmp_path / ROWS).stat().st_size < 11_000
    journal.close()


def test_only_the_log_is_damaged(tmp_path: Path, logged: Journal) -> None:
    logged.commit(position=Position("p", "c", 1), sync=True)
    put(logged, 10)
    logged.abandon()
    (tmp_path / ROWS).write_bytes(b"x" * 100)
    told = survey(tmp_path)
    assert 'table "t": whole, 10 changes' in told and "journal.rows" in told and "cannot be read" in told


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StateUnwritable("away")])
def test_a_writer_that_fails_before_it_writes_does_not_stop_the_others(error: BaseException) -> None:
    lock, written = FailingLock(error), []
    group = GroupCommit(lambda requests: written.extend(requests), lock)
    with pytest.raises(type(error)):
        group.submit(Request({}, {}, (), ()))
    lock.error = None
    second = Request({}, {}, (), ())
    thread = threading.Thread(target=group.submit, args=(second,), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive() and written == [second]


class FailingLock:
    def __init__(self, error: BaseException | None):
        self.error = error

    def __enter__(self) -> None:
        if self.error is not None:
            raise self.error

    def __exit__(self, *_: object) -> None:
        pass


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(VALUES, min_size=1, max_size=8), gone=st.sets(st.integers(0, 7)))
def test_rows_of_every_type_survive(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], gone: set[int]
) -> None:
    state = tmp_path_factory.mktemp("state")
    sql = """
        CREATE TABLE t (k INT PRIMARY KEY, i INT, f DOUBLE, b BOOLEAN, s STRING, d DATE, ts TIMESTAMP,
                        n DECIMAL(6, 2), w DECIMAL(38, 3)) WITH ('durability' = 'batch');
        CREATE TABLE p (k INT, l ARRAY<INT>, raw BINARY);
    """
    app = App(sql, state=state)
    table = app.table("t")
    for k, row in enumerate(rows):
        table.insert({"k": k, **row})
        app.table("p").insert({"k": k, "l": [k, None], "raw": b"\x00" * k})
    for k in gone:
        table.delete(k)
    for k in range(0, 8, 2):
        table.update({"k": k}, {"s": "again"})
    expected = sorted(map(repr, table.all_rows())), sorted(map(repr, app.table("p").all_rows()))
    app._runtime.journal.abandon()
    app.close()
    with App(sql, state=state) as again:
        found = (sorted(map(repr, again.table(name).all_rows())) for name in ("t", "p"))
        assert tuple(found) == expected


# kill -9 while many threads commit

THREADS = 12
SQL = """
CREATE TABLE now (id INT PRIMARY KEY, n INT, text STRING);
CREATE TABLE soon (id INT PRIMARY KEY, n INT, text STRING) WITH ('durability' = 'batch');
CREATE TABLE added (id INT, n INT) WITH ('durability' = 'batch');
"""


def work(state: str) -> None:
    tail._MOST_COMMITS = 7
    tail._LOG_BYTES = 4_000
    with App(SQL, state=state) as app:
        threads = [threading.Thread(target=count, args=(app, who)) for who in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def count(app: App, who: int) -> None:
    name = "now" if who % 2 else "soon"
    table, added = app.table(name), app.table("added")
    n = (table.get_record(who) or {"n": 0})["n"]
    if n:
        added.delete(f"id = {who} AND n > {n}")
        missing = set(range(n + 1)) - {r["n"] for r in added.find(id=who)} - {0}
        assert missing <= {n}, missing
        for gone in missing:
            added.insert({"id": who, "n": gone})
    while True:
        n += 1
        table.insert({"id": who, "n": n, "text": str(n)})
        added.insert({"id": who, "n": n})
        os.write(1, f"{who} {n}\n".encode())


def killed_once(state: Path, acknowledged: dict[int, int], seconds: float) -> None:
    command = (sys.executable, "-m", __name__, str(state))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline()]
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        for line in [*lines, *process.stdout]:
            if line.endswith("\n") and line.strip():
                who, n = map(int, line.split())
                acknowledged[who] = max(n, acknowledged.get(who, 0))
        told = process.stderr.read()
        assert "Error" not in told, told


def check_threads(state: Path, acknowledged: dict[int, int]) -> None:
    with App(SQL, state=state) as app:
        for who in range(THREADS):
            row = app.table("now" if who % 2 else "soon").get_record(who)
            n = row["n"] if row else 0
            assert acknowledged.get(who, 0) <= n, "an acknowledged change is lost"
            assert row is None or row["text"] == str(n)
            added = sorted(r["n"] for r in app.table("added").find(id=who))
            assert added in ([*range(1, n + 1)], [*range(1, n)]), "a row is doubled or lost"
            assert len(added) >= acknowledged.get(who, 0)


@pytest.mark.slow
def test_threads_are_killed_while_they_commit(tmp_path: Path) -> None:
    chance, acknowledged = random.Random(3), dict[int, int]()
    for _ in range(4):
        killed_once(tmp_path / "s", acknowledged, chance.uniform(0, 0.6))
        check_threads(tmp_path / "s", acknowledged)
    assert sum(acknowledged.values()) > THREADS


@pytest.mark.chaos
def test_threads_are_killed_often_while_they_commit(tmp_path: Path) -> None:
    chance, acknowledged = random.Random(4), dict[int, int]()
    for _ in range(60):
        killed_once(tmp_path / "s", acknowledged, chance.uniform(0, 0.5))
        check_threads(tmp_path / "s", acknowledged)
    print("acknowledged:", sum(acknowledged.values()))


def test_the_log_keeps_its_times(tmp_path: Path) -> None:
    """Cells are numbers: those of the earliest and latest times are the same after a crash."""
    app = App("CREATE TABLE t (k INT PRIMARY KEY, ts TIMESTAMP, d DATE)", state=tmp_path)
    early, late = (
        datetime(1, 1, 2, tzinfo=UTC),
        datetime(9999, 12, 30, tzinfo=UTC) + timedelta(microseconds=1),
    )
    app.table("t").insert({"k": 1, "ts": early, "d": date(1, 1, 1)})
    app.table("t").insert({"k": 2, "ts": late, "d": date(9999, 12, 31)})
    before = app.table("t").all_rows()
    app._runtime.journal.abandon()
    app.close()
    with App(state=tmp_path) as again:
        assert again.table("t").all_rows() == before


if __name__ == "__main__":
    work(sys.argv[1])
