"""Tracks backfills of endless sources: a table is loading until it has what was there at the start of its statement.

Offsets measure the progress of a load: what a topic has compacted away is counted as read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.changes import Offset
from millpond.connectors import abilities
from millpond.connectors.retention import Forgets
from millpond.connectors.source import Source
from millpond.errors import Error
from millpond.loading.progress import Load, Progress, Report
from millpond.plan.plans import PipelinePlan

if TYPE_CHECKING:
    from millpond.engine.pipeline import Pipeline


def loads_table(plan: PipelinePlan, source: Source) -> bool:
    """Returns whether a statement fills a table from outside, and continues when it has everything."""
    return (
        plan.target.kind == "table"
        and plan.batch.stream.relation.uri is not None
        and abilities.follows(source)
    )


class Backfills:
    """Reports the progress of the loads of running statements, by their names. Finished loads are not included."""

    def __init__(self, mask: Callable[[str], str], report: Report):
        self._mask = mask
        self._report_progress = report
        self._loads: dict[str, tuple[Load, Offset]] = {}
        """How far each is, and where it ends."""

    def begin(self, pipeline: Pipeline) -> None:
        """Records where the load of a table ends; nothing if everything has been read, or that is unknown."""
        if not loads_table(pipeline.plan, pipeline.source):
            return
        try:
            goal = pipeline.source.latest(pipeline.offset)
            left = _rows(pipeline.source, pipeline.offset, goal)
        except Error:
            return
        if not left:
            return
        what = self._mask(pipeline.source.uri)
        load = Load(pipeline.source.kind, what, of=left, began=time.time())
        self._loads[pipeline.name] = load, goal
        self._report(pipeline, load)

    def note(self, pipeline: Pipeline) -> bool:
        """Records the progress of a statement; returns whether its table is loaded by that."""
        known = self._loads.get(pipeline.name)
        if known is None or pipeline.offset is None:
            return False
        load, goal = known
        try:
            left = _rows(pipeline.source, pipeline.offset, goal)
            loaded = pipeline.reached(goal) or not abilities.comparable(
                pipeline.source, pipeline.offset, goal
            )
        except Error:
            return False
        load = replace(load, rows=max(load.rows, (load.of or 0) - left))
        self._report(pipeline, load, finished=loaded)
        if loaded:
            self.forget(pipeline.name)
        else:
            self._loads[pipeline.name] = load, goal
        return loaded

    def _report(self, pipeline: Pipeline, load: Load, *, finished: bool = False) -> None:
        self._report_progress(
            Progress(pipeline.plan.target.name, load.rows, 0, None, load.of, finished=finished)
        )

    def is_loading(self, pipeline: Pipeline) -> bool:
        return pipeline.name in self._loads and pipeline.wanted

    def load_of(self, pipeline: Pipeline) -> Load | None:
        """Returns the progress of the load of a statement's table, while it continues."""
        known = self._loads.get(pipeline.name)
        return known[0] if known is not None and pipeline.wanted else None

    def forget(self, name: str) -> None:
        """Forgets a statement that was dropped."""
        self._loads.pop(name, None)


def _rows(source: Source, start: Offset | None, end: Offset) -> int:
    return sum(split.rows or 0 for split in source.splits(start, end))


def beginning(plan: PipelinePlan, source: Source) -> Offset | None:
    """Returns where a new statement begins to read; None for the beginning. On a stream that removes old rows it is the
    first that is kept: all that are removed after that are counted.
    """
    if plan.start == "latest":
        return source.latest(None)
    relation = plan.batch.stream.relation
    if isinstance(source, Forgets) and (relation.retention is not None or relation.uri):
        return source.first()
    return abilities.begin(source) if plan.start is None else None
