"""A stream of 5,000 rows a second that keeps an hour of them, for a day by a clock that is moved by hand.

A live aggregate of 2,000 groups reads the stream; rows are sent a minute at a time. Beside the size of the state
directory, and the memory of the process, at the end of the day stand those after the second hour: both should be flat.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.figure import Figure
from millpond import App
from millpond.clock import ManualClock

RATE, STEP, HOURS = 5_000, 60, 24
KEYS = 2_000
SQL = """
CREATE STREAM readings (sensor INT, value INT, label STRING) WITH ('retention' = '1h');
CREATE TABLE totals AS SELECT sensor, COUNT(*) AS n, SUM(value) AS total FROM readings GROUP BY sensor;
"""


def live(
    state: str, rate: int = RATE, step: int = STEP, hours: int = HOURS
) -> Iterator[tuple[float, float, int]]:
    """Lets hours pass; after each yields the megabytes of the directory and of the process, and the rows kept."""
    random, clock = np.random.default_rng(1), ManualClock(datetime(2024, 1, 1, tzinfo=UTC))
    labels = pa.array([f"label {i}" for i in range(50)])
    count, sent = rate * step, 0
    with App(SQL, state=state, engine="process", _clock=clock, _direct=True) as app:
        for _ in range(hours):
            for _ in range(3600 // step):
                rows = {
                    "sensor": pa.array(random.integers(0, KEYS, count), pa.int32()),
                    "value": pa.array(random.integers(0, 1_000_000, count), pa.int32()),
                    "label": labels.take(pa.array(random.integers(0, 50, count))),
                }
                sent += app.send("readings", pa.table(rows))
                clock.advance(step)
                app.drain()
            (stream,) = app.sql("SHOW STREAMS").rows()
            yield _megabytes(Path(state)), _memory(), stream["kept"]
        (total,) = app.sql("SELECT SUM(n) AS n FROM totals").rows()
        assert total["n"] == sent, "what was counted stays counted"


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.retention", folder]
        found = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    seen = [json.loads(line) for line in found.splitlines() if line.startswith("[")]
    what = f"after {len(seen)} h of {RATE:,} rows/s, an hour kept"
    yield Figure("U4", f"state directory {what}", seen[-1][0], seen[1][0], "after 2 h", "MB", "app")
    yield Figure("U4", f"memory {what}", seen[-1][1], seen[1][1], "after 2 h", "MB", "app")


def _megabytes(path: Path) -> float:
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) / 1e6


def _memory() -> float:
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1e3


if __name__ == "__main__":
    for hour in live(sys.argv[1]):
        print(json.dumps(hour), flush=True)
