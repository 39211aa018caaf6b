"""Serializes the commits of running statements; the commit itself is ``RunningStatement.write``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from millpond.errors import Closed


class CommitLock:
    """Lets one running statement commit at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Serializes the commits inside. Raises Closed after ``end``."""
        with self._lock:
            if self._ended:
                raise Closed("the app is gone")
            yield

    def end(self) -> None:
        """Prevents all later commits, as after a kill."""
        with self._lock:
            self._ended = True
