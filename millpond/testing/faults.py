"""Injects faults in tests: an error, or a kill, at a named point of the code (``millpond.faults``)."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from millpond import faults


class Injected(Exception):
    """Is raised at a point where a test wants a failure that no code expects."""


@contextmanager
def at(point: str, act: Callable[[], None], *, visit: int = 1) -> Iterator[None]:
    """Calls ``act`` when the point is reached for the ``visit``-th time."""
    if point not in faults.POINTS:
        raise ValueError(f'there is no point "{point}"')
    left = visit
    lock = threading.Lock()

    def reached(name: str) -> None:
        nonlocal left
        if name != point:
            return
        with lock:
            left -= 1
            due = left == 0
        if due:
            act()

    faults.on_reach(reached)
    try:
        yield
    finally:
        faults.on_reach(None)


def failing(
    point: str, error: BaseException | None = None, *, visit: int = 1
) -> AbstractContextManager[None]:
    """Raises ``error`` at the point; by default one that no code expects. An interrupt comes only to the main thread,
    as in reality.
    """

    def fail() -> None:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is not threading.main_thread():
            return
        raise error or Injected(point)

    return at(point, fail, visit=visit)


def killing(point: str, *, visit: int = 1) -> AbstractContextManager[None]:
    """Kills the process by SIGKILL at the point."""
    return at(point, lambda: os.kill(os.getpid(), signal.SIGKILL), visit=visit)


@contextmanager
def recorded() -> Iterator[Counter[str]]:
    """Counts how often each point is reached."""
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    def reached(name: str) -> None:
        with lock:
            counts[name] += 1

    faults.on_reach(reached)
    try:
        yield counts
    finally:
        faults.on_reach(None)
