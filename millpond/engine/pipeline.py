"""Runs a statement: applies the batches of its stream as commits."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from millpond.changes import Changes, Offset, Position
from millpond.connectors import abilities
from millpond.connectors.source import Source
from millpond.engine.batch import Batch
from millpond.engine.courtesy import Courtesy
from millpond.engine.failures import explain
from millpond.engine.jobs import working_for
from millpond.engine.messages import Drifted
from millpond.engine.row_transfer import Divide
from millpond.engine.states import Overtaken, State, can_move, moved
from millpond.engine_rule import ENGINES
from millpond.errors import Error, ResultTooLarge, TopicReplaced, without_passwords
from millpond.plan.plans import PipelinePlan
from millpond.retry import AGAIN, NO_PATIENCE, Issues, Patience
from millpond.steps import Steps, recording

log = logging.getLogger("millpond")

RATE_SECONDS = 10.0
"""The time over which the rate is measured."""


class Statement(Protocol):
    """Applies the batches of a running statement. There is one class for each kind of statement."""

    @property
    def plan(self) -> PipelinePlan: ...

    @property
    def ephemeral(self) -> bool:
        """Returns whether its position is not stored."""

    @property
    def may_need_spark(self) -> bool:
        """Returns whether Spark may evaluate some of its batches."""

    @property
    def position(self) -> Position | None:
        """Returns the newest committed position."""

    @property
    def errors(self) -> int:
        """Returns the number of error records."""

    @property
    def misses(self) -> int | None:
        """Returns the number of rows without a match in a table, if they are counted."""

    @property
    def late(self) -> int | None:
        """Returns the number of late rows, which came when their window had closed, if there are such windows."""

    @property
    def waiting(self) -> int | None:
        """Returns the number of rows that wait for a match, if there are any."""

    def begin(self) -> None:
        """Makes the commit that comes before all batches, if there is one. Called when it has started."""

    def apply(self, batch: Batch, position: Position) -> int:
        """Commits the results of the batch and the position, both or neither; returns the number of results. Raises
        Divide if it must be applied in halves, which it must have, and Overtaken if the position is behind it now.
        """

    def pass_over(self, position: Position | None, more: Mapping[str, Changes]) -> int:
        """Commits the position and ``more``, for a batch that does not affect this statement."""

    def retry(self) -> int:
        """Retries rows that wait; returns the number of results."""

    def close(self) -> None:
        """Releases the resources of the statement outside of the app."""

    def drop(self) -> None:
        """Removes what the statement stores in addition to its target."""


class Pipeline:
    """Represents one statement at its offset in its stream.

    The offset is that of its position: what lies after it has not been applied, whoever reads it. ``error`` says why it
    failed, or why it is retried.
    """

    def __init__(self, statement: Statement, source: Source, state: State = State.RUNNING):
        self.statement = statement
        self.source = source
        self.state = state
        self.error: Error | None = None
        self.retry_at = 0.0
        self._waiting_failed = False
        self.courtesy: Courtesy | None = None
        """If others come first while it catches up."""
        self.rows_out = 0
        self.retried = 0
        """Rows that were emitted after they had waited."""
        self.lost = 0
        """Rows that the source removed before they were read."""
        self.issues = Issues()
        self.steps = Steps()
        """What the steps of its batches have taken since it was started."""
        self.batches = 0
        self.by_engine: dict[str, tuple[int, int]] = {}
        """Batches and their rows, by the engine that evaluated them."""
        self.last_batch_seconds = 0.0
        self.last_batch: datetime | None = None
        self.last_engine: str | None = None
        self._recent: deque[tuple[float, int]] = deque()
        self._tries = 0
        self._failing_since = 0.0
        self._from_start = False
        self._closed = False
        self._busy = threading.Lock()
        self.offset: Offset | None
        self._go_to_position()
        self.on_progress: Callable[[], None] = lambda: None

    def _go_to_position(self) -> None:
        """Moves to the position of the statement, which may be ahead of the stored one."""
        position = self.statement.position
        if self._from_start and position is not None:
            self._batch, self.offset = position.batch, None
            return
        self._batch = position.batch if position else -1
        self.offset = position.offsets.get(self._stream) if position else None

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
    def wanted(self) -> bool:
        """Returns whether it is to continue, now or at the next retry."""
        return not self._closed and self.state in (State.RUNNING, State.RETRYING)

    @property
    def active(self) -> bool:
        """Returns whether a batch may be applied now."""
        if self._closed:
            return False
        return self.state is State.RUNNING or (
            self.state is State.RETRYING and time.monotonic() >= self.retry_at
        )

    def begin(self) -> None:
        """Starts the statement. Does not raise: a failure is recorded as its own."""
        with self._busy:
            if not self._closed:
                try:
                    self.statement.begin()
                except Exception as error:
                    self.fail(explain(error), NO_PATIENCE)

    def advance(self, batch: Batch, seen: Offset | None) -> None:
        """Applies a batch that begins at the offset of the pipeline, which its caller has ``seen``; if another thread
        has moved the pipeline since, it does nothing. Does not raise: a failure is recorded as its own.
        """
        with self._busy:
            parts = [batch] if self.offset == seen else []
            while parts and self.active:
                began, part = time.monotonic(), parts.pop()
                position = Position(self.name, "", self._batch + 1, {self._stream: part.end})
                try:
                    lost = part.lost
                    self.steps.engine = None
                    with recording(self.steps), working_for(self.name):
                        self.rows_out += self.statement.apply(part, position)
                except Drifted:
                    parts.append(part)
                    if not self._read_here(part):
                        return
                    continue
                except Exception as error:
                    halves = part.halves() if isinstance(error, Divide | ResultTooLarge) else None
                    self._release(part, batch)
                    if halves is None:
                        self._go_to_position()
                        self._recover() if isinstance(error, Overtaken) else self.fail(explain(error))
                        return
                    parts += reversed(halves)
                    continue
                self._release(part, batch)
                self._arrive(position, lost)
                self._count(part.size or 0, time.monotonic() - began, self.steps.engine or "process")
        self.on_progress()

    def _release(self, part: Batch, batch: Batch) -> None:
        """Closes a part of a batch, if it is not all of it, which whoever has made it closes."""
        if part is not batch:
            part.close()

    def _read_here(self, part: Batch) -> bool:
        try:
            part.read_here()
        except Exception as error:
            self.fail(explain(error))
            return False
        return True

    def begin_at(self, start: Offset) -> None:
        """Records where a new statement begins to read, also if it is paused."""
        with self._busy:
            self._move(start, 0)
        self.on_progress()

    def _move(self, end: Offset, lost: int) -> None:
        """Commits a position without changes of tables."""
        position = Position(self.name, "", self._batch + 1, {self._stream: end})
        self.statement.pass_over(position, {})
        self._arrive(position, lost)

    def passed(self, end: Offset, rows: int, seconds: float, lost: int) -> None:
        """Records that Spark itself has written the rows up to ``end`` to their target, except for those that were
        lost. Raises what prevents that.
        """
        with self._busy:
            if not self.active:
                return
            self._move(end, lost)
            self.rows_out += rows
            self._count(rows, seconds, "spark")
        self.on_progress()

    def _arrive(self, position: Position, lost: int) -> None:
        """Records that the position is committed: earlier errors are over."""
        self.offset, self._batch, self._from_start = position.offsets[self._stream], position.batch, False
        self._recover()
        if lost:
            self.lost += lost
            log.warning(
                'query "%s": %s rows of %s were removed before they were read: continuing with the first that is left',
                self.name,
                f"{lost:,}",
                without_passwords(self.source.uri),
            )

    def _recover(self) -> None:
        """Records that an earlier error is over."""
        if self.error is not None:
            self.issues.success(self.error)
        if can_move(self.state, "recover"):
            self.state, self.error, self._tries = moved(self.state, "recover"), None, 0

    def _count(self, rows: int, seconds: float, engine: str) -> None:
        now = time.monotonic()
        self.batches += 1
        batches, total = self.by_engine.get(engine, (0, 0))
        self.by_engine[engine] = (batches + 1, total + rows)
        self.last_batch_seconds = seconds
        self.last_batch = datetime.now(UTC)
        self.last_engine = engine
        self._recent.append((now, rows))
        while self._recent[0][0] < now - RATE_SECONDS:
            self._recent.popleft()

    def fail(self, error: Error, patience: Patience = AGAIN) -> None:
        """Ends it with an error that names the statement, for good, or until it is retried."""
        state = self.state
        if not self.wanted or not can_move(state, "fail"):
            return
        now = time.monotonic()
        if not self._tries:
            self._failing_since = now
        left = patience.timeout - (now - self._failing_since)
        error = copy.copy(error)
        if not error.message.startswith("query "):
            error.message = f'query "{self.name}": {error.message}'
        error.place = error.place or self.plan.place
        self.error = error
        if error.retryable and left > 0:
            pause = min(patience.pause(self._tries), left)
            self.state = moved(state, "retry")
            self.retry_at = now + pause
            self._tries += 1
            self.issues.retry(error)
            log.warning("%s; trying again in %g s (attempt %d)", error.message, round(pause, 3), self._tries)
        else:
            self.state = moved(state, "fail")
            self.issues.failure(error)
        self.on_progress()

    def recover(self) -> None:
        """Records that the cause of its failure is over."""
        with self._busy:
            if self.state is State.RETRYING:
                if self.error is not None:
                    self.issues.success(self.error)
                self.state, self.error = moved(self.state, "recover"), None
        self.on_progress()

    def ask(self, by: str) -> State:
        """Does PAUSE, RESUME, STOP or START; the current batch is done when it returns."""
        with self._busy:
            self.state = moved(self.state, by)
            if by == "start" and isinstance(self.error, TopicReplaced):
                self._from_start, self.offset = True, None
            self.error, self._tries = None, 0
        self.on_progress()
        return self.state

    def put_back(self, state: State, error: Error | None) -> None:
        """Restores the previous state after a request that could not be done."""
        with self._busy:
            self.state, self.error = state, error
        self.on_progress()

    def between_batches(self, work: Callable[[], int]) -> int:
        """Runs something while no batch is applied."""
        with self._busy:
            return work()

    def retry(self) -> None:
        """Retries rows that wait for a match. A failure is recorded as the pipeline's own."""
        if not self.statement.waiting:
            return
        with self._busy:
            if not self.active:
                return
            try:
                count = self.statement.retry()
            except Exception as error:
                self._waiting_failed = True
                self.fail(explain(error))
                return
            if self._waiting_failed:
                self._waiting_failed = False
                self._recover()
            self.rows_out += count
            self.retried += count

    def check(self) -> None:
        """Raises the error that the pipeline failed with."""
        if self.error is not None and self.state is State.FAILED:
            raise self.error

    def reached(self, end: Offset) -> bool:
        """Returns whether everything up to ``end`` has been applied."""
        return self.offset == end or abilities.reached(self.source, self.offset, end)

    def close(self) -> None:
        """Lets the current batch finish; no other one is applied."""
        with self._busy:
            self._closed = True

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": str(self.state),
            "rows": self.rows_out,
            "rate": self._rate(),
            "lag": self._lag(),
            "lost": self.lost,
            "retries": self.issues.retries + self.source.issues.retries,
            "errors": self.statement.errors,
            "misses": self.statement.misses,
            "late": self.statement.late,
            "waiting": self.statement.waiting,
            "batches": self.batches,
            **{f"{e}_batches": self.by_engine.get(e, (0, 0))[0] for e in ENGINES},
            **{f"{e}_rows": self.by_engine.get(e, (0, 0))[1] for e in ENGINES},
            "last_batch": self.last_batch,
            "last_batch_ms": round(self.last_batch_seconds * 1000),
            "last_engine": self.last_engine,
            "error": self.error.message if self.error else None,
            "statement": self.plan.text,
        }

    def _rate(self) -> float:
        """Returns the rows of the stream per second, over the last few."""
        since = time.monotonic() - RATE_SECONDS
        return round(sum(rows for at, rows in list(self._recent) if at >= since) / RATE_SECONDS, 1)

    def _lag(self) -> int | None:
        """Returns the number of rows of the stream that have not been applied; None if the source does not know."""
        try:
            sizes = [s.rows for s in self.source.splits(self.offset, self.source.latest(self.offset))]
        except Error:
            return None
        return None if None in sizes else sum(s for s in sizes if s is not None)
