"""Runs large queries in threads of a lower priority, so that lookups and pipelines need not wait for a processor.

Linux gives each thread a priority of its own, and lets a thread lower it but not raise it again: the threads here do
nothing else. Elsewhere they have the priority of the process.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from millpond import allowance, steps
from millpond.allowance import Allowance

T = TypeVar("T")
_Task = tuple[Future[Any], Callable[[], Any]]
_LOWER = 10
"""How much lower it is, in steps of ``nice``. Beside a thread of normal priority a query gets a tenth of a processor
that both want, and all of it when nobody else wants it."""
_LOOK = 0.05


class LowPriorityThreads:
    """Has as many threads as it had queries at once. They do not keep the process from ending."""

    def __init__(self) -> None:
        self._idle: deque[SimpleQueue[_Task | None]] = deque()
        self._closed = False

    def run(self, work: Callable[[], T]) -> T:
        """Returns the result of the work, which has the limits and the record of the calling thread. If that thread
        is interrupted, the work is cancelled first.
        """
        limit = allowance.current() or _unlimited()
        record = steps.current()

        def limited() -> T:
            with allowance.given(limit), steps.recording(record):
                return work()

        future: Future[T] = Future()
        self._free_thread().put((future, limited))
        try:
            return _result(future, limit)
        finally:
            del future  # an error in it has the frames of the query

    def close(self) -> None:
        """Ends the threads; those with a query after it."""
        self._closed = True
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().put(None)

    def _free_thread(self) -> SimpleQueue[_Task | None]:
        """Returns the queue of a thread that waits for work."""
        with suppress(IndexError):
            return self._idle.pop()
        tasks: SimpleQueue[_Task | None] = SimpleQueue()
        threading.Thread(target=self._work, args=(tasks,), name="millpond-query", daemon=True).start()
        return tasks

    def _work(self, tasks: SimpleQueue[_Task | None]) -> None:
        _lower()
        while (task := tasks.get()) is not None:
            future, work = task
            settle: Callable[[], None]
            try:
                settle = partial(future.set_result, work())
            except BaseException as error:
                settle = partial(future.set_exception, error)
            self._idle.append(tasks)  # first: who has the result may have the next query at once
            settle()
            del task, future, work, settle  # a thread that waits keeps no rows
            if self._closed:
                self.close()


def _result(future: Future[T], limit: Allowance) -> T:
    try:
        return future.result()
    except BaseException:
        while not future.done():
            limit.end()
            wait([future], _LOOK)
        raise


def _unlimited() -> Allowance:
    limit = Allowance(math.inf)
    limit.free()
    return limit


def started_low(start: Callable[[], T]) -> T:
    """Returns the result of ``start``; threads that it starts have the lower priority."""
    found: Future[T] = Future()

    def run() -> None:
        _lower()
        try:
            found.set_result(start())
        except BaseException as error:
            found.set_exception(error)

    thread = threading.Thread(target=run, name="millpond-query-start")
    thread.start()
    thread.join()
    return found.result()


def _lower() -> None:
    if sys.platform == "linux":
        process = os.getpriority(os.PRIO_PROCESS, os.getpid())
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), process + _LOWER)
