"""F6, F7, F8, F14: a stream joined with tables, on a backlog of 2,000,000 rows.

The peer is what a data engineer writes by hand: a streaming read, ``foreachBatch``, a join with static DataFrames,
the rows brought to the driver. It is measured on the same source as ours (the embedded log, read through the same
Spark data source), for F6 also on Spark's own Parquet source, at its best batch size; ours finds its own.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.figure import Figure
from bench.log_stream import read_stream
from millpond import App
from millpond.connectors.stream.source import StreamSource, stream_uri
from millpond.engine.session import get_session
from millpond.types import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000_000
SIZES = (250_000, 1_000_000)
USERS, ACCOUNTS, SYMBOLS = 5_000, 100_000, 100
MILLION = 1_000_000
_TRADES = pa.schema(
    [
        ("trade_id", pa.int64()),
        ("user_id", pa.int64()),
        ("account", pa.int64()),
        ("price", pa.float64()),
        ("symbol", pa.string()),
    ]
)
DECLARED = """
CREATE STREAM trades (trade_id BIGINT, user_id BIGINT, account BIGINT, price DOUBLE, symbol STRING);
CREATE TABLE users (user_id BIGINT PRIMARY KEY, name STRING);
CREATE TABLE accounts (account BIGINT PRIMARY KEY, tier STRING);
CREATE TABLE symbols (symbol STRING PRIMARY KEY, title STRING);
CREATE TABLE many (account BIGINT PRIMARY KEY, tier STRING);
"""


@dataclass(frozen=True)
class Shape:
    """A running query, and the same by hand in Spark's SQL over the batch and static tables."""

    id: str
    what: str
    columns: str
    query: str
    by_hand: str


SHAPES = (
    Shape(
        "F6",
        "stream ⋈ 5,000 rows",
        "trade_id BIGINT, user_id BIGINT, price DOUBLE, symbol STRING, name STRING",
        "SELECT t.trade_id, t.user_id, t.price, t.symbol, u.name FROM trades t JOIN users u ON t.user_id = u.user_id",
        "",
    ),
    Shape(
        "F7",
        "stream ⋈ three tables",
        "trade_id BIGINT, price DOUBLE, name STRING, tier STRING, title STRING",
        "SELECT t.trade_id, t.price, u.name, a.tier, s.title FROM trades t JOIN users u ON t.user_id = u.user_id "
        "JOIN accounts a ON t.account = a.account JOIN symbols s ON t.symbol = s.symbol",
        "",
    ),
    Shape(
        "F8",
        "stream ⋈ 1,000,000 rows",
        "trade_id BIGINT, account BIGINT, price DOUBLE, symbol STRING, tier STRING",
        "SELECT t.trade_id, t.account, t.price, t.symbol, m.tier FROM trades t JOIN many m ON t.account = m.account",
        "",
    ),
    Shape(
        "F14",
        "correlated subquery on 100,000 rows",
        "trade_id BIGINT, account BIGINT, price DOUBLE, symbol STRING, tier STRING",
        "SELECT t.trade_id, t.account, t.price, t.symbol, "
        "(SELECT a.tier FROM accounts a WHERE a.account = t.account) AS tier FROM trades t",
        "SELECT t.trade_id, t.account, t.price, t.symbol, a.tier FROM trades t "
        "LEFT JOIN accounts a ON t.account = a.account",
    ),
)


