"""How F6 grows: the join of a stream with tables of 1,000 to 1,000,000 rows, in batches of 10,000 to 1,000,000.

The peer is the hand-written ``foreachBatch`` job on the same source, with batches of the same size.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.figure import Figure
from bench.joins import Shape, by_hand_on_log, ours_of
from millpond import App
from millpond.engine.session import get_session

ROWS = 1_000_000
TABLES = (1_000, 10_000, 100_000, 1_000_000)
BATCHES = (10_000, 100_000, 1_000_000)


def run() -> Iterator[Figure]:
    spark = get_session()
    random = np.random.default_rng(3)
    for size in TABLES:
        trades = pa.table(
            {
                "trade_id": np.arange(ROWS),
                "user_id": random.integers(0, size, ROWS),
                "account": np.zeros(ROWS, dtype=np.int64),
                "price": random.random(ROWS),
                "symbol": pa.array(["S"]).take(pa.array(np.zeros(ROWS, dtype=np.int64))),
            }
        )
        users = pa.table({"user_id": np.arange(size), "name": [f"user {i}" for i in range(size)]})
        shape = Shape(
            "F6",
            "",
            "trade_id BIGINT, user_id BIGINT, price DOUBLE, name STRING",
            "SELECT t.trade_id, t.user_id, t.price, u.name FROM trades t JOIN users u ON t.user_id = u.user_id",
            "",
        )
        for batch in BATCHES:
            count = ROWS if batch > BATCHES[0] else ROWS // 5
            with tempfile.TemporaryDirectory() as scratch, App(_DECLARED.format(batch=batch)) as app:
                app.table("users").bulk_insert(users)
                for i in range(8):
                    app.send("trades", trades.slice(i * count // 8, count // 8))
                if (size, batch) == (TABLES[0], BATCHES[0]):  # warms the JVM, not measured
                    by_hand_on_log(spark, app, {"users": users}, shape, Path(scratch), count, count)
                ours = ours_of(app, shape, count)
                peer = by_hand_on_log(spark, app, {"users": users}, shape, Path(scratch), batch, count)
            what = f"stream ⋈ {size:,} rows, in batches of {batch:,}"
            yield Figure("F6", what, ours, peer, "foreachBatch by hand")


_DECLARED = """
CREATE STREAM trades (trade_id BIGINT, user_id BIGINT, account BIGINT, price DOUBLE, symbol STRING)
  WITH ('batch.max.rows' = '{batch}');
CREATE TABLE users (user_id BIGINT PRIMARY KEY, name STRING);
"""
