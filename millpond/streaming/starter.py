"""Starts running statements when their tables are loaded, and retries those that could not be started.

The caller of a text starts its statements, and removes them if that fails. What starts later, after its tables are
loaded or at a restart, fails alone: it is retried if that can help, or on request.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from millpond import faults
from millpond.connectors.source import Source
from millpond.errors import Error, known
from millpond.loading.loader import Loader
from millpond.plan.plans import PipelinePlan
from millpond.retry import AGAIN
from millpond.store.query_states import QueryStates
from millpond.store.store import Store
from millpond.store.undo import Undo
from millpond.streaming.backfill import Backfills, loads_table
from millpond.streaming.statement import RunningStatement

if TYPE_CHECKING:
    from millpond.engine.pipeline import Pipeline

log = logging.getLogger("millpond")


@dataclass(slots=True)
class QueuedStatement:
    """Represents a statement in the queue. ``undo`` removes it while its caller waits for it to start."""

    statement: RunningStatement
    source: Source
    undo: Undo | None
    set_up: bool
    ready: bool = False
    """Whether it may start: its text has run."""
    since: float | None = None

    @property
    def plan(self) -> PipelinePlan:
        return self.statement.plan


@dataclass(slots=True)
class FailedStart:
    """Describes a query that could not be started, and why. ``again`` tries once more."""

    text: str
    error: Error
    again: Callable[[], object]
    tries: int = 0
    at: float = 0.0

    @property
    def state(self) -> str:
        return "retrying" if self.error.retryable else "failed"


class Pipelines(Protocol):
    """Stores the statements that run, and adds others to them."""

    def __iter__(self) -> Iterator[Pipeline]: ...

    def enrol(self, statement: RunningStatement, source: Source, late: set[str]) -> None:
        """Adds a statement to its stream."""

    def start(self, enrolled: Mapping[str, Undo | None]) -> None:
        """Starts statements that were added to their streams."""

    def take_out(self, query: str) -> list[tuple[RunningStatement, Source]]:
        """Stops a query; its state outside its target stays."""


class Starter:
    """Stores queued statements, and those that could not be started, by the names of their parts and queries."""

    def __init__(
        self,
        pipelines: Pipelines,
        backfills: Backfills,
        query_states: QueryStates,
        store: Store,
        loader: Loader,
        mask: Callable[[str], str],
        *,
        direct: bool,
    ):
        self._backfills = backfills
        self._query_states = query_states
        self._store = store
        self._loader = loader
        self._mask = mask
        self._pipelines = pipelines
        self._direct = direct
        self._waiting: dict[str, QueuedStatement] = {}
        self._failed_starts: dict[str, FailedStart] = {}
        self._refused: list[Error] = []
        self._begun = False
        self._closed = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self.look_again = threading.Event()

    def __iter__(self) -> Iterator[QueuedStatement]:
        return iter(list(self._waiting.values()))

    @property
    def failed_starts(self) -> dict[str, FailedStart]:
        return dict(self._failed_starts)

    def add(
        self,
        statements: Sequence[RunningStatement],
        sources: Sequence[Source],
        undo: Undo,
        *,
        new: bool,
        fresh: bool,
    ) -> None:
        """Queues the parts of a query; new ones are prepared when it returns. ``fresh`` ones begin at the beginning."""
        names = [statement.plan.name for statement in statements]
        if not new:
            undo.on_failure(lambda: self._pop(names))
        for name, statement, source in zip(names, statements, sources, strict=True):
            self._waiting[name] = QueuedStatement(statement, source, undo if new else None, new)
        for statement in statements:
            if fresh:
                self._forget_earlier(statement)
            statement.declare()
            faults.reach("error table made")
        for statement in statements if new else ():
            statement.set_up()
            faults.reach("statement set up")
        for name in names if not new else ():
            self._waiting[name].ready = True

    def _forget_earlier(self, statement: RunningStatement) -> None:
        """Removes what a kill left of a dropped statement of that name."""
        store = self._store
        if store.position(statement.plan.name) is not None:
            store.forget(statement.plan.name)
        for table in statement.owned:
            store.journal.drop_table(table)
            if store.table(table) is not None:
                store.drop(table)
        statement.forget_earlier()

    def _pop(self, names: Iterable[str]) -> list[QueuedStatement]:
        return [w for name in names if (w := self._waiting.pop(name, None)) is not None]

    def remove(self, query: str) -> list[QueuedStatement]:
        """Removes the parts of a query from the queue."""
        self._failed_starts.pop(query, None)
        return self._pop([name for name, w in list(self._waiting.items()) if w.plan.query == query])

    # what queued statements wait for

    @property
    def starting(self) -> bool:
        """Returns whether queries are being started just now."""
        return self._starting.locked()

    def needed(self) -> dict[str, tuple[str, ...]]:
        """Returns the statements that have not been started, and the tables that they wait for."""
        return {name: tuple(sorted(self.needs(w.plan))) for name, w in list(self._waiting.items())}

    def unstarted(self) -> dict[str, tuple[str, ...]]:
        """Returns the same as ``needed``, once statements are started at all, with those that are retried."""
        if not self._begun:
            return {}
        query_states = self._query_states
        retried = [
            q for q, s in self.failed_starts.items() if s.state == "retrying" and q not in query_states
        ]
        return self.needed() | dict.fromkeys(retried, ())

    def needs(self, plan: PipelinePlan) -> set[str]:
        """Returns the tables that a statement waits for: those that files fill, and those that topics backfill, if
        these do not need what the statement fills.
        """
        found = self._loader.running((*plan.reads, *plan.writes))
        if self._direct:
            return found
        for other in self._loading_plans():
            filled = {name.lower() for name in other.writes} & {name.lower() for name in plan.reads}
            if filled and other.query != plan.query and not self._depends(other, plan):
                found |= filled
        return found

    def _loading_plans(self) -> list[PipelinePlan]:
        """Returns the plans of statements that load a table, or will when they are started."""
        query_states, backfills = self._query_states, self._backfills
        waiting = [w.plan for w in self if loads_table(w.plan, w.source) and w.plan.query not in query_states]
        return waiting + [p.plan for p in self._pipelines if backfills.is_loading(p)]

    def _depends(self, one: PipelinePlan, other: PipelinePlan) -> bool:
        """Returns whether a statement reads what another fills, directly or through others."""
        plans = [p.plan for p in self._pipelines] + [w.plan for w in self]
        seen: set[str] = set()
        reads = {name.lower() for name in one.reads}
        while reads - seen:
            seen |= reads
            reads = {
                r.lower() for p in plans if {w.lower() for w in p.writes} & seen for r in p.reads
            } | reads
        return bool(seen & {name.lower() for name in other.writes})

    def describe(self) -> list[dict[str, Any]]:
        waiting = [
            {
                "name": name,
                "state": "waiting" if self.needs(w.plan) else "starting",
                "statement": w.plan.text,
            }
            for name, w in list(self._waiting.items())
        ]
        failed = [
            {
                "name": name,
                "state": self._query_states.get(name) or s.state,
                "error": s.error.message,
                "statement": s.text,
            }
            for name, s in list(self._failed_starts.items())
            if not any(w.plan.query == name for w in self)
        ]
        return waiting + failed

    # starting

    def begin(self) -> None:
        """Starts queued statements, now and whenever one is added."""
        self._begun = True
        self._loader.on_end = self.look_again.set
        self.start_new(last=False)

    def start_new(self, *, last: bool = True) -> None:
        """Starts what the last text has added. Raises the error of a statement that fails: nothing of it is left, and
        the others continue. What waits for tables is left to a thread; it fails alone if it was the ``last`` time that
        somebody waits for it.
        """
        for waiting in self:
            waiting.ready = True
        self.start_waiting(wait=True)
        for waiting in self if last else ():
            waiting.undo = None
        if self._refused:
            first, self._refused = self._refused[0], []
            raise first

    def start_waiting(self, *, wait: bool = False) -> None:
        """Starts those whose tables are loaded, or were waited for long enough. While a thread does that others leave
        it to it, unless they ``wait``; the rest is left to a thread that checks again.
        """
        while self._begun and self._startable() and self._starting.acquire(blocking=wait):
            try:
                self._pipelines.start(self._enrolled())
            finally:
                self._starting.release()
        if self._begun and (self._waiting or self._due() is not None) and self._thread is None:
            if not self._closed:
                self._thread = threading.Thread(target=self._later, name="millpond-starting", daemon=True)
                self._thread.start()

    def _startable(self) -> list[str]:
        now = time.monotonic()
        found = []
        for name, waiting in list(self._waiting.items()):
            if not waiting.ready:
                continue
            waiting.since = waiting.since or now
            if now - waiting.since >= waiting.plan.wait or not self.needs(waiting.plan):
                found.append(name)
        return found

    def _enrolled(self) -> Mapping[str, Undo | None]:
        """Creates pipelines of those that can start; returns the units of those that were created."""
        made: dict[str, Undo | None] = {}
        for name in self._startable():
            waiting = self._waiting.get(name)
            if waiting is None:
                continue  # another part of its query could not be started
            try:
                late = self.needs(waiting.plan)
                if not waiting.set_up:
                    waiting.statement.set_up()
                    waiting.set_up = True
                self._pipelines.enrol(waiting.statement, waiting.source, late)
                faults.reach("pipeline enrolled")
            except Exception as error:
                self.refuse(waiting.plan, waiting.undo, known(error))
                continue
            self._waiting.pop(name, None)
            self._failed_starts.pop(waiting.plan.query, None)
            # A statement that waited for its tables in vain has failed, and stays: START runs it when they are loaded.
            made[name] = None if late else waiting.undo
        return made

    def refuse(self, plan: PipelinePlan, undo: Undo | None, error: Error) -> None:
        """Handles a query that cannot be started. With an ``undo`` nothing of it is left, and its caller gets the
        error.
        """
        error.place = error.place or plan.place
        if undo is not None:
            undo.take_back()
            self._refused.append(error)
            return
        parts = self._pipelines.take_out(plan.query)

        def again() -> None:
            for statement, source in parts:
                self._waiting[statement.plan.name] = QueuedStatement(statement, source, None, False, True)

        self.stall(plan.query, plan.text, error, again)

    # those that could not be started

    def stall(self, query: str, text: str, error: Error, again: Callable[[], object]) -> None:
        """Records why a query does not run; if that may be temporary it is retried."""
        before = self._failed_starts.get(query)
        tries = before.tries + 1 if before is not None else 0
        pause = max(AGAIN.pause(tries), error.after)
        self._failed_starts[query] = FailedStart(text, error, again, tries, time.monotonic() + pause)
        then = f"; trying again in {pause:g} s" if error.retryable else ""
        log.warning("query %s cannot be started: %s%s", query, self._mask(error.message), then)
        self.look_again.set()

    def recovered(self, query: str) -> None:
        """Forgets the failed start of a query, which continues without a pipeline of its own."""
        self._failed_starts.pop(query, None)

    def start_again(self, query: str) -> None:
        """Retries a query that could not be started, now. Raises its error; then it waits as before."""
        try:
            self._failed_starts[query].again()
        except Error as error:
            self._failed_starts[query].error = error
        self.start_waiting(wait=True)
        if (left := self._failed_starts.get(query)) is not None:
            raise left.error

    def check(self) -> None:
        """Raises the error of a query that could not be started, and is not retried."""
        for query, failed in self.failed_starts.items():
            if failed.state == "failed" and query not in self._query_states:
                raise failed.error

    def _due(self) -> float | None:
        """Returns the time of the next retry of a query that could not be started."""
        query_states = self._query_states
        times = [
            s.at for q, s in self.failed_starts.items() if s.state == "retrying" and q not in query_states
        ]
        return min(times, default=None)

    def _later(self) -> None:
        while not self._closed and (self._waiting or self._due() is not None):
            self.look_again.wait(0.2)
            self.look_again.clear()
            try:
                for query, failed in self.failed_starts.items():
                    if failed.state == "retrying" and failed.at <= time.monotonic() and not self._closed:
                        if query not in self._query_states:
                            failed.again()
                self.start_waiting()
            except Exception as error:  # draining retries, and gets the error
                log.warning("queries could not be started: %s", error)
                break
        self._thread = None

    def close(self) -> None:
        self._closed = True
        self.look_again.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
