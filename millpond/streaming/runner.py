"""Runs the statements of an app: starts them together, drains them in the order of their streams."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from millpond import faults
from millpond.connectors.sink import NativeSink, find_sink
from millpond.connectors.source import NativeSource, Source
from millpond.engine.failures import explain
from millpond.engine.states import State, asked, can_move
from millpond.errors import ConnectorMissing, PipelineFailed, TimedOut, known
from millpond.loading.loader import Loader
from millpond.loading.progress import Report
from millpond.plan.plans import PipelinePlan, StatementPlan
from millpond.retry import NO_PATIENCE
from millpond.store.query_states import QueryStates
from millpond.store.store import Store
from millpond.store.undo import Undo, safely
from millpond.streaming.backfill import Backfills, beginning
from millpond.streaming.commit_lock import CommitLock
from millpond.streaming.on_miss_retry import RetryThread
from millpond.streaming.readers import Readers, settle
from millpond.streaming.set_aside import SetAside
from millpond.streaming.starter import Starter
from millpond.streaming.statement import RunningStatement

if TYPE_CHECKING:
    from millpond.engine.pipeline import Pipeline
    from millpond.engine.stream import Stream

log = logging.getLogger("millpond")


class SparkProcess(Protocol):
    """Starts Spark, and returns its session."""

    def session(self, *formats: str) -> Any:
        """Returns Spark's session, with what its ``formats`` need; starts Spark, if it is not up."""

    def start(self, failed: Callable[[Exception], None]) -> None:
        """Starts Spark in the background. Raises what is known before; ``failed`` gets what is found later."""


