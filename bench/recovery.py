"""The state directory after 1, 10 and 60 minutes of 5,000 rows a second, and the time from ``kill -9`` to an answer.

Rows go into an upsert of 2,000 keys, an aggregate of 2,000 groups and one with distinct values, in batches of one
second's rows, one right after the other: the size depends on what was committed, not on when. The rows of the stream
itself are kept, so its bytes are left out. Beside each figure stands the one of the first minute: both should be flat.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.figure import Figure
from millpond import App

RATE = 5_000
KEYS = 2_000
MINUTES = (1, 10, 60)
SQL = f"""
CREATE STREAM readings (sensor INT, value INT, label STRING) WITH ('batch.max.rows' = '{RATE}');
CREATE TABLE newest (sensor INT PRIMARY KEY, value INT, label STRING) AS SELECT sensor, value, label FROM readings;
CREATE TABLE totals AS
SELECT sensor, COUNT(*) AS n, SUM(value) AS total, MAX(value) AS most FROM readings GROUP BY sensor;
CREATE TABLE spread AS SELECT label, COUNT(DISTINCT sensor) AS sensors, AVG(value) AS mean FROM readings GROUP BY label;
"""


def feed(state: str, seconds: int) -> None:
    """Sends so many seconds' rows; then says so, and waits to be killed."""
    random = np.random.default_rng(seconds)
    labels = pa.array([f"label {i}" for i in range(50)])
    with App(SQL, state=state) as app:
        for _ in range(seconds):
            rows = {
                "sensor": pa.array(random.integers(0, KEYS, RATE), pa.int32()),
                "value": pa.array(random.integers(0, 1_000_000, RATE), pa.int32()),
                "label": labels.take(pa.array(random.integers(0, 50, RATE))),
            }
            app.send("readings", pa.table(rows))
            app.drain()
        time.sleep(2)
        print("fed", flush=True)
        time.sleep(3600)


def answer(state: str) -> None:
    """Answers one query as ``millpond run`` does: when the tables are back, before Spark is up."""
    app = App(SQL, state=state, _defer=True)
    print(app.sql("SELECT COUNT(*) AS n FROM totals").rows(), flush=True)
    os._exit(0)


def run() -> Iterator[Figure]:
    first: tuple[float, float] | None = None
    with tempfile.TemporaryDirectory() as folder:
        state, fed = str(Path(folder, "state")), 0
        for minutes in MINUTES:
            _in_process("feed", state, minutes * 60 - fed)
            fed = minutes * 60
            size = _megabytes(Path(state))
            seconds = min(_answered(state) for _ in range(3))
            first = first or (size, seconds)
            what = f"after {minutes} min of {RATE:,} rows/s"
            yield Figure("P5", f"state directory {what}", size, first[0], "after 1 min", "MB", "app")
            yield Figure(
                "P5",
                f"kill -9 to an answer {what}",
                seconds * 1000,
                first[1] * 1000,
                "after 1 min",
                "ms",
                "start",
            )


def _in_process(what: str, *arguments: object) -> None:
    command = [sys.executable, "-m", "bench.recovery", what, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "fed\n"
        process.send_signal(signal.SIGKILL)


def _answered(state: str) -> float:
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "bench.recovery", "answer", state], check=True, stdout=subprocess.DEVNULL
    )
    return time.monotonic() - began


def _megabytes(state: Path) -> float:
    """All files but what the stream itself takes, and Spark's log and checkpoints."""
    total = sum(
        f.stat().st_size
        for f in state.rglob("*")
        if f.is_file() and f.relative_to(state).parts[0] not in ("spark", "scratch")
    )
    with closing(sqlite3.connect(state / "journal.db")) as connection:
        kept = connection.execute("SELECT COALESCE(SUM(length), 0) FROM segments").fetchone()[0]
    return float(total - kept) / 1e6


if __name__ == "__main__":
    if sys.argv[1] == "feed":
        feed(sys.argv[2], int(sys.argv[3]))
    else:
        answer(sys.argv[2])
