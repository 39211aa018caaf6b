"""Limits the work of a thread: its time, and the rows and bytes of a result.

Whoever does work for others (a client over HTTP) gives its thread an allowance. It is checked between the steps of a
statement, and another thread can cancel the current step, if it can be cancelled. What must not be interrupted, a
commit, is shielded: there it is neither checked nor cancelled. Threads without an allowance have no limits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millpond.errors import QueryFailed, TimedOut

_current = threading.local()


class Allowance:
    """Contains the limits. ``rows`` and ``bytes`` are those of a result; None is any number. With ``guest`` queries run
    where memory is limited, separately from those of the app.
    """

    def __init__(self, seconds: float, *, rows: int | None = None, bytes: int | None = None):
        self.seconds = seconds
        self.rows = rows
        self.bytes = bytes
        self.guest = True
        self._until = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._ended = False
        self._step: Callable[[], object] | None = None
        self._shields = 0

    @property
    def over(self) -> bool:
        """Returns whether the time is up, or somebody has cancelled it."""
        return self._ended or time.monotonic() >= self._until

    @property
    def left(self) -> float:
        """Returns the remaining seconds."""
        return max(0.0, self._until - time.monotonic())

    def free(self) -> None:
        """Removes all limits but that of time."""
        self.rows = self.bytes = None
        self.guest = False

    def check(self) -> None:
        """Raises TimedOut if it is over, unless it is shielded."""
        if self.over and not self._shields:
            raise TimedOut(
                f"not answered within {self.seconds:g} s",
                hint="request less, or store the result in a live table",
            )

    def check_size(self, rows: int, size: int) -> None:
        """Raises QueryFailed for a result that is larger than allowed."""
        if self.rows is not None and rows > self.rows:
            what = f"more than {self.rows:,} rows"
        elif self.bytes is not None and size > self.bytes:
            what = f"more than {self.bytes:,} bytes"
        else:
            return
        raise QueryFailed(
            f"the answer has {what}", hint="request less: LIMIT, a condition, or a page of rows"
        )

    def end(self) -> None:
        """Cancels the work: the current step if possible, else before the next one. May be called again, by any thread,
        until the work is done.
        """
        with self._lock:
            self._ended = True
            if self._step is not None and not self._shields:
                self._step()

    @contextmanager
    def doing(self, end: Callable[[], object]) -> Iterator[None]:
        self.check()
        with self._lock:
            before, self._step = self._step, end
        try:
            yield
        finally:
            with self._lock:
                self._step = before

    @contextmanager
    def shielded(self) -> Iterator[None]:
        with self._lock:
            self._shields += 1
        try:
            yield
        finally:
            with self._lock:
                self._shields -= 1


def current() -> Allowance | None:
    """Returns the allowance of this thread, if it has one."""
    return getattr(_current, "allowance", None)


@contextmanager
def given(allowance: Allowance) -> Iterator[None]:
    """Gives this thread an allowance."""
    before, _current.allowance = current(), allowance
    try:
        yield
    finally:
        _current.allowance = before


def check() -> None:
    """Raises TimedOut if the time of this thread's work is over. A step calls it before it begins."""
    allowance = current()
    if allowance is not None:
        allowance.check()


@contextmanager
def ending(end: Callable[[], object]) -> Iterator[None]:
    """Registers ``end``, which cancels the work inside; whoever cancels the allowance calls it, in another thread."""
    allowance = current()
    if allowance is None:
        yield
    else:
        with allowance.doing(end):
            yield


@contextmanager
def shielded() -> Iterator[None]:
    """Protects the work inside from cancellation and from the time limit, which is checked once before."""
    allowance = current()
    if allowance is None:
        yield
    else:
        allowance.check()
        with allowance.shielded():
            yield
