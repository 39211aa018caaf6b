"""V6: single-row changes, by what their commits wait for, and by how many threads. V9: the longest commit."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pyarrow as pa

from bench.figure import Figure
from bench.tables.measure import Work, best_rates
from millpond import App, Table

ROWS = 10_000
THREADS = 64
COLUMNS = "id BIGINT PRIMARY KEY, name STRING, qty INT, price DOUBLE"


KEYS, UPSERTS, BATCH = 2_000_000, 8_000_000, 100_000


def run() -> Iterator[Figure]:
    yield from single_rows()
    yield from longest_commit()


def longest_commit() -> Iterator[Figure]:
    """Large commits, each followed by a change of one row: what the slowest ones take."""
    chance = np.random.default_rng(1)
    batches, singles = [], []
    with App(f"CREATE TABLE t ({COLUMNS}); CREATE TABLE e ({COLUMNS})") as app:
        table, empty = app.table("t"), app.table("e")
        for first in range(0, UPSERTS, BATCH):
            ids = chance.integers(0, KEYS, BATCH) if first >= KEYS else np.arange(first, first + BATCH)
            names = pa.array((ids % 1000).astype(str))
            rows = pa.table({"id": ids, "name": names, "qty": ids % 7, "price": chance.random(BATCH)})
            batches.append(seconds(lambda rows=rows: table.bulk_insert(rows)))
            singles.append(seconds(lambda: table.insert({"id": 1, "name": "x", "qty": 1, "price": 1.0})))
        alone = [
            seconds(lambda: empty.insert({"id": 1, "name": "x", "qty": 1, "price": 1.0})) for _ in singles
        ]
    what = f"upserts of {BATCH:,} rows into {KEYS:,} keys, the slowest of {UPSERTS // BATCH}"
    yield Figure("V9", what, BATCH / max(batches), BATCH / statistics.median(batches), "the median")
    what = "one row after each of them, the slowest"
    yield Figure("V9", what, 1 / max(singles), 1 / max(alone), "an empty table", "changes")


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def single_rows() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        kinds = ("none", "batch", "commit")
        sql = "; ".join(f"CREATE TABLE t_{k} ({COLUMNS}) WITH ('durability' = '{k}')" for k in kinds)
        with App(sql, state=directory) as app:
            none, batch, commit = (app.table(f"t_{kind}") for kind in kinds)
            for table in (none, batch, commit):
                table.bulk_insert([{"id": i, "name": "Ann", "qty": 1, "price": 2.5} for i in range(ROWS)])
            ours, peer = best_rates([updates(batch, 1), updates(none, 1)])
            yield Figure("V6", "update by key, durability batch, 1 thread", ours, peer, "none", "changes")
            ours, peer = best_rates([updates(commit, THREADS), updates(batch, THREADS)])
            what = f"update by key, durability commit, {THREADS} threads"
            yield Figure("V6", what, ours, peer, f"batch, {THREADS} threads", "changes")
            yield Figure("V6", what, *shared_syncs(commit), "1 thread", "changes", per="sync")


def updates(table: Table, threads: int) -> Work:
    """Changes each row once; threads share the rows."""

    def part(at: int) -> None:
        for key in range(at, ROWS, threads):
            table.update({"id": key}, {"qty": 5})

    def work() -> int:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, range(threads)))
        return ROWS

    return work


def shared_syncs(table: Table) -> tuple[float, float]:
    """How many changes wait for the disk together: of many threads, and of one."""
    found = []
    for threads in (THREADS, 1):
        with counted_syncs() as counts:
            found.append(updates(table, threads)() / max(1, counts()))
    return found[0], found[1]


@contextmanager
def counted_syncs() -> Iterator[Callable[[], int]]:
    """Counts how often the log of small commits is synced."""
    with mock.patch.object(os, "fdatasync", side_effect=os.fdatasync) as sync:
        yield lambda: sync.call_count
