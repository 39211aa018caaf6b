"""The running statements of an app: started together, drained in the order of their streams."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.app.block import Block
from millpond.app.folding import Folded
from millpond.app.groups import Groups
from millpond.app.joining import joined_streams
from millpond.app.keyed import Keyed
from millpond.app.outgoing import Outgoing, OutgoingGroups
from millpond.app.phases import Phases, loads_table
from millpond.app.retrying import Retrying
from millpond.app.running import Rows, RunningStatement
from millpond.errors import Closed, PipelineFailed, SqlError, TimedOut, UnknownName, did_you_mean
from millpond.journal.catalog import Entry
from millpond.plan.plans import PipelinePlan
from millpond.sinks.base import NativeSink, Sink, find_sink
from millpond.sources.base import NativeSource, Source
from millpond.sql.catalog import Limits

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.engine.direct import DirectStream
    from millpond.engine.pipeline import Pipeline, Statement
    from millpond.engine.stream import StreamQuery

    Reading = StreamQuery | DirectStream


log = logging.getLogger("millpond")
_AT_ONCE = max(2, os.cpu_count() or 2)
"""Queries that start side by side: each brings a process of its own."""
HELD = "held"
"""The kind of journal entries that say what a query was told: its state."""
DROPPED = "dropped"


def statements_of(app: App, plan: PipelinePlan, *, ephemeral: bool) -> list[RunningStatement]:
    """The statement of a plan, by its kind; where streams are joined, one for each of them."""
    if plan.block:
        return [Block(app, plan, ephemeral=ephemeral)]
    kind: type[RunningStatement]
    if plan.target.kind == "sink":
        kind = OutgoingGroups if plan.aggregation is not None else Outgoing
    else:
        kind = Groups if plan.aggregation is not None else Folded if plan.fold is not None else Rows
    if plan.keys is not None and plan.join is None:
        kind = Keyed
    statement = kind(app, plan, ephemeral=ephemeral)
    if plan.join is None:
        return [statement]
    return joined_streams(app, statement, plan, ephemeral=ephemeral)


class Pipelines:
    """All of them, and the queries that read their streams. Spark starts with the first.

    With ``direct`` there are no queries: statements move when the app is drained.
    """

    def __init__(self, app: App, *, direct: bool = False):
        self._app = app
        self._direct = direct
        self.formats: set[str] = set()
        """The formats of Spark that its sources and sinks need, beside those that Spark brings."""
        self.phases = Phases(app)
        self._running: dict[str, tuple[Pipeline, Reading]] = {}
        self._streams: dict[str, Reading] = {}
        self._waiting: dict[str, tuple[RunningStatement, Source]] = {}
        self._progress = threading.Condition()
        self._delivering = threading.Lock()
        self._numbers = itertools.count()
        self._held: dict[str, str] = {}
        self._crashed = False
        self._begun = False
        self._starting = threading.Lock()
        self._retrying: Retrying | None = None
        self._starter: threading.Thread | None = None
        self._look_again = threading.Event()
        self._since: dict[str, float] = {}
        self._closed = False

    def __iter__(self) -> Iterator[Pipeline]:
        return iter([pipeline for pipeline, _ in list(self._running.values())])

    def add(self, plan: PipelinePlan, sources: Sequence[Source], *, ephemeral: bool) -> None:
        """Puts a statement in line. ``sources`` are those of its streams."""
        if self._held.get(plan.name) != DROPPED:
            self.formats |= {s.format for s in sources if isinstance(s, NativeSource)}
            if plan.target.kind == "sink":
                self.needs_format_of(find_sink(plan.target.name))
            statements = statements_of(self._app, plan, ephemeral=ephemeral)
            for statement, source in zip(statements, sources, strict=True):
                statement.declare()
                self._waiting[statement.plan.name] = (statement, source)

    def needs_format_of(self, sink: type[Sink]) -> None:
        """Notes what Spark needs to write to a sink."""
        if issubclass(sink, NativeSink):
            self.formats.add(sink.format)

    @property
    def names(self) -> list[str]:
        """Of all queries, those that wait to be started too."""
        return list(dict.fromkeys(self._parts().values()))

    def _parts(self) -> dict[str, str]:
        """The query of each part that runs or waits; most have one, of their own name."""
        running = {name: pipeline.plan.query for name, (pipeline, _) in list(self._running.items())}
        return running | {name: s.plan.query for name, (s, _) in list(self._waiting.items())}

    def _parts_of(self, query: str) -> list[str]:
        return [name for name, owner in self._parts().items() if owner == query]

    def restore_held(self, name: str, state: str) -> None:
        """What a query was told before a restart: it is paused, stopped or dropped."""
        self._held[name] = state

    def begin(self) -> None:
        """From now on what is added is started."""
        self._begun = True
        self._app._loader.on_end = self._look_again.set
        self.start_waiting()

    def finish_starting(self) -> None:
        """Starts what was added, also what another thread has begun to start."""
        with self._starting:
            pass
        self.start_waiting()

    @property
    def starting(self) -> bool:
        """Whether queries are being started just now, and Spark with the first."""
        return self._starting.locked()

    @property
    def waiting(self) -> dict[str, tuple[str, ...]]:
        """The queries that have not been started, and the tables that they wait for."""
        return {name: tuple(sorted(self._needs(s.plan))) for name, (s, _) in list(self._waiting.items())}

    def _needs(self, plan: PipelinePlan) -> set[str]:
        """The tables that a statement waits for: those that files fill, and those that topics do before they follow
        them, if these do not need what the statement fills."""
        found = self._app._loader.running((*plan.reads, *plan.writes))
        if self._direct:
            return found
        for other in self._loading_plans():
            filled = {name.lower() for name in other.writes} & {name.lower() for name in plan.reads}
            if filled and other.query != plan.query and not self._depends(other, plan):
                found |= filled
        return found

    def _loading_plans(self) -> list[PipelinePlan]:
        """Of statements that load a table, or will when they are started."""
        waiting = [
            s.plan
            for s, source in list(self._waiting.values())
            if loads_table(s.plan, source) and s.plan.query not in self._held
        ]
        return waiting + [p.plan for p in self if self.phases.is_loading(p)]

    def _depends(self, one: PipelinePlan, other: PipelinePlan) -> bool:
        """Whether a statement reads what another fills, by itself or through others."""
        plans = [p.plan for p in self] + [s.plan for s, _ in list(self._waiting.values())]
        seen: set[str] = set()
        reads = {name.lower() for name in one.reads}
        while reads - seen:
            seen |= reads
            reads = {
                r.lower() for p in plans if {w.lower() for w in p.writes} & seen for r in p.reads
            } | reads
        return bool(seen & {name.lower() for name in other.writes})

    def start_waiting(self) -> None:
        """Starts what was added since the last time and whose tables are loaded, or were waited for long enough.
        While a thread does that others leave it to it; the rest is left to a thread that looks again."""
        while self._begun and self._startable() and self._starting.acquire(blocking=False):
            try:
                self._enrol(self._startable())
                self._settle(list(self._streams.values()))
            finally:
                self._starting.release()
        if self._begun and self._waiting and self._starter is None and not self._closed:
            self._starter = threading.Thread(target=self._start_later, name="millpond-starting", daemon=True)
            self._starter.start()

    def _startable(self) -> list[str]:
        now = time.monotonic()
        found = []
        for name, (statement, _) in list(self._waiting.items()):
            since = self._since.setdefault(name, now)
            if not self._needs(statement.plan) or now - since >= statement.plan.wait:
                found.append(name)
        return found

    def _start_later(self) -> None:
        while self._waiting and not self._closed:
            self._look_again.wait(0.2)
            self._look_again.clear()
            try:
                self.start_waiting()
            except Exception as error:  # whoever drains tries again, and is told
                log.warning("queries could not be started: %s", error)
                break
        self._starter = None

    def _enrol(self, names: list[str]) -> None:
        """Those that wait become members of their streams."""
        from millpond.engine.pipeline import Pipeline
        from millpond.engine.states import State

        if not self._streams:
            shutil.rmtree(self._scratch, ignore_errors=True)
        for name in names:
            statement, source = self._waiting[name]
            late = self._needs(statement.plan)
            statement.set_up()
            held = self._held.get(statement.plan.query, State.RUNNING)
            pipeline = Pipeline(statement, source, State(held))
            pipeline.on_progress = partial(self._progressed, pipeline)
            self.phases.begin(pipeline)
            start = source.begin() if pipeline.offset is None else None
            if start is not None:
                pipeline.passed(start, 0, 0.0, 0)
            if late:
                self._too_late(pipeline, late)
            stream = self._stream(statement, source)
            stream.add(pipeline)
            self._running[name] = (pipeline, stream)
            self._waiting.pop(name, None)
            if statement.waiting is not None and self._retrying is None:
                self._retrying = Retrying(self)
                self._app._store.listen(self._retrying.wake)

    def _too_late(self, pipeline: Pipeline, tables: set[str]) -> None:
        """Tables are not loaded, and the query does not wait for them any longer."""
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

    def describe(self) -> list[dict[str, Any]]:
        """Of each query how it is; those that wait for tables, or for Spark to start, are there too."""
        starting = [
            {
                "name": name,
                "state": "waiting" if self._needs(statement.plan) else "starting",
                "statement": statement.plan.text,
            }
            for name, (statement, _) in list(self._waiting.items())
        ]
        return [p.describe() for p in self] + starting

    def _settle(self, streams: list[Reading]) -> None:
        """Lets the queries of streams run that a statement wants, and no others."""
        spark = self._app._spark() if not self._direct and any(p.wanted for p in self) else None
        starting: list[Reading] = []
        for stream in streams:
            stream.settle(spark)
            starting.append(stream)
            if len(starting) >= _AT_ONCE:
                starting.pop(0).wait_until_up()
        for stream in starting:
            stream.wait_until_up()

    def _stream(self, statement: RunningStatement, source: Source) -> Reading:
        """The query that reads a source; statements with the same one share it, but for those in real-time mode."""
        key = repr((source.uri, sorted(source.values.items()), source.schema()))
        alone = statement.plan.target.real_time and not self._direct
        if alone:
            key = f"real-time {statement.plan.name}"
        # It may have taken in new columns.
        same = (s for s in self._streams.values() if s.source is source and not alone)
        found = self._streams.get(key) or next(same, None)
        if found is None:
            limits = statement.plan.batch.stream.relation.limits
            found = self._real_time(statement, source) if alone else self._new_stream(source, limits)
            self._streams[key] = found
        return found

    def _real_time(self, statement: RunningStatement, source: Source) -> Reading:
        from millpond.engine.realtime import RealTimeQuery

        assert isinstance(statement, Outgoing)
        assert isinstance(statement.sink, NativeSink) and isinstance(source, NativeSource)
        seconds = statement.sink.values["commit.interval"]
        directory = self._scratch / f"stream-{next(self._numbers)}"
        return RealTimeQuery(source, statement.sink, self._app._store.moment, seconds, directory)

    def _new_stream(self, source: Source, limits: Limits | None) -> Reading:
        from millpond.engine.direct import DirectStream
        from millpond.engine.sizes import BatchSize
        from millpond.engine.stream import StreamQuery

        size = BatchSize(limits.rows, limits.seconds) if limits is not None else BatchSize()
        if self._direct:
            return DirectStream(source, size, self._app._spark)
        return StreamQuery(source, size, self._scratch / f"stream-{next(self._numbers)}")

    @property
    def _scratch(self) -> Path:
        return self._app._state.path / "scratch"

    def remove(self, name: str) -> None:
        """Stops a query, and what it keeps beside its target goes."""
        parts = self._parts_of(name)
        self._since = {part: at for part, at in self._since.items() if part not in parts}
        self._hold(name, None)
        statements: list[Statement] = [self._waiting.pop(part)[0] for part in parts if part in self._waiting]
        for part in parts:
            if part in self._running:
                pipeline, stream = self._running.pop(part)
                stream.remove(pipeline)
                self.phases.forget(part)
                if not len(stream):
                    self._streams = {key: s for key, s in self._streams.items() if s is not stream}
                statements.append(pipeline.statement)
        for statement in statements:
            statement.drop()

    # control

    def known(self) -> dict[str, str]:
        """Queries by their names, those of their parts, and those of the tables and streams that they fill."""
        parts = {n.lower(): query for part, query in self._parts().items() for n in (part, query)}
        filled = {n.partition(":")[2]: q for n, q in parts.items() if n.startswith(("table:", "stream:"))}
        return filled | parts

    def find(self, name: str) -> str:
        """The query of a name, or the one that fills the table or stream of that name."""
        known = self.known()
        if name.lower() in known:
            return known[name.lower()]
        listed = f"SHOW QUERIES lists them: {', '.join(self.names)}" if known else "there is no running query"
        raise UnknownName(f'there is no query "{name}"', hint=did_you_mean(name, self.names, listed))

    def control(self, name: str, action: str) -> None:
        """PAUSE, RESUME, STOP or START; a restart finds it as it was left."""
        from millpond.engine.states import State, can_move, moved

        name = self.find(name)
        found = [self._running[part] for part in self._parts_of(name) if part in self._running]
        # Of a query with several parts one may have failed: the others are as they were asked to be.
        able = [p for p, _ in found if can_move(p.state, action)] or [p for p, _ in found[:1]]
        try:
            state = moved(able[0].state if able else State(self._held.get(name, State.RUNNING)), action)
            for pipeline in able:
                pipeline.ask(action)
        except SqlError as error:
            raise SqlError(f'query "{name}": {error.message}', hint=error.hint) from None
        if not found or not found[0][0].statement.ephemeral:
            self._hold(name, None if state is State.RUNNING else str(state))
        self._settle([stream for _, stream in found])

    def replay(self, table: str) -> int:
        """Applies the rows of error records again, and answers how many went through; the others stay."""
        replayed = 0
        for pipeline in self:
            statement = pipeline.statement
            if isinstance(statement, RunningStatement) and statement.plan.errors.lower() == table.lower():
                replayed += pipeline.between_batches(statement.replay)
        return replayed

    def drop(self, name: str) -> None:
        """Ends a query for good: a restart does not bring it back, though its text may be in the file."""
        self.remove(name)
        self._app._store.forget(name)
        self._hold(name, DROPPED)

    def take_name(self, name: str) -> None:
        """A new query has the name of one that was dropped: that one is forgotten."""
        if self._held.get(name) == DROPPED:
            self._hold(name, None)

    def _hold(self, name: str, state: str | None) -> None:
        if state is None and name not in self._held:
            return
        if state is None:
            del self._held[name]
            self._app._journal.drop_entry(HELD, name)
        else:
            self._held[name] = state
            self._app._journal.put_entry(Entry(name, HELD, "", {"state": state}))

    def close(self) -> None:
        self._closed = True
        self._look_again.set()
        starter = self._starter
        if starter is not None:
            starter.join()
        if self._retrying is not None:
            self._retrying.close()
        for stream in list(self._streams.values()):
            stream.close()
        for pipeline in self:
            pipeline.statement.close()
        self._signal()

    def crash(self) -> None:
        """Stops the pipelines without the batches that run: what was not delivered never will be."""
        with self._delivering:
            self._crashed = True
        self.close()

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """Statements commit in here, one at a time."""
        with self._delivering:
            if self._crashed:
                raise Closed("the app is gone")
            yield

    def retry(self) -> int:
        """Tries rows that wait for a match again; answers how many came out so, ever."""
        for pipeline in self:
            pipeline.retry()
        return sum(pipeline.retried for pipeline in self)

    # draining

    def _progressed(self, pipeline: Pipeline) -> None:
        if self.phases.note(pipeline):
            self._look_again.set()
        self._signal()

    def _signal(self) -> None:
        with self._progress:
            self._progress.notify_all()

    def check(self) -> None:
        """Raises the error of a pipeline that has failed."""
        for pipeline in self:
            pipeline.check()

    def drain(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self._wait_until_started(deadline)
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
                        hint="wait longer with drain(timeout=…); SHOW QUERIES tells how far each is",
                    )
                with self._progress:
                    if not pipeline.reached(end):
                        self._progress.wait(min(left, 0.1))

    def _wait_until_started(self, deadline: float) -> None:
        while self._begun and (waiting := self.waiting):
            self.start_waiting()
            if time.monotonic() > deadline:
                listed = ", ".join(f'"{name}"' for name in waiting)
                raise TimedOut(
                    f"not drained: {listed} has not started", hint="SHOW QUERIES tells what it waits for"
                )
            if self.waiting:
                time.sleep(0.02)

    def _in_order(self) -> list[Pipeline]:
        """Those that fill a stream before those that read it."""
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
