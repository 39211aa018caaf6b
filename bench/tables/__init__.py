"""F1–F5, F9–F11, F15–F17: tables beside a dict of dicts, SQLite in memory, DuckDB, Polars and Redis."""

from __future__ import annotations

from collections.abc import Iterator

from bench.figure import Figure
from bench.tables import changing, decimals, loading, lookups, memory, queries, threads, ways
from tests.servers import Servers

SIZES = (1_000, 10_000, 100_000, 1_000_000)


def run() -> Iterator[Figure]:
    servers = Servers()
    try:
        for rows in SIZES:
            yield from lookups.run(rows, servers.redis.url())
            yield from changing.run(rows, servers.redis.url())
    finally:
        servers.stop()
    for rows in SIZES[:3]:
        yield from queries.run(rows)
    for rows in (1_000, 100_000):
        yield from ways.run(rows)
    for rows in SIZES[2:]:
        yield from loading.run(rows)
    yield from changing.run_in_app(100_000)
    yield from threads.run(100_000)
    yield from decimals.run(1_000_000)
    yield from memory.run(200_000)
