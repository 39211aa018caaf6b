"""Slots for large queries: so many at once, in order, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from millpond import App, allowance
from millpond.errors import TimedOut
from millpond.query import concurrency
from millpond.query.concurrency import LARGE, QuerySlots

LONG = 20.0
SMALL, MANY = {"t": pa.table({"a": pa.nulls(LARGE - 1)})}, {"t": pa.table({"a": pa.nulls(LARGE)})}


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_only_so_many_large_queries_run_at_once() -> None:
    slots, running, most, done = QuerySlots(2), [0], [0], []
    lock, release = threading.Lock(), threading.Event()

    def query(number: int) -> None:
        with slots.slot(MANY):
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            release.wait()
            with lock:
                running[0] -= 1
                done.append(number)

    with ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(query, number) for number in range(6)]
        _until(lambda: running[0] == 2)
        with slots.slot(SMALL):
            assert running == [2]
        release.set()
        for one in asked:
            one.result(LONG)
    assert most == [2] and sorted(done) == list(range(6))
    with slots.slot(MANY), slots.slot(MANY):
        pass


def test_a_query_inside_of_another_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "_LONGEST", 0.1)
    slots = QuerySlots(1)
    for _ in range(3):
        with slots.slot(MANY), slots.slot(MANY):
            pass


def test_who_waits_may_be_ended() -> None:
    slots = QuerySlots(1)
    late = allowance.Allowance(0.05)
    with slots.slot(MANY), allowance.given(late), pytest.raises(TimedOut), slots.slot(MANY):
        pass
    with slots.slot(MANY):
        pass


@pytest.mark.parametrize("text", ["SELECT COUNT(*) AS n FROM t", "SELECT 1; SELECT COUNT(*) AS n FROM t"])
def test_large_queries_take_turns_and_changes_do_not_wait(text: str) -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY)") as app, ThreadPoolExecutor(2) as threads:
        app.table("t").bulk_insert(pa.table({"id": pa.array(range(LARGE), pa.int32())}))
        slots = app._runtime.evaluator.slots = QuerySlots(1)
        app._runtime.plans.clear()
        with slots.slot(MANY):
            found = threads.submit(app.sql, text)
            _until(lambda: bool(slots.waiting))
            assert app.sql("SELECT id FROM t WHERE id = 7").rows() == [{"id": 7}]
            assert (
                threads.submit(app.sql, "UPDATE t SET id = -id WHERE id % 2 = 1").result(LONG).count
                == LARGE // 2
            )
            assert not found.done()
        assert found.result(LONG).rows() == [{"n": LARGE}]
