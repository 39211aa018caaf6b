"""Exports metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millpond.engine.states import State
from millpond.engine_rule import ENGINES
from millpond.http.hub import Hub
from millpond.http.observation import Observation, Observer
from millpond.query.stats import Status
from millpond.version import __version__

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_STATES = (*map(str, State), "waiting", "starting")

_TABLE_GAUGES = {
    "rows": "Rows of the table.",
    "bytes": "Bytes that the table takes.",
    "spilled_bytes": "Bytes of the table that are on the disk.",
}
_TABLE_COUNTERS = {
    "lookups": "Searches by key or by equal values.",
    "queries": "Searches that scanned all rows.",
    "query_cache_hits": "Queries that a cached plan answered.",
    "evictions": "Rows that a cache evicted.",
}
_QUERY_COUNTERS = {
    "rows": "Rows that the query gave.",
    "batches": "Batches that were applied.",
    "errors": "Rows that could not be processed and were put aside.",
    "misses": "Rows that found no match in a table.",
    "retries": "Tries after something outside had failed.",
    "lost": "Rows that the source did not keep until they were read.",
}


class Requests:
    """Counts the requests that were handled."""

    def __init__(self, registry: CollectorRegistry):
        self._count = Counter(
            "millpond_http_requests", "Requests that were answered.", ("route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "millpond_http_request_duration_seconds",
            "How long an answer took.",
            ("route",),
            registry=registry,
            buckets=_BUCKETS,
        )
        self._counts: dict[tuple[str, int], Counter] = {}
        self._times: dict[str, Histogram] = {}

    def note(self, route: str, status: int, seconds: float) -> None:
        count = self._counts.get((route, status))
        if count is None:
            count = self._counts[route, status] = self._count.labels(route, str(status))
        count.inc()
        times = self._times.get(route)
        if times is None:
            times = self._times[route] = self._seconds.labels(route)
        times.observe(seconds)


class AppCollector(Collector):
    """Collects the metrics of the app when they are requested."""

    def __init__(self, observer: Observer, hub: Hub, ready: Callable[[], object]):
        self._observer = observer
        self._hub = hub
        self._ready = ready

    def describe(self) -> Iterator[Metric]:
        """Returns nothing: the metrics depend on the app."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        seen = self._observer.look()
        yield _gauge("millpond_build_info", "The version of Millpond.", ("version",), [((__version__,), 1)])
        ready = float(bool(self._ready()))
        yield _gauge(
            "millpond_ready", "Whether every table is loaded and every query runs.", (), [((), ready)]
        )
        yield from _tables(seen)
        yield from _queries(seen)
        sent = [((name,), rows) for name, rows in seen.streams.items() if rows is not None]
        yield _counter(
            "millpond_stream_rows", "Rows that were sent to an embedded stream.", ("stream",), sent
        )
        hub = self._hub
        yield _gauge("millpond_http_followers", "Clients that follow changes.", (), [((), len(hub))])
        yield _counter(
            "millpond_http_followers_dropped",
            "Clients that were dropped because they did not read fast enough.",
            (),
            [((), hub.dropped)],
        )
        yield _counter("millpond_http_events", "Events of changes that were encoded.", (), [((), hub.events)])


def _tables(seen: Observation) -> Iterator[Metric]:
    for name, text in _TABLE_GAUGES.items():
        values = [((t,), float(stats[name])) for t, (stats, _) in seen.tables.items()]
        yield _gauge(f"millpond_table_{name}", text, ("table",), values)
    for name, text in _TABLE_COUNTERS.items():
        values = [((t,), float(stats[name])) for t, (stats, _) in seen.tables.items()]
        yield _counter(f"millpond_table_{name}", text, ("table",), values)
    changed = [
        ((t,), stats.last_update) for t, (stats, _) in seen.tables.items() if stats.last_update is not None
    ]
    yield _gauge("millpond_table_last_update_timestamp_seconds", "When it last changed.", ("table",), changed)
    states = [
        ((t, status), float(health.status == status))
        for t, (_, health) in seen.tables.items()
        for status in get_args(Status)
    ]
    yield _gauge("millpond_table_health", "1 for what the table is now.", ("table", "status"), states)


def _queries(seen: Observation) -> Iterator[Metric]:
    for name, text in _QUERY_COUNTERS.items():
        values = [
            ((q.name,), float(q.numbers[name])) for q in seen.queries if q.numbers.get(name) is not None
        ]
        suffix = "lost_rows" if name == "lost" else name
        yield _counter(f"millpond_query_{suffix}", text, ("query",), values)
    for name, text in (("batches", "Batches"), ("rows", "Rows of batches")):
        by_engine = [
            ((q.name, engine), float(q.numbers[f"{engine}_{name}"]))
            for q in seen.queries
            for engine in ENGINES
            if q.numbers.get(f"{engine}_{name}") is not None
        ]
        says = f"{text} that an engine evaluated."
        yield _counter(f"millpond_query_engine_{name}", says, ("query", "engine"), by_engine)
    gauges = (
        ("lag_rows", "lag", 1.0, "Rows of its stream that have not been applied."),
        ("waiting_rows", "waiting", 1.0, "Rows that wait for a match."),
        ("last_batch_duration_seconds", "last_batch_ms", 1000.0, "How long the last batch took."),
    )
    for suffix, name, unit, text in gauges:
        values = [
            ((q.name,), q.numbers[name] / unit) for q in seen.queries if q.numbers.get(name) is not None
        ]
        yield _gauge(f"millpond_query_{suffix}", text, ("query",), values)
    states = [
        ((q.name, state), float(q.numbers["state"] == state)) for q in seen.queries for state in _STATES
    ]
    yield _gauge("millpond_query_state", "1 for what the query is now.", ("query", "state"), states)


_Values = Sequence[tuple[tuple[str, ...], float]]


def _gauge(name: str, text: str, labels: tuple[str, ...], values: _Values) -> Metric:
    metric = GaugeMetricFamily(name, text, labels=labels)
    for given, value in values:
        metric.add_metric(given, value)
    return metric


def _counter(name: str, text: str, labels: tuple[str, ...], values: _Values) -> Metric:
    metric = CounterMetricFamily(name, text, labels=labels)
    for given, value in values:
        metric.add_metric(given, value)
    return metric


def registry_of(observer: Observer, hub: Hub, ready: Callable[[], object]) -> CollectorRegistry:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(AppCollector(observer, hub, ready))
    return registry
