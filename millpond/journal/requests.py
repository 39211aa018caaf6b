"""Commits that wait for the disk together.

A thread prepares its request by itself, then the first one to get the lock writes all that wait, in one SQLite
transaction with one sync. Each thread returns only when its own commit is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from millpond.changes import Position
from millpond.journal.stored import Rows


@dataclass(slots=True)
class Request:
    """What one caller of ``Journal.commit`` wants written, and what came of it."""

    changes: dict[str, tuple[Rows, bool]]
    sent: dict[str, Rows]
    position: Position | None
    done: Sequence[str]
    number: int | None = None
    error: BaseException | None = None
    settled: bool = field(default=False)

    @property
    def files(self) -> set[str]:
        """The files that were written for it."""
        kept = [rows for rows, _ in self.changes.values()]
        return {file for rows in (*kept, *self.sent.values()) for file in rows.files}


class GroupCommit:
    """``write`` gets the requests in the order in which they came, and is called by one thread at a time.

    If it raises, all of its requests fail with that error. ``lock`` is held while it runs.
    """

    def __init__(self, write: Callable[[list[Request]], None]):
        self.lock = Lock()
        self._write = write
        self._entering = Lock()
        self._waiting: list[Request] = []

    def submit(self, request: Request) -> int | None:
        with self._entering:
            self._waiting.append(request)
        with self.lock:
            if not request.settled:
                with self._entering:
                    group, self._waiting = self._waiting, []
                self._settle(group)
        if request.error is not None:
            raise request.error
        return request.number

    def _settle(self, group: list[Request]) -> None:
        try:
            self._write(group)
        except BaseException as e:
            for request in group:
                request.error = e
        for request in group:
            request.settled = True
