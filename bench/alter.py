"""Columns of a table of 10,000,000 rows in memory are added, renamed and dropped while others read and write it.

One thread looks rows up by key, one changes single rows, without a pause. The longest that either had to wait while a
statement ran, and in the half second after it, stands beside the longest without any statement, which is the noise of
the machine and of two busy threads in one process. The same again with a state directory, where each change of a row
waits for the disk, and so does the statement.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from bench.figure import Figure
from millpond import App

ROWS = 10_000_000
_CHUNK = 1_000_000
_AFTER = 0.5
_QUIET = 3.0
_STATEMENTS = {
    "ADD COLUMN": "ALTER TABLE t ADD COLUMN c INT",
    "ADD COLUMN with a DEFAULT": "ALTER TABLE t ADD COLUMN d INT DEFAULT 7",
    "RENAME COLUMN": "ALTER TABLE t RENAME COLUMN c TO e",
    "DROP COLUMN": "ALTER TABLE t DROP COLUMN e",
}


class _Waits:
    """Notes the longest that a call took, since it was asked."""

    def __init__(self) -> None:
        self._longest = 0.0

    def note(self, seconds: float) -> None:
        self._longest = max(self._longest, seconds)

    def taken(self) -> float:
        longest, self._longest = self._longest, 0.0
        return longest


def _repeat(call: Callable[[int], object], waits: _Waits, stop: threading.Event) -> None:
    random = np.random.default_rng(1)
    while not stop.is_set():
        for key in random.integers(0, ROWS, 1000).tolist():
            began = time.perf_counter()
            call(key)
            waits.note(time.perf_counter() - began)
            if stop.is_set():
                return


def run() -> Iterator[Figure]:
    yield from _altered(None)
    with tempfile.TemporaryDirectory() as state:
        yield from _altered(state)


def _altered(state: str | None) -> Iterator[Figure]:
    where = "" if state is None else ", with a state directory"
    with App("CREATE TABLE t (id BIGINT PRIMARY KEY, a INT, b STRING)", state=state, engine="process") as app:
        table = app.table("t")
        names = pa.array([f"name {i}" for i in range(100)])
        for first in range(0, ROWS, _CHUNK):
            ids = np.arange(first, first + _CHUNK)
            table.bulk_insert(
                pa.table(
                    {"id": ids, "a": (ids % 1000).astype(np.int32), "b": names.take(pa.array(ids % 100))}
                )
            )
        table.find(id=0)  # the first lookup indexes the rows
        table.update("id = 0", {"a": 1})
        stop, reads, writes = threading.Event(), _Waits(), _Waits()
        threads = [
            threading.Thread(target=_repeat, args=(lambda key: table.find(id=key), reads, stop)),
            threading.Thread(
                target=_repeat, args=(lambda key: table.update(f"id = {key}", {"a": 1}), writes, stop)
            ),
        ]
        for thread in threads:
            thread.start()
        try:
            time.sleep(1)
            reads.taken(), writes.taken()
            time.sleep(_QUIET)
            quiet = {"reader": reads.taken(), "writer": writes.taken()}
            for what, statement in _STATEMENTS.items():
                app.sql(statement)
                time.sleep(_AFTER)
                for who, waits in (("reader", reads), ("writer", writes)):
                    yield Figure(
                        "U1",
                        f"{what}, {ROWS:,} rows{where}: longest wait of a {who}",
                        waits.taken() * 1000,
                        quiet[who] * 1000,
                        "without a statement",
                        "ms",
                        "call",
                    )
        finally:
            stop.set()
            for thread in threads:
                thread.join()
