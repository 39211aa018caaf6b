"""D6: 10,000 changes a second of one table of a database, captured: how far the table here is behind.

A transaction of 100 rows is committed every 10 ms. The delay is that from the end of COMMIT until the last row of the
transaction is found in the table; it stands beside the 500 ms that are allowed. ``SECONDS`` may be raised to ten
minutes: the rate has to be held.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.databases import NAMES, DatabaseAtHand, at_hand, uri_of
from bench.figure import Figure
from millpond import App
from tests.servers import Servers

SECONDS, EVERY, ROWS = 60, 0.01, 100
ALLOWED = 500.0
_INSERT = {
    "postgresql": "INSERT INTO fast SELECT i, i % 1000, 'n' || i FROM generate_series({0}, {1}) i",
    "mysql": "INSERT INTO fast SELECT seq, seq % 1000, CONCAT('n', seq) FROM seq_{0}_to_{1}",
}


def run() -> Iterator[Figure]:
    servers = Servers()
    try:
        for kind in NAMES:
            yield from _held(kind, at_hand(kind, servers))
    finally:
        servers.stop()


def _held(kind: str, base: DatabaseAtHand) -> Iterator[Figure]:
    base.execute("CREATE TABLE fast (id BIGINT PRIMARY KEY, k INT, name VARCHAR(40))")
    with tempfile.TemporaryDirectory() as scratch, App(state=Path(scratch) / "state") as app:
        app.sql(f"CREATE TABLE t AS SELECT * FROM '{uri_of(kind, base, 'fast')}' WITH ('cdc' = 'true')")
        table, committed = app.table("t"), list[float]()
        count = round(SECONDS / EVERY)
        began = time.perf_counter()

        def write() -> None:
            with base.connect() as connection, connection.cursor() as cursor:
                for i in range(count):
                    time.sleep(max(0.0, began + i * EVERY - time.perf_counter()))
                    cursor.execute(_INSERT[kind].format(i * ROWS, (i + 1) * ROWS - 1))
                    committed.append(time.perf_counter())

        writer = threading.Thread(target=write)
        writer.start()
        found: list[float] = []
        while len(found) < count:
            if table.contains((len(found) + 1) * ROWS - 1):
                found.append(time.perf_counter())
            else:
                time.sleep(0.001)
                if time.perf_counter() - began > SECONDS * 4:
                    raise RuntimeError(f"only {len(found)} of {count} transactions became visible")
        writer.join()
    rate = count * ROWS / (committed[-1] - began)
    yield Figure("D6", f"changes a second of {NAMES[kind]}, captured", rate, ROWS / EVERY, "wanted")
    behind = [(seen - done) * 1000 for done, seen in zip(committed, found, strict=True)]
    for p in (50, 99):
        what = f"behind {NAMES[kind]} at {ROWS / EVERY:,.0f} changes/s for {SECONDS} s, p{p}"
        yield Figure("D6", what, float(np.percentile(behind, p)), ALLOWED, "allowed", "ms", "transaction")