class Runner:
    """Runs all running statements, and what reads their streams. Spark starts beside the first.

    With ``direct`` nothing runs by itself: statements move when the app is drained.
    """

    def __init__(
        self,
        statements: Callable[[StatementPlan, bool], list[RunningStatement]],
        store: Store,
        query_states: QueryStates,
        loader: Loader,
        commit_lock: CommitLock,
        spark: SparkProcess,
        scratch: Path,
        mask: Callable[[str], str],
        report: Report,
        *,
        direct: bool = False,
    ):
        self._make = statements
        self._store = store
        self._commit_lock = commit_lock
        self._spark = spark
        self._direct = direct
        self.readers = Readers(store, spark.session, scratch, direct=direct)
        self.query_states = query_states
        self.backfills = Backfills(mask, report)
        self.starter = Starter(self, self.backfills, query_states, store, loader, mask, direct=direct)
        self._running: dict[str, tuple[Pipeline, Stream]] = {}
        self.aside = SetAside()
        self._progress = threading.Condition()
        self._retry_thread: RetryThread | None = None

    def __iter__(self) -> Iterator[Pipeline]:
        return iter([pipeline for pipeline, _ in list(self._running.values())])

    def get(self, name: str) -> Pipeline | None:
        """Returns the statement, or the part of one, that runs under a name."""
        found = self._running.get(name)
        return found[0] if found is not None else None

    def add(
        self,
        plan: StatementPlan,
        sources: Sequence[Source],
        undo: Undo,
        *,
        ephemeral: bool,
        new: bool,
        fresh: bool,
    ) -> None:
        """Queues a statement. ``sources`` are those of its streams."""
        statements = self._make(plan, ephemeral)
        self.aside.hand_over(statements)
        self.starter.add(statements, sources, undo, new=new, fresh=fresh)

    @property
    def formats(self) -> set[str]:
        """Returns the Spark formats that sources and sinks need, in addition to those that Spark includes."""
        pairs = [(p.plan, p.source) for p in self] + [(w.plan, w.source) for w in self.starter]
        return set().union(*(_formats_of(plan, source) for plan, source in pairs))

    @property
    def names(self) -> list[str]:
        """Returns the names of all queries, also of those that have not started."""
        return list(dict.fromkeys((*self.parts.values(), *self.starter.failed_starts)))

    @property
    def parts(self) -> dict[str, str]:
        """Returns the query of each part that runs or waits; most have one, of their own name."""
        running = {name: pipeline.plan.query for name, (pipeline, _) in list(self._running.items())}
        return running | {w.plan.name: w.plan.query for w in self.starter}

    def statements(self, query: str) -> list[RunningStatement]:
        """Returns the parts of a query."""
        found: list[RunningStatement] = [w.statement for w in self.starter if w.plan.query == query]
        running = [p.statement for p in self if p.plan.query == query]
        return found + [s for s in running if isinstance(s, RunningStatement)]

    # starting

    def enrol(self, statement: RunningStatement, source: Source, late: set[str]) -> None:
        """Adds a prepared statement to its stream. It starts before the tables ``late`` are loaded."""
        from millpond.engine.pipeline import Pipeline

        before = self.aside.end(statement.plan.name)
        pipeline = Pipeline(statement, source, State(self.query_states.get(statement.plan.query) or before))
        pipeline.on_progress = partial(self._progressed, pipeline)
        self.backfills.begin(pipeline)
        start = beginning(statement.plan, source) if pipeline.offset is None else None
        if start is not None:
            pipeline.begin_at(start)
        if late:
            _too_late(pipeline, late)
        stream = self.readers.find(statement, source)
        stream.add(pipeline)
        self._running[statement.plan.name] = (pipeline, stream)
        if statement.waiting is not None and self._retry_thread is None:
            self._retry_thread = RetryThread(self)
            self._store.visibility.listen(self._retry_thread.wake)

    def start(self, enrolled: Mapping[str, Undo | None]) -> None:
        """Starts statements that were added to their streams. One that fails is removed by its undo."""
        try:
            self._settle(list(self.readers))
        except BaseException as error:
            for name in enrolled:
                if (pair := self._running.get(name)) is not None:
                    pair[0].fail(known(error), NO_PATIENCE)
            if not isinstance(error, Exception):
                for undo in enrolled.values():
                    if undo is not None:
                        undo.take_back()
                raise
        for name, undo in enrolled.items():
            if (pair := self._running.get(name)) is None:
                continue  # another part of its query could not be started
            pipeline = pair[0]
            pipeline.begin()
            if pipeline.error is not None and pipeline.state is State.FAILED and undo is not None:
                self.starter.refuse(pipeline.plan, undo, pipeline.error)

    def describe(self) -> list[dict[str, Any]]:
        """Describes each query, also those that have not started."""
        return [p.describe() for p in self] + self.starter.describe()

    def _settle(self, streams: list[Stream]) -> None:
        """Starts to read the streams that a statement needs, and ends the others; Spark starts beside that. What cannot
        be started fails.
        """
        if not self._direct and any(p.wanted and p.statement.may_need_spark for p in self):
            try:
                self._spark.start(self._without_spark)
            except Exception as error:
                self._without_spark(error)
        settle(streams)
        faults.reach("query launched")

    def _without_spark(self, error: Exception) -> None:
        for pipeline in self:
            if not isinstance(error, ConnectorMissing) or _formats_of(pipeline.plan, pipeline.source):
                pipeline.fail(explain(error), NO_PATIENCE)

    def take_out(self, query: str) -> list[tuple[RunningStatement, Source]]:
        """Stops a query; its state outside its target stays."""
        found = [(w.statement, w.source) for w in self.starter.remove(query)]
        for part, (pipeline, stream) in list(self._running.items()):
            if pipeline.plan.query == query and self._running.pop(part, None) is not None:
                stream.remove(pipeline)
                self.backfills.forget(part)
                if not len(stream):
                    self.readers.close(stream)
                if isinstance(pipeline.statement, RunningStatement):
                    found.append((pipeline.statement, pipeline.source))
        for statement, _ in found:
            statement.close()
        return found

    def make_visible(self, query: str) -> None:
        """Makes visible what waits in the target of a query. Raises if that is not possible."""
        for pipeline in self:
            if pipeline.plan.query == query and isinstance(pipeline.statement, RunningStatement):
                pipeline.between_batches(pipeline.statement.make_visible)

    def remove(self, query: str) -> None:
        """Stops a query, and removes its state outside its target."""
        for statement in (*self.aside.remove(query), *(s for s, _ in self.take_out(query))):
            safely(statement.drop)

    # control

    def state_of(self, query: str) -> str:
        """Returns the state of a query; if one of several parts has failed, that of the others."""
        states = [p.state for p in self if p.plan.query == query]
        going = [state for state in states if state is not State.FAILED]
        if states:
            return (going or states)[0]
        failed = self.starter.failed_starts.get(query)
        return self.query_states.get(query) or (failed.state if failed is not None else State.RUNNING)

    def control(self, query: str, action: str, undo: Undo) -> None:
        """Does PAUSE, RESUME, STOP or START; a restart restores the state."""
        state = asked(query, self.state_of(query), action)
        found = [(p, s) for p, s in list(self._running.values()) if p.plan.query == query]
        before = self.query_states.get(query)
        undo.on_failure(lambda: self.query_states.set(query, before))
        if state is State.RUNNING:
            self.query_states.set(query, None)
        elif not any(p.statement.ephemeral for p, _ in found):
            self.query_states.set(query, str(state))
        faults.reach("query told")
        if query in self.starter.failed_starts and state is State.RUNNING:
            self.starter.start_again(query)
            return
        able = [p for p, _ in found if can_move(p.state, action)]
        for pipeline in able:
            undo.on_failure(partial(pipeline.put_back, pipeline.state, pipeline.error))
            pipeline.ask(action)
        self._settle([stream for _, stream in found])
        for pipeline in able:
            pipeline.begin()
            pipeline.check()

    def replay(self, table: str) -> int:
        """Applies the rows of error records again, and returns how many succeeded; the others stay."""
        replayed = 0
        for pipeline in self:
            statement = pipeline.statement
            if isinstance(statement, RunningStatement) and statement.plan.errors.lower() == table.lower():
                replayed += pipeline.between_batches(statement.replay)
        return replayed

    def pull(self, query: str) -> None:
        """Looks for new rows of the streams of a query at once."""
        for pipeline, stream in list(self._running.values()):
            if pipeline.plan.query == query:
                stream.pull()

    def close(self) -> None:
        self.starter.close()
        if self._retry_thread is not None:
            self._retry_thread.close()
        for stream in self.readers:
            stream.close()
        for pipeline in self:
            safely(pipeline.statement.close)
        for waiting in self.starter:
            safely(waiting.statement.close)
        self._signal()

    def crash(self) -> None:
        """Stops the pipelines without the batches that run: what was not delivered never will be."""
        self._commit_lock.end()
        self.close()

    def retry(self) -> int:
        """Retries rows that wait for a match; returns the total number of rows emitted so."""
        for pipeline in self:
            pipeline.retry()
        return sum(pipeline.retried for pipeline in self)

    # draining

    def _progressed(self, pipeline: Pipeline) -> None:
        if self.backfills.note(pipeline):
            self.starter.look_again.set()
        self._signal()

    def _signal(self) -> None:
        with self._progress:
            self._progress.notify_all()

    def check(self) -> None:
        """Raises the error of a query that has failed."""
        for pipeline in self:
            pipeline.check()
        self.starter.check()

    def drain(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self._wait_until_started(deadline)
        self.check()
        for pipeline in self._in_order():
            self.check()
            if not pipeline.wanted:
                continue
            end = pipeline.source.latest(None)
            while True:
                self._running[pipeline.name][1].pull()
                self.check()
                if not pipeline.wanted or pipeline.reached(end):
                    break
                left = deadline - time.monotonic()
                if left <= 0:
                    behind = ", ".join(
                        f'"{p.name}"' for p in self if p.wanted and not p.reached(p.source.latest(None))
                    )
                    raise TimedOut(
                        f"not drained after {timeout:g} s: {behind or pipeline.name} is behind",
                        hint="wait longer with drain(timeout=…); SHOW QUERIES shows how far each is",
                    )
                with self._progress:
                    if not pipeline.reached(end):
                        self._progress.wait(min(left, 0.1))

    def _wait_until_started(self, deadline: float) -> None:
        while waiting := self.starter.unstarted():
            self.starter.start_waiting()
            self.check()
            if time.monotonic() > deadline:
                listed = ", ".join(f'"{name}"' for name in waiting)
                raise TimedOut(
                    f"not drained: {listed} has not started", hint="SHOW QUERIES shows what it waits for"
                )
            if self.starter.unstarted():
                time.sleep(0.02)

    def _in_order(self) -> list[Pipeline]:
        """Sorts statements: those that fill a stream before those that read it."""
        ordered: list[Pipeline] = []
        seen: set[str] = set()

        def visit(pipeline: Pipeline) -> None:
            if pipeline.name in seen:
                return
            seen.add(pipeline.name)
            stream = pipeline.plan.batch.stream.relation.name.lower()
            for other in self:
                if stream in (name.lower() for name in other.plan.writes):
                    visit(other)
            ordered.append(pipeline)

        for pipeline in self:
            visit(pipeline)
        return ordered


def _formats_of(plan: PipelinePlan, source: Source) -> set[str]:
    """Returns the formats that a statement needs, in addition to those that Spark includes."""
    found = {source.format} if isinstance(source, NativeSource) else set()
    if plan.target.kind == "sink" and issubclass(sink := find_sink(plan.target.name), NativeSink):
        found.add(sink.format)
    return found


def _too_late(pipeline: Pipeline, tables: set[str]) -> None:
    """Handles a query whose tables are not loaded in time."""
    listed, wait, miss = ", ".join(sorted(tables)), pipeline.plan.wait, pipeline.plan.miss
    if miss is not None and miss.mode == "fail":
        pipeline.fail(
            PipelineFailed(
                f"table {listed} is not loaded after {wait:g} s",
                hint="START QUERY when it is, or wait longer with 'table.wait.timeout'",
            )
        )
    else:
        log.warning("query %s starts before table %s is loaded", pipeline.name, listed)
