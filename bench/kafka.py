"""K1, K6: topics into a table, and through a join into another topic; what exactly once costs; latency of a message.

The broker is a real one on this machine, which takes its share of the cores. The peer is what a data engineer writes
by hand: Spark's Kafka source, ``from_json``, a join with a static DataFrame, and for the table ``foreachBatch`` that
brings the rows to the driver, for the topic Spark's Kafka sink. Both begin with a full topic; the time is that from the
start of the query, Spark being warm, until the last row is there. They take turns, and the best of three runs counts.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.figure import Figure
from millpond import App
from millpond.connectors.kafka.client import brokers
from millpond.engine.session import get_session
from tests.servers import Kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, USERS, PARTITIONS = 500_000, 5_000, 2
SIZES = (100_000, 500_000)
"""Batch sizes that the peer is tried with; ours finds its own."""
MESSAGES, WARM, PAUSE = 400, 100, 0.02
_TURNS = 3
_COMMIT = 30
"""Seconds after which a query in real time notes how far it is, ours and the other."""
_BATCHES = "'delivery' = 'at-least-once'"
_REAL = f"'mode' = 'realtime', 'on.error' = 'fail', 'commit.interval' = '{_COMMIT}s'"
_COLUMNS = "trade_id BIGINT, user_id BIGINT, price DOUBLE, symbol STRING"
_BY_HAND = "by hand"


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        broker = Kafka(folder / "kafka")
        try:
            spark = get_session(formats=("kafka",))
            yield from _Bench(spark, broker, folder).figures()
        finally:
            broker.stop()


def _in_turns(by_hand: Callable[[int], float], *ours: Callable[[], float]) -> list[float]:
    """Returns the best of some runs of each of ours, and of the one by hand. They take turns, so that each is as warm
    as the others.
    """
    found = [[*(run() for run in ours), max(by_hand(size) for size in SIZES)] for _ in range(_TURNS)]
    return [max(rates) for rates in zip(*found, strict=True)]


class _Bench:
    def __init__(self, spark: SparkSession, broker: Kafka, folder: Path):
        self.spark, self.broker, self.folder = spark, broker, folder
        self.users = pa.table({"user_id": np.arange(USERS), "name": [f"user {i}" for i in range(USERS)]})
        self.trades = self._topic()
        random = np.random.default_rng(7)
        users, prices = random.integers(0, USERS, ROWS), random.random(ROWS) * 100
        broker.produce(
            self.trades,
            (
                json.dumps(
                    {"trade_id": i, "user_id": int(u), "price": round(float(p), 4), "symbol": f"S{i % 100}"}
                )
                for i, (u, p) in enumerate(zip(users, prices, strict=True))
            ),
        )

    def figures(self) -> Iterator[Figure]:
        self._table_by_hand(SIZES[-1])  # warms the JVM, not measured
        first = self._table()  # and starts the Python workers that decode
        ours, by_hand = _in_turns(self._table_by_hand, self._table)
        yield Figure("K1", "Kafka → table", ours, by_hand, f"foreachBatch {_BY_HAND}")
        yield Figure(
            "K1", "Kafka → table, the first one of an app", first, by_hand, f"foreachBatch {_BY_HAND}"
        )
        once, exact, by_hand = _in_turns(
            self._join_by_hand, lambda: self._join("at-least-once"), lambda: self._join("exactly-once")
        )
        yield Figure("K1", "Kafka → join → Kafka", once, by_hand, f"Spark's sink {_BY_HAND}")
        yield Figure("K6", "Kafka → join → Kafka, exactly once", exact, once, "at least once")
        yield Figure("K6", "Kafka → join → Kafka, exactly once", exact, by_hand, f"Spark's sink {_BY_HAND}")
        yield from self._latencies("by batches", _BATCHES, f"micro-batches {_BY_HAND}", {})
        real = {"realTime": f"{_COMMIT} seconds"}
        yield from self._latencies("in real time", _REAL, f"real-time trigger {_BY_HAND}", real)

    def _latencies(self, what: str, options: str, peer: str, trigger: dict[str, str]) -> Iterator[Figure]:
        ours = self._latency(lambda a, b: self._running(a, b, options))
        by_hand = self._latency(lambda a, b: self._running_by_hand(a, b, trigger))
        for p in (50, 99):
            x, y = (float(np.percentile(times, p)) for times in (ours, by_hand))
            yield Figure("K8", f"message to message {what}, 50/s, p{p}", x, y, peer, unit="ms", per="message")

    def _topic(self, partitions: int = PARTITIONS) -> str:
        name = f"t{uuid.uuid4().hex[:8]}"
        self.broker.create(name, partitions)
        return name

    def _declared(self, topic: str) -> str:
        return f"""
            CREATE STREAM trades ({_COLUMNS}) WITH ('connector' = 'kafka://{self.broker.brokers}/{topic}');
            CREATE TABLE users (user_id BIGINT PRIMARY KEY, name STRING);
        """

    def _insert(self, target: str, options: str) -> str:
        return f"""
            INSERT INTO kafka://{self.broker.brokers}/{target}
            SELECT t.trade_id, t.price, t.symbol, u.name FROM trades t JOIN users u ON t.user_id = u.user_id
            WITH ({options}, 'query.name' = 'out')
        """

    @contextmanager
    def _app(self, topic: str) -> Iterator[App]:
        with App(self._declared(topic), state=self.folder / uuid.uuid4().hex) as app:
            app.table("users").bulk_insert(self.users)
            yield app

    # ours

    def _table(self) -> float:
        with self._app(self.trades) as app:
            began = time.perf_counter()
            app.sql("CREATE TABLE t AS SELECT trade_id, user_id, price, symbol FROM trades")
            app.drain(600)
            took = time.perf_counter() - began
            assert len(app.table("t")) == ROWS
        return ROWS / took

    def _join(self, delivery: str) -> float:
        target = self._topic()
        with self._app(self.trades) as app:
            began = time.perf_counter()
            app.sql(self._insert(target, f"'delivery' = '{delivery}'"))
            app.drain(600)
            took = time.perf_counter() - began
        assert self._size(target) >= ROWS
        return ROWS / took

    def _size(self, topic: str) -> int:
        return sum(brokers(self.broker.brokers, {}).ends(topic).values())

    @contextmanager
    def _running(self, source: str, target: str, options: str) -> Iterator[None]:
        with self._app(source) as app:
            app.sql(self._insert(target, options))
            yield

    # by hand

    def _read(self, topic: str, size: int | None) -> DataFrame:
        from pyspark.sql.functions import col, from_json

        limit = {} if size is None else {"maxOffsetsPerTrigger": str(size)}
        raw = (
            self.spark.newSession()
            .readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.broker.brokers)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .options(**limit)
            .load()
        )
        return raw.select(from_json(col("value").cast("string"), _COLUMNS).alias("r")).select("r.*")

    def _checkpoint(self) -> str:
        return str(self.folder / f"checkpoint-{uuid.uuid4().hex}")

    def _table_by_hand(self, size: int) -> float:
        kept: list[pa.Table] = []

        def each(batch: DataFrame, _: int) -> None:
            kept.append(batch.toArrow())

        began = time.perf_counter()
        writer = self._read(self.trades, size).writeStream.foreachBatch(each)
        query = writer.option("checkpointLocation", self._checkpoint()).start()
        _wait(query, lambda: sum(t.num_rows for t in kept) >= ROWS)
        took = time.perf_counter() - began
        query.stop()
        return ROWS / took

    def _start_by_hand(
        self, source: str, target: str, size: int | None, trigger: dict[str, str] | None = None
    ) -> Any:
        from pyspark.sql.functions import broadcast, struct, to_json

        trades = self._read(source, size)
        users = broadcast(trades.sparkSession.createDataFrame(self.users))
        joined = trades.join(users, "user_id").select(
            to_json(struct("trade_id", "price", "symbol", "name")).alias("value")
        )
        writer: Any = (
            joined.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self.broker.brokers)
            .option("topic", target)
            .option("checkpointLocation", self._checkpoint())
        )
        return (writer.outputMode("update").trigger(**trigger) if trigger else writer).start()

    def _join_by_hand(self, size: int) -> float:
        target = self._topic()
        began = time.perf_counter()
        query = self._start_by_hand(self.trades, target, size)
        _wait(query, lambda: self._size(target) >= ROWS, 0.05)
        took = time.perf_counter() - began
        query.stop()
        return ROWS / took

    @contextmanager
    def _running_by_hand(self, source: str, target: str, trigger: dict[str, str]) -> Iterator[None]:
        query = self._start_by_hand(source, target, None, trigger)
        yield
        query.stop()

    # latency

    def _latency(self, running: Callable[[str, str], Any]) -> list[float]:
        """Milliseconds from handing a message to the producer until a consumer has what became of it."""
        from confluent_kafka import Consumer, Producer, TopicPartition

        source, target = self._topic(1), self._topic(1)
        times: list[float] = []
        with running(source, target):
            producer = Producer({"bootstrap.servers": self.broker.brokers, "linger.ms": 0})
            consumer = Consumer(
                {"bootstrap.servers": self.broker.brokers, "group.id": target, "fetch.wait.max.ms": 5}
            )
            consumer.assign([TopicPartition(target, 0, 0)])
            sent: dict[int, float] = {}

            def read(wanted: int) -> None:
                while len(times) < wanted:
                    message = consumer.poll(0.05)
                    if message is not None and message.error() is None:
                        number = json.loads(message.value() or b"")["trade_id"]
                        times.append(1000 * (time.perf_counter() - sent[number]))

            for first, count in ((0, WARM), (WARM, MESSAGES)):
                reader = threading.Thread(target=read, args=(len(times) + count,))
                reader.start()
                for number in range(first, first + count):
                    sent[number] = time.perf_counter()
                    producer.produce(source, json.dumps({"trade_id": number, "user_id": 1, "price": 1.5}))
                    producer.poll(0)
                    time.sleep(PAUSE)
                producer.flush(30)
                reader.join()
            consumer.close()
        return times[WARM:]


def _wait(query: Any, done: Callable[[], bool], pause: float = 0.005) -> None:
    while not done():
        time.sleep(pause)
        if not query.isActive:
            raise RuntimeError(str(query.exception()))
