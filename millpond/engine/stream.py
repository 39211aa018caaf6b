"""Defines what runs the statements on one stream."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod

from millpond.connectors import abilities
from millpond.connectors.source import Source
from millpond.engine.pipeline import Pipeline
from millpond.errors import Error


class Stream(ABC):
    """Stores the statements on one stream, and moves them."""

    def __init__(self, source: Source):
        self.source = source
        self._members: list[Pipeline] = []
        self._lock = threading.Condition()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, pipeline: Pipeline) -> None:
        """Adds a statement; ``settle`` starts it."""
        with self._lock:
            self._members.append(pipeline)

    def remove(self, pipeline: Pipeline) -> None:
        """Removes a statement after its current batch; with the last one, reading ends."""
        pipeline.close()
        with self._lock:
            if pipeline in self._members:
                self._members.remove(pipeline)
        self.settle()

    @abstractmethod
    def settle(self) -> None:
        """Starts or ends reading after statements were added, removed or changed their state."""

    def wait_until_up(self) -> None:
        """Waits until reading has begun, or has failed to."""
        return

    def pull(self) -> None:
        """Moves the statements to the end of the stream, if they do not move by themselves."""
        return

    @abstractmethod
    def close(self) -> None:
        """Lets the current batch finish, then ends reading."""

    def _wanted(self) -> list[Pipeline]:
        return [p for p in self._members if p.wanted]

    def _fail(self, failure: Error) -> None:
        for pipeline in list(self._members):
            self._fail_one(pipeline, failure)

    def _fail_one(self, pipeline: Pipeline, failure: Error) -> None:
        pipeline.fail(failure, abilities.patience(self.source, failure))

    def _recover(self) -> None:
        for pipeline in list(self._members):
            pipeline.recover()

    def _until_next_try(self) -> float:
        times = [p.retry_at for p in self._wanted()]
        return min(times) - time.monotonic() if times else 0.0
