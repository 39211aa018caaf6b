"""Groups commits so that they wait for the disk together.

Each thread prepares its own request. The first thread to arrive writes all waiting requests, in one SQLite transaction
with one sync, then wakes their threads and makes the first of those that arrived meanwhile the next writer. Each thread
returns only when its own commit is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from millpond.changes import Position
from millpond.errors import StateUnwritable
from millpond.journal.blob_rows import Rows
from millpond.journal.responses import Answer


def _held() -> Lock:
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
    position: Position | None
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
    wake: Lock = field(default_factory=_held)

    @property
    def empty(self) -> bool:
        """Returns whether it only needs a number."""
        return not (self.changes or self.sent or self.position or self.done or self.answer)

    def end(self) -> None:
        """Records that it is durable, or was before."""
        self.receipt.number = self.number
        self.committed = True

    @property
    def files(self) -> set[str]:
        """Returns the files that were written for it."""
        kept = [rows for rows, _ in self.changes.values()]
        return {file for rows in (*kept, *self.sent.values()) for file in rows.files}


class GroupCommit:
    """Runs ``write`` with the requests in the order of their arrival, in one thread at a time.

    If it raises, all of its requests fail with that error. ``lock`` is held while it runs.
    """

    def __init__(self, write: Callable[[list[Request]], None]):
        self.lock = Lock()
        self._write = write
        self._entering = Lock()
        self._waiting: list[Request] = []
        self._busy = False

    def submit(self, request: Request) -> int | None:
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

    def _lead(self, request: Request) -> None:
        group: list[Request] = []
        try:
            with self.lock:
                with self._entering:
                    group, self._waiting = self._waiting, []
                self._write(group)
        except Exception as e:
            for member in group:
                if not member.committed:
                    member.error = e
        except BaseException as e:
            for member in group:
                if not member.committed:
                    member.error = StateUnwritable(f"the commit was interrupted: {e!r}")
            raise
        finally:
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

    def _withdraw(self, request: Request) -> None:
        """Withdraws a request whose thread was interrupted while it waited, if it is not being written."""
        with self._entering:
            if request in self._waiting:
                self._waiting.remove(request)
        if request.leads:
            self._pass_on()
