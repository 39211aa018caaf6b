"""The running statements of an app: started together, drained in the order of their streams."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.app.aggregates import LiveAggregate, Merged, target_changes
from millpond.app.store import Moment
from millpond.changes import Changes, Position
from millpond.errors import Closed, TimedOut
from millpond.plan.plans import PipelinePlan
from millpond.query.evaluate import Answer
from millpond.sources.base import Source
from millpond.sql.catalog import Relation
from millpond.sql.resolve import Resolved

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.engine.pipeline import Pipeline


_AT_ONCE = max(2, os.cpu_count() or 2)
"""Pipelines that start side by side: each brings a process of its own."""


@dataclass(slots=True)
class _Waiting:
    plan: PipelinePlan
    source: Source
    ephemeral: bool


class Pipelines:
    """The host of the app's pipelines. Spark starts with the first of them."""

    def __init__(self, app: App):
        self._app = app
        self._running: dict[str, Pipeline] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._held = True
        self._progress = threading.Condition()
        self._ephemeral: dict[str, Position] = {}
        self._aggregates: dict[str, LiveAggregate] = {}
        self._delivering = threading.Lock()
        self._crashed = False

    def __iter__(self) -> Iterator[Pipeline]:
        return iter(list(self._running.values()))

    def add(self, plan: PipelinePlan, source: Source, *, ephemeral: bool) -> None:
        self._waiting[plan.name] = _Waiting(plan, source, ephemeral)

    def start_restored(self) -> None:
        """Restored pipelines may start: the app's SQL has claimed what it wants."""
        self._held = False
        self.start_waiting()

    def start_waiting(self) -> None:
        """Starts what was added since the last time, tables being loaded by now."""
        if not self._waiting or self._app._in_file:
            return
        from millpond.engine.checkpoint import is_ahead
        from millpond.engine.pipeline import Pipeline

        spark = self._app._spark()
        starting: list[Pipeline] = []
        for name, waiting in list(self._waiting.items()):
            del self._waiting[name]
            directory = self._directory(name, ephemeral=waiting.ephemeral)
            if waiting.ephemeral or is_ahead(directory, self.position(name)):
                shutil.rmtree(directory, ignore_errors=True)
            directory.parent.mkdir(parents=True, exist_ok=True)
            if waiting.ephemeral:
                self._ephemeral.setdefault(name, Position(name, "", -1))
            self._set_up_groups(waiting.plan, ephemeral=waiting.ephemeral)
            pipeline = Pipeline(waiting.plan, waiting.source, self, directory)
            pipeline.on_progress = self._signal
            self._running[name] = pipeline
            pipeline.start(spark)
            starting.append(pipeline)
            if len(starting) >= _AT_ONCE:
                starting.pop(0).wait_until_up(spark)
        for pipeline in starting:
            pipeline.wait_until_up(spark)

    def _directory(self, name: str, *, ephemeral: bool) -> Path:
        safe = "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):x}" for c in name.lower())
        return self._app._state.path / ("scratch" if ephemeral else "checkpoints") / safe

    def remove(self, name: str) -> None:
        """Stops a pipeline and forgets its checkpoint."""
        self._waiting.pop(name, None)
        pipeline = self._running.pop(name, None)
        if pipeline is not None:
            pipeline.stop()
            if pipeline.plan.aggregation is not None:
                self._app._store.drop(pipeline.plan.state)
                self._aggregates.pop(name, None)
        for ephemeral in (False, True):
            shutil.rmtree(self._directory(name, ephemeral=ephemeral), ignore_errors=True)

    def close(self) -> None:
        for pipeline in self:
            pipeline.stop()
        self._signal()

    def crash(self) -> None:
        """Stops the pipelines without the batches that run: what was not delivered never will be."""
        with self._delivering:
            self._crashed = True
        self.close()

    # host of the pipelines

    def tables(self) -> Moment:
        return self._app._store.moment()

    def position(self, pipeline: str) -> Position | None:
        known = self._ephemeral.get(pipeline)
        if known is not None:
            return known if known.batch >= 0 else None
        return self._app._journal.position(pipeline)

    def in_process(self, query: Resolved) -> Answer | None:
        return self._app._evaluator.in_process(query)

    def deliver(self, plan: PipelinePlan, rows: pa.Table, position: Position) -> None:
        with self._delivering:
            if self._crashed:
                raise Closed("the app is gone")
            self._deliver(plan, rows, position)

    def _deliver(self, plan: PipelinePlan, rows: pa.Table, position: Position) -> None:
        store = self._app._store
        arrow = plan.batch.output.arrow()
        rows = rows.rename_columns(arrow.names).cast(arrow)
        ephemeral = plan.name in self._ephemeral
        kept = None if ephemeral else position
        if plan.aggregation is not None:
            self._deliver_groups(plan, rows, kept)
        else:
            match plan.target.kind:
                case "table":
                    self._insert(plan, rows, kept)
                case "stream":
                    store.commit(position=position, sent={plan.target.name: rows})
                case "emit":
                    self._emit(plan, rows)
                    if not ephemeral:
                        store.commit(position=position)
        if ephemeral:
            self._ephemeral[plan.name] = position

    def _emit(self, plan: PipelinePlan, rows: pa.Table) -> None:
        if plan.name in self._ephemeral or self._app._on_emit is None:
            self._app._emitted[plan.name].add(rows)
        elif rows.num_rows:
            self._app._on_emit(plan.name, rows)

    def _insert(self, plan: PipelinePlan, rows: pa.Table, position: Position | None) -> None:
        """A batch of INSERT or of a live table. Only INSERT is refused a key that is there."""
        store, name = self._app._store, plan.target.name
        relation = self._app._catalog.find(name)
        if relation is None or not relation.strict or plan.name == f"table:{name}":
            store.commit({name: Changes(rows)}, position)
            return

        def found(moment: Moment) -> tuple[dict[str, Changes], None]:
            applied = self.position(plan.name)
            if applied is None or position is None or not applied.covers(position):
                moment.snapshot(name).refuse_taken(rows, f'table "{name}"')
            return {name: Changes(rows)}, None

        store.write(found, position)

    def _deliver_groups(self, plan: PipelinePlan, rows: pa.Table, position: Position | None) -> None:
        """Merges a batch into a live aggregate: state, target and position in one commit."""
        aggregate = self._aggregates[plan.name]
        store, target = self._app._store, plan.target

        def find(moment: Moment) -> tuple[dict[str, Changes], Merged]:
            merged = aggregate.merge(rows, moment.snapshot(plan.state))
            changes = {plan.state: Changes(merged.state)}
            if target.kind == "table":
                changes[target.name] = target_changes(merged, moment.snapshot(target.name))
            return {name: change for name, change in changes.items() if len(change)}, merged

        if target.kind == "stream":
            store.write(find, position, sent=lambda merged: {target.name: merged.seen})
            return
        if target.kind == "emit":
            self._emit_groups(plan, find, position)
            return
        store.write(find, position)

    def _emit_groups(
        self,
        plan: PipelinePlan,
        find: Callable[[Moment], tuple[dict[str, Changes], Merged]],
        position: Position | None,
    ) -> None:
        """Shows the groups that a batch changed. They are shown before they count, so that a kill loses none."""
        store = self._app._store

        def shown(moment: Moment) -> tuple[dict[str, Changes], None]:
            changes, merged = find(moment)
            self._emit(plan, merged.seen)
            return changes, None

        store.write(shown, position)

    def _set_up_groups(self, plan: PipelinePlan, *, ephemeral: bool) -> None:
        """The table of a live aggregate's state; one without groups has its row from the beginning."""
        if plan.aggregation is None:
            return
        store, state = self._app._store, plan.aggregation.state
        if ephemeral:
            store.create_hidden(plan.state, state, null_keys=True)
        else:
            options = {"null_keys": True, "durability": store.durability(plan.target.name)}
            store.create(Relation(plan.state, "table", state), "memory", options)
        self._aggregates[plan.name] = LiveAggregate(plan, self._app._evaluator)
        if (
            not plan.aggregation.keys
            and plan.target.kind == "table"
            and not len(self.tables().snapshot(plan.state))
        ):
            moment = self.tables()
            inputs = {t.view: moment.snapshot(t.table).scan() for t in plan.batch.tables}
            inputs[plan.batch.stream.view] = plan.batch.stream.relation.schema.arrow().empty_table()
            none = self._app._evaluator.answer(plan.aggregation.partial, inputs)
            self._deliver_groups(plan, none, None)

    # draining

    def _signal(self) -> None:
        with self._progress:
            self._progress.notify_all()

    def drain(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for pipeline in self._in_order():
            end = pipeline.source.latest(None)
            while True:
                for any_pipeline in self:
                    any_pipeline.check()
                if pipeline.reached(end):
                    break
                left = deadline - time.monotonic()
                if left <= 0:
                    behind = ", ".join(
                        f'"{p.plan.name}"' for p in self if not p.reached(p.source.latest(None))
                    )
                    raise TimedOut(
                        f"not drained after {timeout:g} s: {behind or pipeline.plan.name} is behind",
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
            if pipeline.plan.name in seen:
                return
            seen.add(pipeline.plan.name)
            stream = pipeline.plan.batch.stream.relation.name.lower()
            for other in self:
                if other.plan.target.kind == "stream" and other.plan.target.name.lower() == stream:
                    visit(other)
            ordered.append(pipeline)

        for pipeline in self:
            visit(pipeline)
        return ordered
