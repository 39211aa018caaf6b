"""What the app is doing, in numbers: looked at once for the graph, the plots and the metrics."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millpond.errors import Error
from millpond.plan.plans import PipelinePlan
from millpond.query.stats import Health, TableStats

if TYPE_CHECKING:
    from millpond.app.app import App

FRESH = 1.0
"""Seconds for which numbers are good enough for the next who asks."""


@dataclass(frozen=True, slots=True)
class Query:
    """A running query: how it is (the columns of SHOW QUERIES), what it reads and what it fills. The names are of
    relations; sources without a name and sinks are URIs."""

    name: str
    numbers: dict[str, Any]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    sinks: tuple[str, ...] = ()
    live: bool = False
    """It follows tables."""


@dataclass(frozen=True, slots=True)
class Observation:
    at: float
    memory: int
    """Bytes that the process holds; the JVM is another one."""
    queries: list[Query] = field(default_factory=list)
    tables: dict[str, tuple[TableStats, Health]] = field(default_factory=dict)
    streams: dict[str, int | None] = field(default_factory=dict)
    """Rows that were sent to each embedded stream; None for others."""


class Observer:
    """Looks when somebody asks, at most once a second."""

    def __init__(self, app: App):
        self._app = app
        self._lock = threading.Lock()
        self._last: tuple[float, Observation] | None = None

    def look(self) -> Observation:
        """May take a while: how far a query is behind a topic is asked of the brokers."""
        with self._lock:
            if self._last is None or time.monotonic() - self._last[0] > FRESH:
                self._last = (time.monotonic(), observe(self._app))
            return self._last[1]


def observe(app: App) -> Observation:
    streams = {
        r.name: None if r.uri else app._journal.stream_end(r.name) for r in app._catalog if r.kind == "stream"
    }
    tables = {}
    for name in app.tables():
        with suppress(Error):  # it was dropped meanwhile, or its database is away
            table = app.table(name)
            tables[name] = (table.get_stats(), table.health_check())
    return Observation(time.time(), memory(), list(queries(app)), tables, streams)


def queries(app: App) -> Iterable[Query]:
    """Of the parts of one query (joins of streams have several) each is one."""
    plans = {p.name: p.plan for p in app._runner}
    plans |= {w.plan.name: w.plan for w in app._runner.starter}
    for numbers in app._runner.describe():
        plan = plans.get(numbers["name"])
        if plan is not None:
            reads, writes, sinks = _inputs(plan), _outputs(plan), _sinks(plan)
            yield Query(plan.name, _masked(app, numbers), reads, writes, sinks)
        else:
            yield Query(numbers["name"], _masked(app, numbers), (), (), ())
    for view in app._views:
        reads = tuple(i.relation.name for i in view.plan.query.inputs)
        writes = () if view.emit is not None else (view.plan.target.name,)
        yield Query(view.plan.name, _masked(app, view.describe()), reads, writes, live=True)


def _masked(app: App, numbers: dict[str, Any]) -> dict[str, Any]:
    return numbers | {k: app._mask(numbers[k]) for k in ("statement", "error") if numbers.get(k)}


def _inputs(plan: PipelinePlan) -> tuple[str, ...]:
    streams = [r.uri if r.kind == "source" and r.uri else r.name for r in plan.streams]
    return tuple(dict.fromkeys((*streams, *plan.reads)))


def _outputs(plan: PipelinePlan) -> tuple[str, ...]:
    return plan.writes if plan.block or plan.target.kind in ("table", "stream") else ()


def _sinks(plan: PipelinePlan) -> tuple[str, ...]:
    return (plan.target.name,) if plan.target.kind == "sink" else ()


def memory() -> int:
    """Bytes of memory that this process holds."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
