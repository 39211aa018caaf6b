"""Retries rows that wait for a match when tables change and there is no batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond.engine.pipeline import Pipeline

EVERY = 0.5
"""Seconds between two checks while rows wait: their time may be over, or a database has changed."""
SHARE = 4
"""A retry is followed by a pause this many times as long."""


class RetryThread:
    """Retries waiting rows in a separate thread; ``wake`` notifies it of a commit."""

    def __init__(self, pipelines: Iterable[Pipeline]):
        self._pipelines = pipelines
        self._news = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="millpond-retrying", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._news.set()

    def close(self) -> None:
        """Ends after the current retry."""
        self._stopped = True
        self._news.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            waiting = any(p.statement.waiting for p in self._pipelines)
            self._news.wait(EVERY if waiting else None)
            self._news.clear()
            began = time.monotonic()
            for pipeline in self._pipelines:
                if not self._stopped:
                    pipeline.retry()
            if not self._stopped:
                time.sleep(min(SHARE * (time.monotonic() - began), EVERY))
