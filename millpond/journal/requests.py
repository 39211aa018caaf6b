"""Groups commits so that they wait for the disk together.

Each thread prepares its own request. The first thread to arrive writes all waiting requests, in one SQLite transaction
with one sync, then wakes their threads and makes the first of those that arrived meanwhile the next writer. Each thread
returns only when its own commit is durable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

from millpond.changes import Position
from millpond.errors import StateUnwritable
from millpond.journal.blob_rows import Rows
from millpond.journal.responses import Answer

_PAUSE = 0.00005
_LONGEST = 0.005
"""The longest time that a thread waits for others, in seconds."""


def locked_lock() -> Lock:
    """Returns a lock that is taken, for a thread that waits until another releases it."""
    lock = Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class Receipt:
    """Reports to a caller of ``Journal.commit``, also if it is interrupted, the number of its commit once that is
    durable.
    """

    number: int | None = None


@dataclass(slots=True, eq=False)
class Request:
    """Contains what one caller of ``Journal.commit`` wants to write, and the outcome."""

    changes: dict[str, tuple[Rows, bool]]
    sent: dict[str, Rows]
    positions: Sequence[Position]
    done: Sequence[str]
    sync: bool = True
    """Whether the caller waits until it is on the disk."""
    answer: Answer | None = None
    receipt: Receipt = field(default_factory=lambda: Receipt())
    number: int | None = None
    committed: bool = False
    """Whether it is durable: then no later event makes it fail."""
    error: BaseException | None = None
    leads: bool = False
    wake: Lock = field(default_factory=locked_lock)

    @property
    def empty(self) -> bool:
        """Returns whether it only needs a number."""
        return not (self.changes or self.sent or self.positions or self.done or self.answer)

    @property
    def small(self) -> bool:
        """Returns whether it is nothing but small changes of tables, one blob each."""
        if self.sent or self.positions or self.done or self.answer or not self.changes:
            return False
        return all(len(r.blobs) == 1 and r.blobs[0].data is not None for r, _ in self.changes.values())

    def end(self) -> None:
        """Records that it is durable, or was before."""
        self.receipt.number = self.number
        self.committed = True

    @property
    def files(self) -> set[str]:
        """Returns the files that were written for it."""
        kept = [rows for rows, _ in self.changes.values()]
        return {file for rows in (*kept, *self.sent.values()) for file in rows.files}


class Member(Protocol):
    """Represents a commit that waits for its group."""

    number: int | None
    committed: bool
    error: BaseException | None
    leads: bool
    wake: Lock


M = TypeVar("M", bound=Member)


class GroupCommit(Generic[M]):
    """Runs ``write`` with the requests in the order of their arrival, in one thread at a time.

    If it raises, all of its requests fail with that error. ``lock`` is held while it runs. A thread that writes first
    waits for the others that wrote lately, for no longer than a group takes: so they share a sync.
    """

    def __init__(self, write: Callable[[list[M]], None], lock: AbstractContextManager[Any]):
        self.lock = lock
        self._write = write
        self._entering = Lock()
        self._waiting: list[M] = []
        self._busy = False
        self._expected = 1
        self._took = 0.0

    @property
    def idle(self) -> bool:
        """Returns whether nobody else commits, or did so lately."""
        return not self._busy and self._expected < 2

    def submit(self, request: M) -> int | None:
        with self._entering:
            self._waiting.append(request)
            request.leads, self._busy = not self._busy, True
        if not request.leads:
            try:
                request.wake.acquire()
            except BaseException:
                self._withdraw(request)
                raise
        if request.leads:
            self._lead(request)
        if request.error is not None:
            raise request.error
        return request.number

    def _gather(self) -> None:
        """Waits until as many threads are here as wrote lately, for as long as a group takes, and then while others
        arrive.
        """
        if self._expected < 2:
            return
        began = time.perf_counter()
        here, waited = 0, 0.0
        while waited < _LONGEST and len(self._waiting) < self._expected:
            if waited > self._took and len(self._waiting) == here:
                break
            here = len(self._waiting)
            time.sleep(_PAUSE)
            waited = time.perf_counter() - began

    def _lead(self, request: M) -> None:
        group: list[M] = []
        try:
            self._gather()
            with self.lock:
                with self._entering:
                    group, self._waiting = self._waiting, []
                began = time.perf_counter()
                self._write(group)
                self._took = time.perf_counter() - began
        except Exception as e:
            for member in group or [request]:
                if not member.committed:
                    member.error = e
        except BaseException as e:
            for member in group:
                if not member.committed:
                    member.error = StateUnwritable(f"the commit was interrupted: {e!r}")
            raise
        finally:
            with self._entering:
                if not group and request in self._waiting:  # it was interrupted before it began to write
                    self._waiting.remove(request)
            self._expected = len(group) + len(self._waiting)
            for member in group:
                if member is not request:
                    member.wake.release()
            self._pass_on()

    def _pass_on(self) -> None:
        """Makes the first waiting thread the next to write."""
        with self._entering:
            if not self._waiting:
                self._busy = False
                return
            self._waiting[0].leads = True
            self._waiting[0].wake.release()

    def _withdraw(self, request: M) -> None:
        """Withdraws a request whose thread was interrupted while it waited, if it is not being written."""
        with self._entering:
            if request in self._waiting:
                self._waiting.remove(request)
        if request.leads:
            self._pass_on()
