"""F6: a stream joined with a table of 5,000 rows, on a backlog of 2,000,000 rows.

The peer is what a data engineer writes by hand: a streaming read, ``foreachBatch``, a join with a static DataFrame,
the rows brought to the driver. It is measured on the same source as ours (the embedded log, read through the same
Spark data source) and on Spark's own Parquet source, each at its best batch size.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.figure import Figure
from millpond import App
from millpond.engine import stream as engine_stream
from millpond.engine.reader import read_stream
from millpond.engine.session import get_session
from millpond.sources.stream import StreamSource, stream_uri
from millpond.types import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000_000
USERS = 5_000
_TRADES = pa.schema(
    [("trade_id", pa.int64()), ("user_id", pa.int64()), ("price", pa.float64()), ("symbol", pa.string())]
)
_SQL = """
CREATE STREAM trades (trade_id BIGINT, user_id BIGINT, price DOUBLE, symbol STRING);
CREATE TABLE users (user_id BIGINT PRIMARY KEY, name STRING);
CREATE TABLE enriched (trade_id BIGINT, user_id BIGINT, price DOUBLE, symbol STRING, name STRING);
"""
_INSERT = """
INSERT INTO enriched
SELECT t.trade_id, t.user_id, t.price, t.symbol, u.name FROM trades t JOIN users u ON t.user_id = u.user_id
"""


def run() -> Iterator[Figure]:
    spark = get_session()
    trades, users = _data()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        parquet = folder / "parquet"
        parquet.mkdir()
        for i in range(16):
            part = trades.slice(i * ROWS // 16, ROWS // 16)
            pq.write_table(part, parquet / f"{i:02}.parquet")
        app = App(_SQL)
        try:
            app.table("users").bulk_insert(users)
            for i in range(16):
                app.send("trades", trades.slice(i * ROWS // 16, ROWS // 16))
            sizes = (250_000, 1_000_000)
            _by_hand_on_log(spark, app, users, folder, 1_000_000)  # warms the JVM, not measured
            ours = max(_ours(app, size) for size in sizes)
            same = max(_by_hand_on_log(spark, app, users, folder, size) for size in sizes)
            native = max(_by_hand_on_parquet(spark, parquet, users, folder, files) for files in (2, 8))
        finally:
            app.close()
    yield Figure("F6", "stream ⋈ 5,000 rows, same source", ours, same, "foreachBatch by hand")
    yield Figure(
        "F6", "stream ⋈ 5,000 rows, peer on Parquet", ours, native, "foreachBatch by hand, Spark's Parquet"
    )


def _data() -> tuple[pa.Table, pa.Table]:
    random = np.random.default_rng(7)
    symbols = pa.array([f"S{i:03}" for i in range(100)])
    trades = pa.table(
        {
            "trade_id": np.arange(ROWS),
            "user_id": random.integers(0, USERS, ROWS),
            "price": random.random(ROWS) * 100,
            "symbol": symbols.take(pa.array(random.integers(0, 100, ROWS))),
        }
    )
    users = pa.table({"user_id": np.arange(USERS), "name": [f"user {i}" for i in range(USERS)]})
    return trades, users


def _ours(app: App, size: int) -> float:
    engine_stream.MAX_ROWS = size
    began = time.perf_counter()
    app.sql(_INSERT)
    app.drain(timeout=600)
    took = time.perf_counter() - began
    (name,) = [p.plan.name for p in app._runner]
    assert len(app.table("enriched")) == ROWS
    app.sql("DROP TABLE enriched CASCADE")
    app.sql(
        "CREATE TABLE enriched (trade_id BIGINT, user_id BIGINT, price DOUBLE, symbol STRING, name STRING)"
    )
    assert name not in app._pipelines
    return ROWS / took


def _by_hand_on_log(spark: SparkSession, app: App, users: pa.Table, folder: Path, size: int) -> float:
    source = StreamSource(stream_uri(app._state.path, "trades"), {}, Schema.of(_TRADES))
    return _by_hand(spark, read_stream(spark.newSession(), source, None, size), users, folder)


def _by_hand_on_parquet(
    spark: SparkSession, parquet: Path, users: pa.Table, folder: Path, files: int
) -> float:
    schema = spark.read.parquet(str(parquet)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(str(parquet))
    return _by_hand(spark, stream, users, folder)


def _by_hand(spark: SparkSession, stream: DataFrame, users: pa.Table, folder: Path) -> float:
    checkpoint = folder / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    kept: list[Any] = []
    began = time.perf_counter()
    static = spark.createDataFrame(users).cache()

    def each(batch: DataFrame, _: int) -> None:
        joined = batch.join(static, "user_id").select("trade_id", "user_id", "price", "symbol", "name")
        kept.append(joined.toArrow())

    query = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint)).start()
    while sum(t.num_rows for t in kept) < ROWS:
        time.sleep(0.005)
        if not query.isActive:
            raise RuntimeError(str(query.exception()))
    took = time.perf_counter() - began
    query.stop()
    return ROWS / took
