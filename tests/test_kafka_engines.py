"""Topics decoded here and on executors: the same rows, types, order and error records."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millpond import App
from millpond.connectors.kafka.order import Order
from millpond.connectors.kafka.source import KafkaSource
from millpond.connectors.source import SEQ
from millpond.engine.batch import Batch
from millpond.engine.carrier import Sessions
from millpond.engine.collect import collect
from millpond.engine.messages import Drifted
from millpond.formats.avroschema import parse_avro
from millpond.formats.avrowrite import write_avro
from millpond.types import Column, Schema
from tests.servers import Kafka, Servers
from tests.test_kafka import new_topic, uri
from tests.test_kafka_reading import mixed

COLUMNS = Schema((Column("id", pa.int64()), Column("price", pa.decimal128(10, 2)), Column("at", pa.date32())))
AVRO = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}'


@pytest.fixture
def kafka(servers: Servers) -> Kafka:
    return servers.kafka


def raw_of(rows: list[tuple[int, int, int]]) -> pa.Table:
    partitions, offsets, times = zip(*rows, strict=True)
    return pa.table(
        {
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([t * 1000 for t in times], pa.timestamp("us", "UTC")),
        }
    )


def test_numbers_of_messages() -> None:
    """They are unique, within those of the range, in the order of each partition; few are in the order of times."""
    random.seed(7)
    for _ in range(200):
        ranges = {}
        for partition in random.sample(range(6), random.randint(1, 4)):
            begin = random.randint(0, 50)
            ranges[partition] = (begin, begin + random.randint(1, 30))
        rows = [
            (p, o, random.randint(0, 20))
            for p, (b, e) in ranges.items()
            for o in range(b, e)
            if random.random() < 0.8 or o == b
        ]
        random.shuffle(rows)
        raw, size = raw_of(rows), sum(e - b for b, e in ranges.values())
        by_turns = Order(100, ranges)
        by_times = by_turns.by_times(raw)
        for order in (by_turns, by_times):
            numbers = order(raw)
            assert len(set(numbers.tolist())) == len(rows)
            assert numbers.min() >= 100 and numbers.max() < 100 + size
            in_order = [rows[i][:2] for i in np.argsort(numbers)]
            assert all(
                [m for m in in_order if m[0] == p] == sorted(m[:2] for m in rows if m[0] == p) for p in ranges
            )
            assert (order(raw.slice(3)) == numbers[3:]).all()
        latest: dict[int, int] = {}
        expected = []
        for partition, offset, when in sorted(rows):
            latest[partition] = max(latest.get(partition, 0), when)
            expected.append((latest[partition], partition, offset))
        assert [rows[i][:2] for i in np.argsort(by_times(raw))] == [e[1:] for e in sorted(expected)]


def test_partitions_take_turns_in_proportion() -> None:
    order = Order(0, {0: (0, 12_000), 1: (0, 4_000)})
    assert not order.wants_times
    numbers = order(raw_of([(1, 0, 0), (1, 2_000, 0), (1, 3_999, 0)]))
    assert np.abs(numbers - [1, 8_000, 15_997]).max() <= 2


def both(
    source: KafkaSource, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> tuple[pa.Table, pa.Table]:
    """The rows and the rejected messages of a topic, decoded here; those of the executors are the same."""
    end = source.latest(None)
    here = Batch(source, None, end, carrier=Sessions(source, lambda: spark))
    rows, rejected = here.read(), here.rejected
    there = Batch(source, None, end, carrier=Sessions(source, lambda: spark))
    with monkeypatch.context() as patch:
        patch.setattr(KafkaSource, "decode", None)
        found = collect(there.frame).sort_by(SEQ)
        also = there.rejected
    assert found.cast(rows.schema).combine_chunks().equals(rows.combine_chunks())
    assert [f.type for f in found.schema] == [f.type for f in rows.schema]
    assert rejected is not None and also is not None
    assert also.combine_chunks().equals(rejected.sort_by("seq").combine_chunks())
    source.close()
    return rows, rejected


@pytest.mark.parametrize("many", [0, 12_000])
def test_rows_are_the_same_on_both_engines(
    kafka: Kafka, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    topic = new_topic(kafka, 3)
    mixed(kafka, topic)
    values = [json.dumps({"id": i, "price": f"{i}.25", "at": "2024-02-29"}) for i in range(many // 3 + 20)]
    kafka.produce(topic, [(f"k{i}", v, 0) for i, v in enumerate(values)])
    kafka.produce(topic, [(None, v, 1) for v in (*values[: len(values) // 2], "{", "[1]", '{"id": "x"}')] * 2)
    source = KafkaSource(uri(kafka, topic), {}, COLUMNS)
    rows, rejected = both(source, spark, monkeypatch)
    # Two of the messages that were committed first are empty, which is no JSON.
    assert rows.num_rows == 58 + len(values) + 2 * (len(values) // 2) and rejected.num_rows == 8
    assert any(rows["_headers"].to_pylist()) and any(rows["_deleted"].to_pylist())


def test_avro_is_the_same_on_both_engines(
    kafka: Kafka, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The schema goes with the decoder: executors do not read its file."""
    topic, file = new_topic(kafka, 2), tmp_path / "r.avsc"
    file.write_text(AVRO)
    values = write_avro(pa.table({"id": pa.array(range(100), pa.int64())}), parse_avro(AVRO)).to_pylist()
    kafka.produce(topic, [(f"k{i}", v, i % 2) for i, v in enumerate([*values, b"\xff", None])])
    source = KafkaSource(uri(kafka, topic), {"format": "avro", "avro.schema": str(file)}, None)
    assert source.schema().names[0] == "id"
    file.unlink()
    rows, rejected = both(source, spark, monkeypatch)
    assert rows.num_rows == 101 and rejected["value"].to_pylist() == [b"\xff"]