def run() -> Iterator[Figure]:
    spark = get_session()
    trades, tables = made_up()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        app = App(DECLARED)  # batches are large: Spark evaluates them
        try:
            for name, rows in tables.items():
                app.table(name).bulk_insert(rows)
            for i in range(16):
                app.send("trades", trades.slice(i * ROWS // 16, ROWS // 16))
            by_hand_on_log(spark, app, tables, SHAPES[0], folder, SIZES[-1])  # warms the JVM, not measured
            for shape in SHAPES:
                ours = max(ours_of(app, shape) for _ in SIZES)
                same = max(by_hand_on_log(spark, app, tables, shape, folder, size) for size in SIZES)
                yield Figure(shape.id, f"{shape.what}, same source", ours, same, "foreachBatch by hand")
                if shape.id == "F6":
                    native = _on_parquet(spark, trades, tables, shape, folder)
                    peer = "foreachBatch by hand, Spark's Parquet"
                    yield Figure("F6", f"{shape.what}, peer on Parquet", ours, native, peer)
        finally:
            app.close()


def made_up() -> tuple[pa.Table, dict[str, pa.Table]]:
    random = np.random.default_rng(7)
    symbols = pa.array([f"S{i:03}" for i in range(SYMBOLS)])
    trades = pa.table(
        {
            "trade_id": np.arange(ROWS),
            "user_id": random.integers(0, USERS, ROWS),
            "account": random.integers(0, ACCOUNTS, ROWS),
            "price": random.random(ROWS) * 100,
            "symbol": symbols.take(pa.array(random.integers(0, SYMBOLS, ROWS))),
        }
    )
    tiers = pa.array(["GOLD", "SILVER", "BRONZE", "NONE"])

    def accounts(count: int) -> pa.Table:
        return pa.table({"account": np.arange(count), "tier": tiers.take(pa.array(np.arange(count) % 4))})

    return trades, {
        "users": pa.table({"user_id": np.arange(USERS), "name": [f"user {i}" for i in range(USERS)]}),
        "accounts": accounts(ACCOUNTS),
        "symbols": pa.table({"symbol": symbols, "title": [f"title {i}" for i in range(SYMBOLS)]}),
        "many": accounts(MILLION),
    }


def ours_of(app: App, shape: Shape, rows: int = ROWS) -> float:
    """Rows a second of our query; the stream says how large batches may be."""
    app.sql(f"CREATE TABLE out ({shape.columns})")
    began = time.perf_counter()
    app.sql(f"INSERT INTO out {shape.query}")
    app.drain(timeout=600)
    took = time.perf_counter() - began
    assert len(app.table("out")) == rows
    app.sql("DROP TABLE out CASCADE")
    return rows / took


def by_hand_on_log(
    spark: SparkSession,
    app: App,
    tables: Mapping[str, pa.Table],
    shape: Shape,
    folder: Path,
    size: int,
    rows: int = ROWS,
) -> float:
    """Rows a second of the query by hand, on the same log, in batches of at most ``size``."""
    source = StreamSource(stream_uri(app._runtime.state.path, "trades"), {}, Schema.of(_TRADES))
    return _by_hand(spark, read_stream(spark, source, size), tables, shape, folder, rows)


def _on_parquet(
    spark: SparkSession, trades: pa.Table, tables: Mapping[str, pa.Table], shape: Shape, folder: Path
) -> float:
    parquet = folder / "parquet"
    parquet.mkdir()
    for i in range(16):
        pq.write_table(trades.slice(i * ROWS // 16, ROWS // 16), parquet / f"{i:02}.parquet")
    session = spark.newSession()
    schema = session.read.parquet(str(parquet)).schema
    rates = []
    for files in (2, 8):
        stream = session.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(str(parquet))
        rates.append(_by_hand(session, stream, tables, shape, folder))
    return max(rates)


def _by_hand(
    spark: SparkSession,
    stream: DataFrame,
    tables: Mapping[str, pa.Table],
    shape: Shape,
    folder: Path,
    wanted: int = ROWS,
) -> float:
    checkpoint = folder / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    kept: list[Any] = []
    query_text = shape.by_hand or shape.query
    began = time.perf_counter()
    static = {name: rows for name, rows in tables.items() if f" {name} " in query_text}
    ready: list[bool] = []

    def each(batch: DataFrame, _: int) -> None:
        session = batch.sparkSession  # of the query: what is registered here stays
        if not ready:
            for name, rows in static.items():
                session.createDataFrame(rows).cache().createOrReplaceTempView(name)
            ready.append(True)
        batch.createOrReplaceTempView("trades")
        kept.append(session.sql(query_text).toArrow())

    query = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint)).start()
    while sum(t.num_rows for t in kept) < wanted:
        time.sleep(0.005)
        if not query.isActive:
            raise RuntimeError(str(query.exception()))
    took = time.perf_counter() - began
    query.stop()
    return wanted / took
