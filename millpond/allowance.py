"""What the work of a thread may take: so much time, and so many rows and bytes of an answer.

Whoever does work for others (a client over HTTP) gives its thread an allowance. It is checked between the steps of a
statement, and whoever waits can end the step that is being done, if it can be ended. What must not be left half done,
a commit, is shielded: there it is neither checked nor ended. Threads without an allowance may take what they like.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millpond.errors import QueryFailed, TimedOut

_current = threading.local()


class Allowance:
    """``rows`` and ``bytes`` are those that an answer may have; None is any number. With ``guest`` queries are answered
    where memory is limited, apart from those of the app."""

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
        """Whether the time is up, or somebody has ended it."""
        return self._ended or time.monotonic() >= self._until

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._until - time.monotonic())

    def free(self) -> None:
        """Lets the work take what the app itself may take, but for its time."""
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
        """Raises QueryFailed for an answer that is larger than is allowed."""
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
        """Ends the work: the step that is being done if it can be, else before the next one. May be called again, by
        any thread, until the work is done."""
        with self._lock:
            self._ended = True
            if self._step is not None and not self._shields:
                self._step()

    @contextmanager
    def _doing(self, end: Callable[[], object]) -> Iterator[None]:
        self.check()
        with self._lock:
            before, self._step = self._step, end
        try:
            yield
        finally:
            with self._lock:
                self._step = before

    @contextmanager
    def _shielded(self) -> Iterator[None]:
        with self._lock:
            self._shields += 1
        try:
            yield
        finally:
            with self._lock:
                self._shields -= 1


def current() -> Allowance | None:
    """The allowance of this thread, if it has one."""
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
    """``end`` ends what is done inside; whoever ends the allowance calls it, in another thread."""
    allowance = current()
    if allowance is None:
        yield
    else:
        with allowance._doing(end):
            yield


@contextmanager
def shielded() -> Iterator[None]:
    """Nothing that is done inside is ended, and the time is not looked at. It is, once, before."""
    allowance = current()
    if allowance is None:
        yield
    else:
        allowance.check()
        with allowance._shielded():
            yield
