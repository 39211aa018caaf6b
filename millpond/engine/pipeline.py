"""A running statement: batches of its stream become commits."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

from millpond.changes import Offset, Position
from millpond.engine.batch import Batch
from millpond.engine.failures import explain
from millpond.errors import Error
from millpond.plan.plans import PipelinePlan
from millpond.sources.base import Source


class Statement(Protocol):
    """What a running statement does with a batch. The app makes one for each kind of statement."""

    @property
    def plan(self) -> PipelinePlan: ...

    @property
    def position(self) -> Position | None:
        """The newest position that counts."""

    def apply(self, batch: Batch, position: Position) -> int:
        """Makes what the batch gives and the position count, both or neither; answers how many rows it gave."""

    def drop(self) -> None:
        """Removes what the statement keeps beside its target."""


class State(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"


class Pipeline:
    """One statement at its place in its stream.

    The place is the offset of its position: what lies after it has not been applied, whoever reads it. ``error``
    says why it failed.
    """

    def __init__(self, statement: Statement, source: Source):
        self.statement = statement
        self.source = source
        self.state = State.RUNNING
        self.error: Error | None = None
        self.rows_out = 0
        self.batches = 0
        self.last_batch_seconds = 0.0
        self._busy = threading.Lock()
        position = statement.position
        self._batch = position.batch if position else -1
        self.offset: Offset | None = position.offsets.get(self._stream) if position else None
        self.on_progress: Callable[[], None] = lambda: None

    @property
    def plan(self) -> PipelinePlan:
        return self.statement.plan

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def _stream(self) -> str:
        return self.plan.batch.stream.relation.name

    @property
    def active(self) -> bool:
        """Whether batches reach it."""
        return self.state is State.RUNNING

    def advance(self, batch: Batch) -> None:
        """Applies a batch that begins where the pipeline is. A failure is its own: it does not raise."""
        with self._busy:
            if not self.active:
                return
            began = time.monotonic()
            position = Position(self.name, "", self._batch + 1, {self._stream: batch.end})
            try:
                self.rows_out += self.statement.apply(batch, position)
            except Exception as error:
                self.fail(explain(error))
                return
            self.offset, self._batch = batch.end, position.batch
            self.batches += 1
            self.last_batch_seconds = time.monotonic() - began
        self.on_progress()

    def fail(self, error: Error) -> None:
        """Ends it with an error that names the statement."""
        error = copy.copy(error)
        if not error.message.startswith("query "):
            error.message = f'query "{self.name}": {error.message}'
        error.place = error.place or self.plan.place
        self.error = error
        self.state = State.FAILED
        self.on_progress()

    def check(self) -> None:
        """Raises the error that the pipeline failed with."""
        if self.error is not None:
            raise self.error

    def reached(self, end: Offset) -> bool:
        """Whether everything up to ``end`` has been applied."""
        return self.offset == end or self.source.reached(self.offset, end)

    def stop(self) -> None:
        """Lets the current batch finish; no other one is applied."""
        with self._busy:
            if self.state is not State.FAILED:
                self.state = State.STOPPED

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": str(self.state),
            "batches": self.batches,
            "rows": self.rows_out,
            "last_batch_ms": round(self.last_batch_seconds * 1000),
            "error": self.error.message if self.error else None,
            "statement": self.plan.text,
        }
