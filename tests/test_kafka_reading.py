"""Topics read in this process, without Spark, and followed as messages come."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millpond.changes import Offset
from millpond.connectors import abilities
from millpond.connectors.kafka.source import KafkaSource
from millpond.engine.collect import collect
from millpond.engine.reader import read_messages
from millpond.errors import TopicMissing
from millpond.types import Column, Schema
from tests.servers import Kafka, Servers
from tests.test_kafka import new_topic, uri

ID = Schema((Column("id", pa.int64()),))


@pytest.fixture
def kafka(servers: Servers) -> Kafka:
    return servers.kafka


def source_of(kafka: Kafka, topic: str, **values: Any) -> KafkaSource:
    return KafkaSource(uri(kafka, topic), values, ID)


def mixed(kafka: Kafka, topic: str) -> None:
    """Writes what a topic may have: gaps where a transaction was rolled back, no value, headers, empty texts."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.brokers, "transactional.id": topic})
    producer.init_transactions(60)
    now = round(time.time() * 1000) - 60_000
    for number, keep in enumerate((True, False, True, False)):
        producer.begin_transaction()
        for i in range(30):
            headers: Any = [("a", b"1"), ("a", None), ("é", b"\xff")] if i % 3 == 0 else None
            value = None if i % 7 == 6 else b"" if i == 1 else b'{"id": %d}' % (number * 100 + i)
            key = None if i % 5 == 4 else b"" if i == 2 else b"k%d" % i
            producer.produce(topic, value, key, partition=i % 2, headers=headers, timestamp=now + i)
        producer.flush()
        producer.commit_transaction(60) if keep else producer.abort_transaction(60)


def in_order(raw: pa.Table) -> pa.Table:
    return raw.sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks()


def test_what_is_fetched_is_what_spark_reads(kafka: Kafka, spark: SparkSession) -> None:
    topic = new_topic(kafka, 3)
    mixed(kafka, topic)
    source: KafkaSource = pickle.loads(pickle.dumps(source_of(kafka, topic)))
    end = source.latest(None)
    middle = source.clip(None, end, 41)
    for start, until in ((None, end), (None, middle), (middle, end), (end, end)):
        here = in_order(source.fetch(start, until))
        there = in_order(collect(read_messages(spark, source, start, until, 7)).select(here.schema.names))
        assert here.equals(there.cast(here.schema))
    assert source.fetch(None, end).num_rows == 60 and sum(s.rows or 0 for s in source.splits(None, end)) > 120
    assert pickle.loads(pickle.dumps(source)).fetch(None, end).num_rows == 60
    source.close()


def test_a_range_that_retention_has_removed(kafka: Kafka) -> None:
    topic = new_topic(kafka)
    kafka.produce(topic, ['{"id": 1}'] * 10)
    source = source_of(kafka, topic)
    gone = source.latest(None)
    kafka.delete_records(topic)
    kafka.produce(topic, ['{"id": 2}'] * 5)
    end = source.latest(None)
    assert source.fetch({"0": 2} | {k: v for k, v in end.items() if k != "0"}, end).num_rows == 5
    assert source.fetch({"0": 2}, gone).num_rows == 0
    source.close()


def followed(source: KafkaSource, stop: threading.Event) -> Iterator[tuple[Offset, pa.Table]]:
    """The end of the topic whenever it has moved, and what came, as a loop over a stream sees it."""
    at: Offset | None = None
    for _ in abilities.changes(source, stop):
        end = abilities.poll(source, at)
        if at is None or not abilities.reached(source, at, end):
            rows = source.fetch(at, end)
            at = end
            yield end, rows


def test_messages_are_seen_as_they_come(kafka: Kafka) -> None:
    topic = new_topic(kafka, 2)
    kafka.produce(topic, [("a", '{"id": 1}', 0)])
    source, stop = source_of(kafka, topic), threading.Event()
    news = followed(source, stop)
    end, rows = next(news)
    assert (end["0"], end["1"], rows.num_rows) == (1, 0, 1)
    waits = []
    for number in range(20):
        kafka.produce(topic, [("a", f'{{"id": {number}}}', number % 2)])
        began = time.perf_counter()
        end, rows = next(news)
        waits.append(time.perf_counter() - began)
        assert rows["value"].to_pylist() == [b'{"id": %d}' % number]
    assert end == source.latest(end) and sorted(waits)[10] < 0.1
    # Transactions: what is rolled back moves the end, and is not seen.
    mixed(kafka, topic)
    count = 0
    while end != source.latest(end):
        end, rows = next(news)
        count += rows.num_rows
    assert count == 60
    # More than is held here: the brokers say where the end is.
    kafka.produce(topic, [(None, '{"id": 7}', 0)] * 25_000)
    while count < 25_060:
        end, rows = next(news)
        count += rows.num_rows
    assert end == source.latest(end)
    kafka.produce(topic, [(None, '{"id": 8}', 1)])
    assert next(news)[1]["value"].to_pylist() == [b'{"id": 8}']
    stop.set()
    assert next(news, None) is None
    source.close()


@pytest.mark.slow
def test_a_followed_topic_that_changes(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

    monkeypatch.setattr("millpond.connectors.kafka.consumer._ASK", 0.5)
    topic = new_topic(kafka)
    kafka.produce(topic, ['{"id": 1}'])
    source, stop = source_of(kafka, topic), threading.Event()
    news = followed(source, stop)
    end, _ = next(news)
    admin = AdminClient({"bootstrap.servers": kafka.brokers, "log_level": 0})
    for done in admin.create_partitions([NewPartitions(topic, 2)]).values():
        done.result(30)
    deadline = time.monotonic() + 30
    while "1" not in source.latest(None):
        assert time.monotonic() < deadline
    kafka.produce(topic, [(None, '{"id": 2}', 1)])
    found = 0
    while not found:
        end, rows = next(news)
        found = rows.num_rows
    assert end["1"] == 1
    kafka.delete(topic)
    with pytest.raises(TopicMissing):
        for _ in news:
            pass
    stop.set()
    source.close()
