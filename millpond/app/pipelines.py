"""The running statements of an app: started together, drained in the order of their streams."""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.app.block import Block
from millpond.app.folding import Folded
from millpond.app.groups import Groups
from millpond.app.running import Rows, RunningStatement
from millpond.errors import Closed, TimedOut
from millpond.plan.plans import PipelinePlan
from millpond.sources.base import Source

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.engine.pipeline import Pipeline
    from millpond.engine.stream import StreamQuery


def statement_of(app: App, plan: PipelinePlan, *, ephemeral: bool) -> RunningStatement:
    """The statement of a plan, by its kind."""
    if plan.block:
        return Block(app, plan, ephemeral=ephemeral)
    kind = Groups if plan.aggregation is not None else Folded if plan.fold is not None else Rows
    return kind(app, plan, ephemeral=ephemeral)


class Pipelines:
    """All of them, and the queries that read their streams. Spark starts with the first."""

    def __init__(self, app: App):
        self._app = app
        self._running: dict[str, tuple[Pipeline, StreamQuery]] = {}
        self._streams: dict[str, StreamQuery] = {}
        self._waiting: dict[str, tuple[RunningStatement, Source]] = {}
        self._progress = threading.Condition()
        self._delivering = threading.Lock()
        self._numbers = itertools.count()
        self._crashed = False

    def __iter__(self) -> Iterator[Pipeline]:
        return iter([pipeline for pipeline, _ in list(self._running.values())])

    def add(self, plan: PipelinePlan, source: Source, *, ephemeral: bool) -> None:
        self._waiting[plan.name] = (statement_of(self._app, plan, ephemeral=ephemeral), source)

    def start_waiting(self) -> None:
        """Starts what was added since the last time, tables being loaded by now."""
        if not self._waiting or self._app._in_file:
            return
        from millpond.engine.pipeline import Pipeline

        if not self._streams:
            shutil.rmtree(self._scratch, ignore_errors=True)
        spark = self._app._spark()
        for name, (statement, source) in list(self._waiting.items()):
            del self._waiting[name]
            statement.set_up()
            pipeline = Pipeline(statement, source)
            pipeline.on_progress = self._signal
            stream = self._stream(source)
            self._running[name] = (pipeline, stream)
            stream.add(pipeline)
        for stream in self._streams.values():
            stream.start(spark)
        for stream in list(self._streams.values()):
            stream.wait_until_up()

    def _stream(self, source: Source) -> StreamQuery:
        """The query that reads a source; statements with the same one share it."""
        from millpond.engine.stream import StreamQuery

        key = repr((source.uri, sorted(source.values.items()), source.schema()))
        found = self._streams.get(key)
        if found is None:
            found = StreamQuery(source, self._scratch / f"stream-{next(self._numbers)}")
            self._streams[key] = found
        return found

    @property
    def _scratch(self) -> Path:
        return self._app._state.path / "scratch"

    def remove(self, name: str) -> None:
        """Stops a pipeline, and what it keeps beside its target goes."""
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            waiting[0].drop()
        found = self._running.pop(name, None)
        if found is None:
            return
        pipeline, stream = found
        stream.remove(pipeline)
        if not len(stream):
            self._streams = {key: s for key, s in self._streams.items() if s is not stream}
        pipeline.statement.drop()

    def close(self) -> None:
        for stream in list(self._streams.values()):
            stream.stop()
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

    # draining

    def _signal(self) -> None:
        with self._progress:
            self._progress.notify_all()

    def check(self) -> None:
        """Raises the error of a pipeline that has failed."""
        for pipeline in self:
            pipeline.check()

    def drain(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for pipeline in self._in_order():
            end = pipeline.source.latest(None)
            while True:
                self.check()
                if pipeline.reached(end):
                    break
                left = deadline - time.monotonic()
                if left <= 0:
                    behind = ", ".join(f'"{p.name}"' for p in self if not p.reached(p.source.latest(None)))
                    raise TimedOut(
                        f"not drained after {timeout:g} s: {behind or pipeline.name} is behind",
                        hint="wait longer with drain(timeout=…); SHOW QUERIES tells how far each is",
                    )
                with self._progress:
                    if not pipeline.reached(end):
                        self._progress.wait(min(left, 0.1))

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
