"""Observes the app in numbers, once for the graph, the plots and the metrics."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from millpond.errors import Error
from millpond.journal.journal import Journal
from millpond.plan.plans import BlockPlan, PipelinePlan
from millpond.query.stats import Health, TableStats
from millpond.query.table import Table
from millpond.sql.catalog import Catalog
from millpond.streaming.runner import Runner
from millpond.views.materialized_view import Views

FRESH = 1.0
"""Seconds for which numbers are reused for the next request."""


@dataclass(frozen=True, slots=True)
class Query:
    """Describes a running query: its state (the columns of SHOW QUERIES), what it reads and what it fills. The names
    are those of relations; sources without a name and sinks are URIs.
    """

    name: str
    numbers: dict[str, Any]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    sinks: tuple[str, ...] = ()
    live: bool = False
    """Whether it follows tables."""


@dataclass(frozen=True, slots=True)
class Observation:
    at: float
    memory: int
    """Bytes that the process uses; the JVM is another process."""
    queries: list[Query] = field(default_factory=list)
    tables: dict[str, tuple[TableStats, Health]] = field(default_factory=dict)
    streams: dict[str, int | None] = field(default_factory=dict)
    """Rows that were sent to each embedded stream; None for others."""


class Observer:
    """Collects numbers on request, at most once a second."""

    def __init__(
        self,
        catalog: Catalog,
        journal: Journal,
        runner: Runner,
        views: Views,
        table_names: Callable[[], list[str]],
        table: Callable[[str], Table],
        mask: Callable[[str], str],
    ):
        self._catalog = catalog
        self._journal = journal
        self._runner = runner
        self._views = views
        self._table_names = table_names
        self._table = table
        self._mask = mask
        self._lock = threading.Lock()
        self._last: tuple[float, Observation] | None = None

    def look(self) -> Observation:
        """Returns the current numbers. It may take a while: brokers are asked how far a query is behind a topic."""
        with self._lock:
            if self._last is None or time.monotonic() - self._last[0] > FRESH:
                self._last = (time.monotonic(), self._observe())
            return self._last[1]

    def _observe(self) -> Observation:
        streams = {
            r.name: None if r.uri else self._journal.stream_end(r.name)
            for r in self._catalog
            if r.kind == "stream"
        }
        tables = {}
        for name in self._table_names():
            with suppress(Error):  # it was dropped meanwhile, or its database is not available
                table = self._table(name)
                tables[name] = (table.get_stats(), table.health_check())
        return Observation(time.time(), memory(), list(self._queries()), tables, streams)

    def _queries(self) -> Iterable[Query]:
        """Yields the queries; each part of a query is one (joins of streams have several)."""
        plans = {p.name: p.plan for p in self._runner}
        plans |= {w.plan.name: w.plan for w in self._runner.starter}
        for numbers in self._runner.describe():
            plan = plans.get(numbers["name"])
            if plan is not None:
                reads, writes, sinks = _inputs(plan), _outputs(plan), _sinks(plan)
                yield Query(plan.name, self._masked(numbers), reads, writes, sinks)
            else:
                yield Query(numbers["name"], self._masked(numbers), (), (), ())
        for view in self._views:
            reads = tuple(i.relation.name for i in view.plan.query.inputs)
            writes = () if view.emit is not None else (view.plan.target.name,)
            yield Query(view.plan.name, self._masked(view.describe()), reads, writes, live=True)

    def _masked(self, numbers: dict[str, Any]) -> dict[str, Any]:
        return numbers | {k: self._mask(numbers[k]) for k in ("statement", "error") if numbers.get(k)}


def _inputs(plan: PipelinePlan) -> tuple[str, ...]:
    streams = [r.uri if r.kind == "source" and r.uri else r.name for r in plan.streams]
    return tuple(dict.fromkeys((*streams, *plan.reads)))


def _outputs(plan: PipelinePlan) -> tuple[str, ...]:
    return plan.writes if isinstance(plan, BlockPlan) or plan.target.kind in ("table", "stream") else ()


def _sinks(plan: PipelinePlan) -> tuple[str, ...]:
    return (plan.target.name,) if plan.target.kind == "sink" else ()


def memory() -> int:
    """Returns the bytes of memory that this process uses."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
