"""F12, F13: from ``send`` to visible in the table at 10,000 rows/s, and the time of one small batch.

The peer is a bare Spark loop over the same log: ``foreachBatch`` brings the rows to the driver and keeps them. It
has no table, no position and no journal. Times are milliseconds: the smaller the better.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.figure import Figure
from bench.log_stream import read_stream
from millpond import App
from millpond.connectors.stream.source import StreamSource, stream_uri
from millpond.engine.session import get_session
from millpond.types import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RATE, SECONDS, CHUNK = 10_000, 10.0, 200
SINGLE = 30
_SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64())])
_STREAM = "CREATE STREAM s (id BIGINT, x DOUBLE);"

Seen = Callable[[], int]
"""How many rows are visible."""


def run() -> Iterator[Figure]:
    spark = get_session()
    with tempfile.TemporaryDirectory() as state:
        sql = _STREAM + "CREATE TABLE t (id BIGINT, x DOUBLE); INSERT INTO t SELECT id, x FROM s;"
        with App(sql, state=Path(state) / "ours") as app:
            table = app.table("t")
            ours, ours_single = _measured(app, lambda: len(table))
        with App(_STREAM, state=Path(state) / "peer") as app, _bare(spark, app, Path(state) / "c") as seen:
            peer, peer_single = _measured(app, seen)
    name = "bare Spark loop"
    for p in (50, 99):
        a, b = (float(np.percentile(times, p)) * 1000 for times in (ours, peer))
        yield Figure("F12", f"send to visible, 10,000 rows/s, p{p}", a, b, name, unit="ms", per="row")
    a, b = (float(np.median(times)) * 1000 for times in (ours_single, peer_single))
    yield Figure("F13", "one batch of one row, journal included", a, b, name, unit="ms", per="batch")


def _measured(app: App, seen: Seen) -> tuple[list[float], list[float]]:
    """Latencies of chunks at a steady rate, and of single rows one after another."""
    for _ in range(5):
        _single(app, seen)  # warms up
    single = [_single(app, seen) for _ in range(SINGLE)]
    first = seen()
    sent: list[tuple[int, float]] = []
    visible: list[tuple[int, float]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            visible.append((seen(), time.perf_counter()))
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    for number in range(int(RATE * SECONDS / CHUNK)):
        due = began + number * CHUNK / RATE
        time.sleep(max(0.0, due - time.perf_counter()))
        at = time.perf_counter()
        app.send("s", _rows(CHUNK))
        sent.append((first + (number + 1) * CHUNK, at))
    while seen() < sent[-1][0]:
        time.sleep(0.01)
    done.set()
    watcher.join()
    counts = np.array([count for count, _ in visible])
    times = [at for _, at in visible] + [time.perf_counter()]
    return [times[int(np.searchsorted(counts, end))] - at for end, at in sent], single


def _single(app: App, seen: Seen) -> float:
    want = seen() + 1
    began = time.perf_counter()
    app.send("s", _rows(1))
    while seen() < want:
        time.sleep(0.001)
    return time.perf_counter() - began


def _rows(count: int) -> pa.Table:
    return pa.table({"id": np.arange(count), "x": np.zeros(count)})


@contextmanager
def _bare(spark: SparkSession, app: App, checkpoint: Path) -> Iterator[Seen]:
    shutil.rmtree(checkpoint, ignore_errors=True)
    kept: list[pa.Table] = []
    count = [0]

    def each(batch: DataFrame, _: int) -> None:
        kept.append(batch.toArrow())
        count[0] += kept[-1].num_rows

    source = StreamSource(stream_uri(app._runtime.state.path, "s"), {}, Schema.of(_SCHEMA))
    stream = read_stream(spark, source, 1_000_000)
    query = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint)).start()
    try:
        yield lambda: count[0]
    finally:
        query.stop()
