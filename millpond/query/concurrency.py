"""Limits large queries that run at once to the number of processors, so that each gets its share."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

import pyarrow as pa

from millpond import allowance
from millpond.query.low_priority import LowPriorityThreads

T = TypeVar("T")
LARGE = 100_000
"""Rows of the inputs of a query that needs a slot: a smaller one ends sooner than it would get one."""
_LONGEST = 60.0
"""Maximum seconds that a query waits."""
_LOOK = 0.05


class QuerySlots:
    """Gives slots to large queries, first come, first served. DuckDB divides its threads and its memory among the
    queries that run; with more of them than processors each would be slower, use more memory, and leave less to
    lookups. A query that calls functions of a program takes no slot: such a function may run a query itself.
    """

    def __init__(self, at_once: int | None = None):
        self._free = at_once or os.cpu_count() or 1
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._threads = LowPriorityThreads()

    @property
    def waiting(self) -> int:
        """Returns how many are waiting."""
        return len(self._waiting)

    def run(self, tables: Mapping[str, pa.Table], query: Callable[[], T]) -> T:
        """Returns the result of a query over these tables, when it may run. The caller holds no lock."""
        if sum(t.num_rows for t in tables.values()) < LARGE:
            return query()
        has_slot = self._take()
        try:
            return self._threads.run(query)
        finally:
            if has_slot:
                self._give()

    def close(self) -> None:
        self._threads.close()

    def _take(self) -> bool:
        """Waits for a slot; returns False after the maximum wait, and it continues without one."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            mine = threading.Event()
            self._waiting.append(mine)
        end = time.monotonic() + _LONGEST
        try:
            while (left := end - time.monotonic()) > 0:
                if mine.wait(min(left, _LOOK)):
                    return True
                allowance.check()
        except BaseException:
            if self._leave(mine):
                self._give()
            raise
        return self._leave(mine)

    def _leave(self, mine: threading.Event) -> bool:
        """Stops waiting; returns whether the slot has come meanwhile."""
        with self._lock:
            if mine.is_set():
                return True
            self._waiting.remove(mine)
            return False

    def _give(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1
