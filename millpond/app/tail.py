"""Passes the rows of a running SELECT to a reader."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa

from millpond.query.result import RunningResult
from millpond.statements.drop import Removals
from millpond.streaming.runner import Runner
from millpond.views.materialized_view import Views

PAUSE = 0.1
"""Seconds between two checks whether the reader is still there."""


class Tails:
    """Returns the rows of running SELECTs, and stops those that nobody follows any more."""

    def __init__(self, lock: threading.RLock, runner: Runner, views: Views, removals: Removals):
        self._lock = lock
        self._runner = runner
        self._views = views
        self._removals = removals

    def follow(self, result: RunningResult, gone: Callable[[], bool]) -> Iterator[pa.Table]:
        """Yields the rows until ``gone`` returns True; then the query stops. Raises the error it failed with."""
        try:
            while not gone():
                rows = result.take(PAUSE)
                if rows is not None:
                    yield rows
                    continue
                query = self._views.get(result.name) or self._runner.get(result.name)
                if query is None:
                    return
                query.check()
        finally:
            self.cancel(result)

    def cancel(self, result: RunningResult) -> None:
        """Stops a running SELECT that nobody follows any more."""
        with self._lock:
            self._removals.take_back_query(result.name)
