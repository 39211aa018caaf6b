"""Slots for large queries: so many at once, in order, and nobody waits for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pytest

from millpond import App, allowance, steps
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


@contextmanager
def _taken(slots: QuerySlots) -> Iterator[None]:
    """A large query runs inside."""
    begun, end = threading.Event(), threading.Event()

    def query() -> None:
        begun.set()
        end.wait(LONG)

    thread = threading.Thread(target=slots.run, args=(MANY, query))
    thread.start()
    begun.wait(LONG)
    try:
        yield
    finally:
        end.set()
        thread.join(LONG)


def test_only_so_many_large_queries_run_at_once() -> None:
    slots, running, most, done = QuerySlots(2), [0], [0], []
    lock, release = threading.Lock(), threading.Event()

    def query(number: int) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        release.wait()
        with lock:
            running[0] -= 1
            done.append(number)

    with ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(slots.run, MANY, partial(query, number)) for number in range(6)]
        _until(lambda: running[0] == 2)
        assert slots.run(SMALL, lambda: running[0]) == 2
        release.set()
        for one in asked:
            one.result(LONG)
    assert most == [2] and sorted(done) == list(range(6))
    assert slots.run(MANY, lambda: slots.run(MANY, lambda: 1)) == 1


def test_a_query_inside_of_another_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "_LONGEST", 0.1)
    slots = QuerySlots(1)
    for _ in range(3):
        assert slots.run(MANY, lambda: slots.run(MANY, lambda: 1)) == 1


def test_who_waits_may_be_ended() -> None:
    slots = QuerySlots(1)
    late = allowance.Allowance(0.05)
    with _taken(slots), allowance.given(late), pytest.raises(TimedOut):
        slots.run(MANY, lambda: None)
    assert slots.run(MANY, lambda: 1) == 1


@pytest.mark.parametrize("text", ["SELECT COUNT(*) AS n FROM t", "SELECT 1; SELECT COUNT(*) AS n FROM t"])
def test_large_queries_take_turns_and_changes_do_not_wait(text: str) -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY)") as app, ThreadPoolExecutor(2) as threads:
        app.table("t").bulk_insert(pa.table({"id": pa.array(range(LARGE), pa.int32())}))
        slots = app._runtime.evaluator.slots = QuerySlots(1)
        app._runtime.plans.clear()
        with _taken(slots):
            found = threads.submit(app.sql, text)
            _until(lambda: bool(slots.waiting))
            assert app.sql("SELECT id FROM t WHERE id = 7").rows() == [{"id": 7}]
            assert (
                threads.submit(app.sql, "UPDATE t SET id = -id WHERE id % 2 = 1").result(LONG).count
                == LARGE // 2
            )
            assert not found.done()
        assert found.result(LONG).rows() == [{"n": LARGE}]


@pytest.mark.parametrize(
    "text", ["SELECT MAX(twice(id)) AS n FROM t", "SELECT 1; SELECT MAX(twice(id)) AS n FROM t"]
)
def test_a_query_with_a_function_of_the_program_does_not_wait(text: str) -> None:
    """The function may run a query itself, which then could not run while this one waits for it."""
    with App("CREATE TABLE t (id INT PRIMARY KEY)") as app, ThreadPoolExecutor(1) as threads:
        app.table("t").bulk_insert(pa.table({"id": pa.array(range(LARGE), pa.int32())}))

        @app.function
        def twice(n: int) -> int:
            return 2 * n

        slots = app._runtime.evaluator.slots = QuerySlots(1)
        app._runtime.plans.clear()
        with _taken(slots):
            for _ in range(2):
                assert threads.submit(app.sql, text).result(LONG).rows() == [{"n": 2 * LARGE - 2}]


def _priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_large_queries_have_a_lower_priority() -> None:
    slots = QuerySlots(1)
    assert slots.run(SMALL, _priority) == _priority() < slots.run(MANY, _priority)
    assert slots.run(MANY, lambda: slots.run(SMALL, _priority)) == slots.run(MANY, _priority)


def test_what_the_thread_has_the_query_has() -> None:
    slots, limit, record = QuerySlots(1), allowance.Allowance(60), steps.Steps()
    with allowance.given(limit), steps.recording(record):
        assert slots.run(MANY, lambda: (allowance.current(), steps.current())) == (limit, record)
    assert slots.run(MANY, steps.current) is None


def test_threads_are_used_again_and_end() -> None:
    slots, used = QuerySlots(2), set()
    for _ in range(5):
        used.add(slots.run(MANY, threading.current_thread))
    with pytest.raises(ZeroDivisionError):
        slots.run(MANY, lambda: 1 // 0)
    assert used == {slots.run(MANY, threading.current_thread)}
    slots.close()
    (thread,) = used
    thread.join(LONG)
    assert not thread.is_alive()
    assert slots.run(MANY, lambda: 1) == 1


def test_an_interrupt_ends_the_query() -> None:
    """Ctrl-C reaches the main thread alone; the query runs in another one."""
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["interrupted", "[{'n':", "7}]"], done.stderr


_INTERRUPTED = """
import os, signal, threading, time
import pyarrow as pa
from millpond import App

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
with App("CREATE TABLE t (id INT PRIMARY KEY)") as app:
    app.table("t").bulk_insert(pa.table({"id": pa.array(range(300_000), pa.int32())}))
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        app.sql("SELECT COUNT(*) AS n FROM t a CROSS JOIN t b WHERE (a.id % 100) * (b.id % 99) % 7 = 3")
    except KeyboardInterrupt:
        print("interrupted")
    print(app.sql("SELECT COUNT(*) AS n FROM t WHERE id < 7").rows())
"""
