"""Sinks that executors write: the same messages as one process writes, in the stream's order, no row in the driver."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from millpond import App
from millpond.engine import delivery, spark_stage, stage
from millpond.engine.internals import Shuffled
from millpond.errors import BadData
from tests.registry_double import RegistryDouble
from tests.servers import Kafka, Servers
from tests.spark_jobs import Jobs
from tests.test_kafka import new_topic, uri

COUNT = 24_000
Message = tuple[bytes | None, bytes | None]


@pytest.fixture
def kafka(servers: Servers) -> Kafka:
    return servers.kafka


def by_key(found: list[Message]) -> dict[bytes | None, list[bytes | None]]:
    """The values of each key, in the order of their partition. Those without a key have none."""
    values: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    for key, value in found:
        values[key].append(value)
    values[None].sort(key=str)
    return values


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.chaos), 3])
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param("", marks=pytest.mark.chaos),
        "t.user AS _key,",
        "t.user AS _key, length(t.user) % 4 AS _partition,",
    ],
)
def test_keys_keep_the_order_of_the_stream(
    kafka: Kafka,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parts: str,
    partitions: int,
) -> None:
    """The order between partitions of a topic depends on where batches end: that of one partition is fixed."""
    chance = random.Random(parts)
    source, targets = new_topic(kafka, partitions), {e: new_topic(kafka, 4) for e in ("spark", "process")}
    users = [None, *(f"u{i}" for i in range(300))]
    messages = [
        json.dumps({"id": i, "user": chance.choice(users), "price": chance.random() * 10.0 ** (i % 20)})
        for i in range(COUNT)
    ]
    kafka.produce(source, [(None, m, chance.randrange(partitions)) for m in messages])
    collected: list[object] = []
    for module in (spark_stage, stage):
        monkeypatch.setattr(module, "collect", collected.append)
    inserts = [
        f"""
        INSERT INTO {uri(kafka, target)} SELECT {parts} t.id, t.price, n.name, t._partition AS p, t._offset AS at
        FROM t LEFT JOIN names n ON t.user = n.user
        WITH ('engine' = '{engine}', 'query.name' = '{target}')
        """
        for engine, target in targets.items()
    ]
    names = ", ".join(f"('u{i}', 'name {i}')" for i in range(200))
    sql = f"""
        CREATE STREAM t (id BIGINT, user STRING, price DOUBLE)
          WITH ('connector' = '{uri(kafka, source)}', 'batch.max.rows' = '{COUNT}');
        CREATE TABLE names (user STRING PRIMARY KEY, name STRING);
        INSERT INTO names VALUES {names};
        {";".join(inserts)}
    """
    jobs = Jobs(spark)
    with App(sql, state=tmp_path) as app:
        app.drain(240)
        by_spark, here = (
            q for e in targets for q in app.sql("SHOW QUERIES").rows() if q["name"] == targets[e]
        )
    found = {engine: by_key(kafka.consume(target)) for engine, target in targets.items()}
    for keys in found.values():
        for key, values in keys.items():
            rows = [json.loads(v or b"") for v in values]
            for p in range(partitions) if key is not None else ():
                offsets = [r["at"] for r in rows if r["p"] == p]
                assert offsets == sorted(offsets)
    if partitions > 1:
        found = {e: {k: sorted(v, key=str) for k, v in keys.items()} for e, keys in found.items()}
    assert found["spark"] == found["process"] and sum(map(len, found["spark"].values())) == COUNT
    assert (
        (by_spark["spark_rows"], by_spark["rows"]) == (here["process_rows"], here["rows"]) == (COUNT, COUNT)
    )
    made = [s for s in jobs.stages if s.pool == targets["spark"]]
    written = [s for s in made if s.shuffled]
    assert sum(s.shuffled for s in written) == COUNT
    assert max(s.tasks for s in written) == 2
    assert sum(s.result for s in made) < 100_000 and collected == []


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_rows_are_evaluated_once_and_removed(spark: SparkSession, adaptive: str, tasks: int) -> None:
    """Sessions of others may plan adaptively."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", adaptive)
    for count in (0, 5_000):
        evaluated = spark.sparkContext.accumulator(0)

        def noted(batches: Iterator[pa.RecordBatch], evaluated: Any = evaluated) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                evaluated.add(batch.num_rows)
                yield batch

        frame = session.range(count).selectExpr("id", "id % 7 AS k").mapInArrow(noted, "id BIGINT, k BIGINT")
        observed = frame.observe("measured", expr("count(1) AS n"), expr("max(id) AS high"))
        divided = observed.repartition(tasks, "k") if tasks > 1 else observed.repartition(1)
        found = Shuffled(divided.sortWithinPartitions("id"))
        assert evaluated.value == count
        assert (found.observed("measured") or [0, None]) == ([count, 4_999] if count else [0, None])
        assert found.frame.where("k < 9").count() == count
        assert evaluated.value == count
        found.close()


