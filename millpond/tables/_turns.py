"""Turns of writers.

A thread that waits in a plain lock takes it the moment it is free, while the interpreter still runs the thread that
freed it; that one then blocks at its next write, and every write costs a switch of threads. Here a waiting thread
sleeps and looks again, so that a writer that has the interpreter goes on for as long as it has it.
"""

from __future__ import annotations

import threading
import time

_SHORTEST, _LONGEST = 0.00002, 0.001


class Turns:
    """A lock for short writes; not reentrant."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            pause = _SHORTEST
            while not self._lock.acquire(False):
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST)

    def __exit__(self, *_: object) -> None:
        self._lock.release()
