"""Syncs commits that do not wait for the disk, in a thread, soon after they return."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from millpond.errors import Error

LATEST = 0.1
"""Maximum seconds until a commit is on the disk."""

_log = logging.getLogger(__name__)


class LateSync:
    """Calls ``sync`` within ``LATEST`` after ``due``. The thread starts with the first commit that needs it."""

    def __init__(self, sync: Callable[[], None]):
        self._sync = sync
        self._due = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def due(self) -> None:
        self._due.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="millpond-sync", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Ends the thread; the caller syncs what is still due."""
        self._ended.set()
        self._due.set()

    def _run(self) -> None:
        while self._due.wait() and not self._ended.wait(LATEST / 2):
            self._due.clear()
            try:
                self._sync()
            except Error as error:
                _log.warning("commits are not on the disk yet: %s", error.message)
                self._due.set()