def test_messages_have_the_bytes_of_our_encoder(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    """Types whose texts differ between Spark and ours: floats, control characters, decimals, times, nested values."""
    chance, targets = random.Random(3), {e: new_topic(kafka, 2) for e in ("spark", "process")}
    reals = [
        0.0,
        -0.0,
        1.0,
        1e16,
        1e-7,
        123456789.125,
        float("nan"),
        float("inf"),
        -float("inf"),
        5e-324,
        None,
    ]
    texts = ["", "plain", 'a "q" \\ \n', "\x01\x1f\x7f", "ü€𝄞", None]

    def row(i: int) -> dict[str, Any]:
        return {
            "id": i, "r": chance.choice(reals), "f": chance.choice(reals), "t": chance.choice(texts),
            "d": chance.choice(["1.10", "-0.01", "12345678901234567890.12", None]),
            "at": chance.choice(["2024-02-29T12:00:00.000001Z", "1969-12-31T23:59:59Z", None]),
            "day": chance.choice(["0999-01-02", "2024-02-29", None]), "b": chance.choice([True, False, None]),
            "s": chance.choice([None, {"x": None, "y": ["a", None]}, {"x": 7, "y": []}]),
        }  # fmt: skip

    columns = """id BIGINT, r DOUBLE, f FLOAT, t STRING, d DECIMAL(38,2), at TIMESTAMP, day DATE, b BOOLEAN,
        s STRUCT<x INT, y ARRAY<STRING>>"""
    with App(f"CREATE STREAM s ({columns}) WITH ('batch.max.rows' = '20000')", state=tmp_path) as app:
        for engine, target in targets.items():
            app.sql(f"""
                INSERT INTO {uri(kafka, target)}
                SELECT d AS _key, id % 7 = 0 AS _deleted, id, r, f, t, d, at, day, b, s,
                  CAST(at AS TIMESTAMP_NTZ) AS local, d * 2 AS twice, map('k', r) AS m
                FROM s WITH ('engine' = '{engine}')
            """)
        app.send("s", [row(i) for i in range(12_000)])
        app.drain(240)
    found = {engine: kafka.consume(target) for engine, target in targets.items()}
    assert len(found["spark"]) == 12_000 and by_key(found["spark"]) == by_key(found["process"])


def test_several_results_of_a_row_keep_their_order(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    target = new_topic(kafka, 2)
    sql = f"""
        CREATE STREAM s (id BIGINT, parts ARRAY<INT>) WITH ('batch.max.rows' = '20000');
        INSERT INTO {uri(kafka, target)} SELECT CAST(id % 50 AS STRING) AS _key, id, part
        FROM s LATERAL VIEW explode(parts) x AS part WITH ('engine' = 'spark')
    """
    with App(sql, state=tmp_path) as app:
        app.send("s", [{"id": i, "parts": [3, 1, 2]} for i in range(11_000)])
        app.drain(240)
    for values in by_key(kafka.consume(target)).values():
        rows = [json.loads(v or b"") for v in values]
        assert [r["part"] for r in rows] == [3, 1, 2] * (len(rows) // 3)
        assert [r["id"] for r in rows] == sorted(r["id"] for r in rows)


def test_a_topic_of_one_partition_has_the_order_of_the_stream(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    source, target = new_topic(kafka, 3), new_topic(kafka, 1)
    kafka.produce(source, [(None, json.dumps({"id": i}), i % 3) for i in range(12_000)])
    sql = f"""
        CREATE STREAM s (id BIGINT) WITH ('connector' = '{uri(kafka, source)}');
        INSERT INTO {uri(kafka, target)} SELECT id FROM s WITH ('engine' = 'spark', 'query.name' = 'out');
        CREATE TABLE t WITH ('engine' = 'process') AS SELECT id FROM s;
    """
    with App(sql, state=tmp_path) as app:
        app.drain(240)
        wanted = app.sql("SELECT id FROM t").rows()
    assert [json.loads(v or b"") for _, v in kafka.consume(target)] == wanted


@pytest.mark.parametrize("bad", ["x" * 2_000, "message", "partition"])
def test_a_batch_that_fails_on_data_has_written_nothing(
    kafka: Kafka, spark: SparkSession, tmp_path: Path, bad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that cannot be written and messages that cannot be read become error records; the others come once."""
    source, target = new_topic(kafka, 2), new_topic(kafka, 2)
    texts = [json.dumps({"id": i, "body": "y", "p": i % 2}) for i in range(12_000)]
    at = 7_000
    texts[at] = {"message": "{", "partition": json.dumps({"id": at, "body": "y", "p": 9})}.get(
        bad, json.dumps({"id": at, "body": bad, "p": 0})
    )
    kafka.produce(source, [(None, text, i % 2) for i, text in enumerate(texts)])
    saved: list[object] = []
    save = delivery.Encoded.save

    def noted(encoded: delivery.Encoded, sink: Any) -> None:
        saved.append(encoded.rows)
        save(encoded, sink)

    monkeypatch.setattr(delivery.Encoded, "save", noted)
    sql = f"""
        CREATE STREAM s (id BIGINT, body STRING, p INT)
          WITH ('connector' = '{uri(kafka, source)}', 'batch.max.rows' = '{COUNT}');
        INSERT INTO {uri(kafka, target)} SELECT id, body, p AS _partition FROM s
          WITH ('query.name' = 'out', 'kafka.max.request.size' = '1000', {{more}});
    """
    with App(sql.format(more="'on.error' = 'fail'"), state=tmp_path / "fails") as app, pytest.raises(BadData):
        app.drain(240)
    assert kafka.consume(target) == [] and saved == []
    with App(sql.format(more="'on.error' = 'table'"), state=tmp_path / "table") as app:
        app.drain(240)
        (query,) = app.sql("SHOW QUERIES").rows()
        assert (query["errors"], query["rows"]) == (1, 11_999), query
        assert len(app.sql("SELECT * FROM `out$errors`").rows()) == 1
    found = sorted(json.loads(v or b"")["id"] for _, v in kafka.consume(target))
    assert found == [i for i in range(12_000) if i != at]
    assert saved == ([11_999] if bad == "message" else [])


def test_new_fields_are_written_once(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    """Executors find them when they decode: before anything is written."""
    source, target = new_topic(kafka, 2), new_topic(kafka, 2)
    kafka.produce(source, ['{"id": 1}'] * 11_000 + ['{"id": 2, "note": "new"}'])
    sql = f"""
        CREATE STREAM s WITH ('connector' = '{uri(kafka, source)}', 'batch.max.rows' = '{COUNT}');
        INSERT INTO {uri(kafka, target)} SELECT * FROM s WITH ('query.name' = 'out');
    """
    with App(sql, state=tmp_path) as app:
        app.drain(240)
    found = [json.loads(v or b"") for _, v in kafka.consume(target)]
    assert len(found) == 11_001 and sorted({f["note"] for f in found}, key=str) == [None, "new"]


@pytest.mark.parametrize("miss", ["null", "drop", "error", "retry"])
def test_rows_without_a_match(kafka: Kafka, spark: SparkSession, tmp_path: Path, miss: str) -> None:
    source, targets = new_topic(kafka), {e: new_topic(kafka, 2) for e in ("spark", "process")}
    kafka.produce(source, [json.dumps({"id": i, "k": i % 10}) for i in range(11_000)])
    sql = f"""
        CREATE STREAM s (id BIGINT, k INT) WITH ('connector' = '{uri(kafka, source)}', 'batch.max.rows' = '{COUNT}');
        CREATE TABLE names (k INT PRIMARY KEY, name STRING);
        INSERT INTO names VALUES (0, 'zero'), (1, 'one');
    """
    with App(sql, state=tmp_path) as app:
        for engine, target in targets.items():
            app.sql(f"""
                INSERT INTO {uri(kafka, target)} SELECT CAST(s.k AS STRING) AS _key, s.id, n.name
                FROM s LEFT JOIN names n ON s.k = n.k WITH ('engine' = '{engine}', 'on.miss' = '{miss}')
            """)
        app.drain(240)
        seen = [(q["rows"], q["errors"], q["misses"]) for q in app.sql("SHOW QUERIES").rows()]
    assert seen[0] == seen[1] and seen[0][2] == 8_800, seen
    found = {engine: by_key(kafka.consume(target)) for engine, target in targets.items()}
    assert found["spark"] == found["process"] and len(found["spark"][b"0"]) == 1_100


def test_two_statements_on_a_topic(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    source, target = new_topic(kafka, 2), new_topic(kafka, 2)
    kafka.produce(source, [json.dumps({"id": i}) for i in range(12_000)] + ["{"])
    sql = f"""
        CREATE STREAM s (id BIGINT) WITH ('connector' = '{uri(kafka, source)}');
        CREATE TABLE sums AS SELECT id % 2 AS k, COUNT(*) AS n FROM s GROUP BY id % 2;
        INSERT INTO {uri(kafka, target)} SELECT id FROM s WHERE id > 5 WITH ('query.name' = 'out');
    """
    with App(sql, state=tmp_path) as app:
        app.drain(240)
        assert sum(r["n"] for r in app.sql("SELECT n FROM sums").rows()) == 12_000
        assert [q["errors"] for q in app.sql("SHOW QUERIES").rows()] == [1, 1]
    assert sorted(json.loads(v or b"")["id"] for _, v in kafka.consume(target)) == list(range(6, 12_000))


def test_avro_with_a_registry(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    targets = {e: new_topic(kafka, 2) for e in ("spark", "process")}
    declared = "CREATE STREAM s (id BIGINT, price DECIMAL(10,2))"
    with RegistryDouble().running() as registry, App(declared, state=tmp_path) as app:
        for engine, target in targets.items():
            app.sql(f"""
                INSERT INTO {uri(kafka, target)} SELECT CAST(id % 9 AS STRING) AS _key, id, price FROM s
                WITH ('engine' = '{engine}', 'format' = 'avro', 'schema.registry.url' = '{registry.url}')
            """)
        app.send("s", [{"id": i, "price": f"{i}.25"} for i in range(10_500)])
        app.drain(240)
    found = {engine: by_key(kafka.consume(target)) for engine, target in targets.items()}
    bodies = {e: {k: [(v or b"")[5:] for v in values] for k, values in f.items()} for e, f in found.items()}
    assert bodies["spark"] == bodies["process"] and sum(map(len, bodies["spark"].values())) == 10_500
    assert all((v or b"x")[0] == 0 for values in found["spark"].values() for v in values)


def test_who_writes_is_explained(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    target = uri(kafka, new_topic(kafka, 2))
    with App("CREATE STREAM s (id BIGINT, k INT); CREATE TABLE t (id BIGINT)", state=tmp_path) as app:

        def writer(query: str) -> str:
            lines = [r["plan"] for r in app.sql(f"EXPLAIN INSERT INTO {target} SELECT {query}").rows()]
            (found,) = [line for line in lines if line.startswith("sink:")]
            return str(found)

        plain = writer("id FROM s")
        assert "executors" in plain and "one task" in plain, plain
        assert "in the driver" in writer("id FROM s WITH ('delivery' = 'exactly-once')")
        assert "one transactional producer" in writer("id FROM s WITH ('delivery' = 'exactly-once')")
        assert "executors" not in writer("k, COUNT(*) AS n FROM s GROUP BY k")
        assert "executors" not in writer("id FROM t")
        assert "executors" not in writer("id FROM s WITH ('engine' = 'process')")
        app.sql(f"INSERT INTO {target} SELECT id FROM s WITH ('query.name' = 'out')")
        app.send("s", [{"id": i} for i in range(11_000)])
        app.drain(240)
        told = [r["plan"].partition(" rows")[0] for r in app.sql("EXPLAIN ANALYZE QUERY out").rows()]
        assert told[0].endswith("batches, 11,000"), told
        assert told[-2:] == ["step: read and evaluate by Spark: 11,000", "step: write to kafka: 11,000"]


def test_a_broker_that_fails_in_the_middle(spark: SparkSession, tmp_path: Path) -> None:
    """The batch is written again: nothing is lost."""
    broker = Kafka(tmp_path / "kafka")
    try:
        target = new_topic(broker, 3)
        sql = f"""
            CREATE STREAM s (id BIGINT, body STRING) WITH ('batch.max.rows' = '{COUNT}');
            INSERT INTO {uri(broker, target)} SELECT CAST(id % 99 AS STRING) AS _key, id, body FROM s
            WITH ('query.name' = 'out', 'engine' = 'spark', 'kafka.delivery.timeout.ms' = '2000',
                  'kafka.request.timeout.ms' = '1000', 'kafka.linger.ms' = '0', 'kafka.max.block.ms' = '2000');
        """
        begun = threading.Event()
        with App(sql, state=tmp_path / "state") as app, pytest.MonkeyPatch.context() as patch:
            save = delivery.Encoded.save

            def watched(encoded: delivery.Encoded, sink: Any) -> None:
                begun.set()
                save(encoded, sink)

            patch.setattr(delivery.Encoded, "save", watched)
            app.send("s", pa.table({"id": range(COUNT), "body": ["z" * 2_000] * COUNT}))
            assert begun.wait(120)
            time.sleep(0.3)
            broker.stop()
            time.sleep(4)
            (query,) = app.sql("SHOW QUERIES").rows()
            assert query["state"] != "failed", query
            broker.start()
            app.drain(240)
        ids = [json.loads(v or b"")["id"] for _, v in broker.consume(target)]
        assert set(ids) == set(range(COUNT))
    finally:
        broker.stop()


_RUN = """
import sys
from millpond import App
with App(open(sys.argv[1]).read(), state=sys.argv[2]) as app:
    print("up", flush=True)
    app.drain(600)
    print("done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.chaos)])
def test_nothing_is_lost_across_kills(kafka: Kafka, tmp_path: Path, kills: int) -> None:
    chance, share = random.Random(5), 15_000
    source, target = new_topic(kafka, 2), new_topic(kafka, 3)
    (tmp_path / "app.sql").write_text(f"""
        CREATE STREAM s (id BIGINT, k STRING) WITH ('connector' = '{uri(kafka, source)}');
        INSERT INTO {uri(kafka, target)} SELECT k AS _key, id FROM s WITH ('query.name' = 'out', 'engine' = 'spark');
    """)
    command = [sys.executable, "-c", _RUN, str(tmp_path / "app.sql"), str(tmp_path / "state")]
    for kill in range(kills + 1):
        numbers = range(kill * share, (kill + 1) * share)
        kafka.produce(source, [(f"k{i % 70}", json.dumps({"id": i, "k": f"k{i % 70}"})) for i in numbers])
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline().strip() == "up"
        if kill == kills:
            assert process.communicate(timeout=600)[0].strip() == "done"
            continue
        deadline = time.monotonic() + 60
        seen = len(kafka.consume(target))
        while len(kafka.consume(target)) == seen and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.3))
        process.kill()
        process.wait()
    found = by_key(kafka.consume(target))
    for key, values in found.items():
        ids = [json.loads(v or b"")["id"] for v in values]
        first = list(dict.fromkeys(ids))
        assert first == sorted(first), key
    assert {json.loads(v or b"")["id"] for values in found.values() for v in values} == set(
        range((kills + 1) * share)
    )