def test_new_fields_that_executors_find(kafka: Kafka, spark: SparkSession) -> None:
    topic = new_topic(kafka)
    kafka.produce(topic, ['{"id": 1}'] * 11_000 + ['{"id": 2, "note": "new", "gone": null}'])
    source = KafkaSource(uri(kafka, topic), {}, None)
    batch = Batch(source, None, source.latest(None), carrier=Sessions(source, lambda: spark))
    columns = batch.columns
    assert columns is not None and columns.names[0] == "id"
    fitted = batch.fitting(columns)
    assert fitted.frame.count() == 11_001 and "note" not in fitted.frame.columns
    with pytest.raises(Drifted):
        _ = fitted.rejected
    fitted.read_here()
    wider = batch.columns
    assert wider is not None and wider.names[:2] == ("id", "note")
    fitted = batch.fitting(wider)
    assert fitted.frame.where("note = 'new'").count() == 1 and fitted.rejected is None
    assert batch.fitting(columns).frame.columns == [*columns.names, SEQ]
    batch.close()
    source.close()


@pytest.mark.usefixtures("spark")
def test_many_messages_are_decoded_by_executors(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, count = new_topic(kafka, 2), 15_000
    good = [json.dumps({"id": i, "sym": f"s{i % 3}"}) for i in range(count)]
    kafka.produce(topic, [(None, v, i % 2) for i, v in enumerate([*good, "{", "no"])])
    decoded: list[int] = []
    decode = KafkaSource.decode

    def counted(source: KafkaSource, raw: pa.Table) -> Any:
        decoded.append(raw.num_rows)
        return decode(source, raw)

    monkeypatch.setattr(KafkaSource, "decode", counted)
    sql = f"""
        CREATE STREAM s (id BIGINT, sym STRING) WITH ('connector' = '{uri(kafka, topic)}');
        CREATE TABLE sums AS SELECT sym, COUNT(*) AS n, SUM(id) AS total FROM s GROUP BY sym;
    """
    with App(sql, state=tmp_path) as app:
        app.drain(120)
        assert app.sql("SELECT * FROM sums ORDER BY sym").rows() == [
            {"sym": f"s{s}", "n": count // 3, "total": sum(range(s, count, 3))} for s in range(3)
        ]
        assert decoded == []
        (query,) = app.sql("SHOW QUERIES").rows()
        assert (query["spark_rows"], query["process_rows"], query["errors"]) == (count + 2, 0, 2)
        assert query["last_engine"] == "spark"
        values = app.sql("SELECT row FROM `sums$errors`").rows()
        assert len(values) == 2
        kafka.produce(topic, ['{"id": 1, "sym": "s0"}', "{"])
        app.drain(120)
        (query,) = app.sql("SHOW QUERIES").rows()
        assert (query["spark_rows"], query["process_rows"], query["errors"]) == (count + 2, 2, 3)
        assert query["last_engine"] == "process"
        assert sum(decoded) == 2


def test_a_keyed_table_of_many_messages_is_decoded_on_executors_alone(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """The last message of a key decides, tombstones among them; here are only results and the tombstones."""
    chosen = random.Random(11)
    for deletes in (0.0, 0.2):
        topic = new_topic(kafka, 3)
        expected: dict[int, int] = {}
        messages: list[tuple[str, str | None, int]] = []
        for at in range(15_000):
            key = chosen.randint(0, 3_000)
            partition = key % 3
            if chosen.random() < deletes:
                messages.append((json.dumps({"id": key}), None, partition))
                expected.pop(key, None)
            else:
                value = json.dumps({"id": key, "qty": at if chosen.random() < 0.9 else -1})
                messages.append((json.dumps({"id": key}), value, partition))
                expected[key] = json.loads(value)["qty"]
        kafka.produce(topic, messages)
        sql = f"""
            CREATE STREAM s (id BIGINT, qty BIGINT) WITH ('connector' = '{uri(kafka, topic)}');
            CREATE TABLE t (PRIMARY KEY (id)) AS SELECT id, qty * 2 AS qty FROM s;
        """
        with monkeypatch.context() as patch:
            patch.setattr(KafkaSource, "decode", None)
            with App(sql) as app:
                app.drain(180)
                (query,) = app.sql("SHOW QUERIES").rows()
                assert (query["process_rows"], query["spark_rows"]) == (0, 15_000)
                found = {r["id"]: r["qty"] for r in app.sql("SELECT * FROM t").rows()}
        assert found == {key: qty * 2 for key, qty in expected.items()}
        with App(sql, engine="process") as app:
            app.drain(180)
            assert {r["id"]: r["qty"] for r in app.sql("SELECT * FROM t").rows()} == found


def test_a_large_partition_is_decoded_by_several_tasks(kafka: Kafka, spark: SparkSession) -> None:
    topic = new_topic(kafka, 2)
    kafka.produce(topic, [(None, json.dumps({"id": i}), 0) for i in range(25_000)])
    kafka.produce(topic, [(None, json.dumps({"id": i}), 1) for i in range(10)])
    source = KafkaSource(uri(kafka, topic), {}, Schema((Column("id", pa.int64()),)))
    batch = Batch(source, None, source.latest(None), carrier=Sessions(source, lambda: spark))
    cores = spark.sparkContext.defaultParallelism
    assert batch.frame.rdd.getNumPartitions() == 1 + min(cores, 3)
    found = collect(batch.frame).sort_by(SEQ)
    assert found.num_rows == 25_010
    asked = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    assert batch.rejected is None and batch.deleted() is None
    assert (
        spark.sparkContext.statusTracker().getJobIdsForGroup(None) == asked
    )  # the reports of the tasks are enough
    assert sorted(found["id"].to_pylist()) == sorted([*range(25_000), *range(10)])
    source.close()


def test_changes_of_a_topic_are_merged_in_their_order(kafka: Kafka, spark: SparkSession) -> None:
    """An update is two events, the row before and the row after, with the number of one message."""
    topic = new_topic(kafka)
    rows: dict[int, int] = {}
    messages = []
    for n in range(400):
        key = n % 9
        before = {"id": key, "qty": rows[key]} if key in rows else None
        rows[key] = (n * 37) % 50
        after = {"id": key, "qty": rows[key]}
        messages.append(json.dumps({"before": before, "after": after, "op": "u" if before else "c"}))
    kafka.produce(topic, messages)
    sql = f"""
        CREATE STREAM c (id BIGINT, qty BIGINT) WITH ('connector' = '{uri(kafka, topic)}', 'format' = 'debezium');
        CREATE TABLE t (id BIGINT PRIMARY KEY, qty BIGINT);
        MERGE INTO t USING c ON t.id = c.id
        WHEN MATCHED AND c._deleted THEN DELETE
        WHEN MATCHED THEN UPDATE SET qty = c.qty
        WHEN NOT MATCHED AND NOT c._deleted THEN INSERT (id, qty) VALUES (c.id, c.qty);
    """
    for engine in ("process", "spark"):
        with App(sql, engine=engine) as app:  # type: ignore[arg-type]
            app.drain(120)
            assert {r["id"]: r["qty"] for r in app.sql("SELECT * FROM t").rows()} == rows, engine
