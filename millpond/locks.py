"""Serializes writers.

A thread that waits for a plain lock takes it as soon as it is free, while the interpreter still runs the thread that
freed it; that one then blocks at its next write, and every write costs a thread switch. Here a waiting thread sleeps
and checks again, so that a writer that has the interpreter continues for as long as it has it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

_SHORTEST, _LONGEST = 0.00002, 0.001
_LOOKS = 3
"""How often a thread checks before it queues, so that it also gets a lock that is hardly ever free."""


class WriteLock:
    """Provides a lock for short writes; not reentrant."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            pause = _SHORTEST
            for _ in range(_LOOKS):
                time.sleep(pause)
                if self._lock.acquire(False):
                    return
                pause = min(2 * pause, _LONGEST)
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def try_enter(self) -> bool:
        """Acquires it if it is free."""
        return self._lock.acquire(False)

    @contextmanager
    def within(self, seconds: float) -> Iterator[bool]:
        """Waits for it so long at most, and yields whether it has it."""
        deadline = time.monotonic() + seconds
        while not (entered := self.try_enter()) and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield entered
        finally:
            if entered:
                self.__exit__()


class ReentrantWriteLock(WriteLock):
    """Provides a reentrant variant."""

    __slots__ = ("_depth", "_owner")

    def __init__(self) -> None:
        super().__init__()
        self._owner = 0
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me:
            super().__enter__()
            self._owner = me
        self._depth += 1

    @property
    def mine(self) -> bool:
        """Returns whether this thread holds it."""
        return self._owner == threading.get_ident()

    def try_enter(self) -> bool:
        me = threading.get_ident()
        if self._owner != me:
            if not self._lock.acquire(False):
                return False
            self._owner = me
        self._depth += 1
        return True

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self._lock.release()


class Gate:
    """Lets threads pass, many at a time, until one closes it: that one waits until the others are through. There is one
    for each ``what``.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: dict[tuple[Hashable, int], int] = {}
        self._closed: dict[Hashable, int] = {}

    @contextmanager
    def passing(self, what: Hashable) -> Iterator[None]:
        """Runs the code inside while the gate is open. A thread that is inside may pass again."""
        me = (what, threading.get_ident())
        with self._changed:
            while me not in self._inside and self._closed.get(what, me[1]) != me[1]:
                self._changed.wait()
            self._inside[me] = self._inside.get(me, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                left = self._inside.pop(me) - 1
                if left:
                    self._inside[me] = left
                self._changed.notify_all()

    @contextmanager
    def closed(self, what: Hashable) -> Iterator[None]:
        """Runs the code inside while no other thread passes."""
        me = threading.get_ident()
        with self._changed:
            while what in self._closed:
                self._changed.wait()
            self._closed[what] = me
        try:
            with self._changed:
                while any(it == what and thread != me for it, thread in self._inside):
                    self._changed.wait()
            yield
        finally:
            with self._changed:
                del self._closed[what]
                self._changed.notify_all()
