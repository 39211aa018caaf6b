"""Kafka: topics as streams and tables, against a real broker."""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond import App, Error
from millpond.app.check import check_text
from millpond.connectors.kafka.source import KafkaSource
from millpond.engine.session import connector_settings
from millpond.errors import (
    AuthenticationIssue,
    BadData,
    ConfigurationIssue,
    ConnectionLost,
    InvalidOption,
    NetworkIssue,
    SourceEmpty,
    SourceError,
    TopicMissing,
    UnknownName,
)
from millpond.formats.messages.csv import CsvMessages
from millpond.formats.messages.json import JsonMessages
from millpond.formats.messages.text import TextMessages
from millpond.retry import Issues, Patience
from millpond.testing.crash import crash
from millpond.types import Column, Schema
from tests.servers import Kafka, Servers


@pytest.fixture
def kafka(servers: Servers) -> Kafka:
    return servers.kafka


def new_topic(kafka: Kafka, partitions: int = 1, **settings: str) -> str:
    topic = f"t{uuid.uuid4().hex[:8]}"
    kafka.create(topic, partitions, **settings)
    return topic


def uri(kafka: Kafka, topic: str) -> str:
    return f"kafka://{kafka.brokers}/{topic}"


def orders(numbers: range) -> list[tuple[str, str]]:
    return [(f"k{i % 7}", json.dumps({"id": i, "sym": f"s{i % 3}", "price": i + 0.25})) for i in numbers]


# reading


@pytest.mark.usefixtures("spark")
def test_a_topic_is_a_stream(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka, 2)
    kafka.produce(topic, orders(range(2000)))
    sql = f"""
        CREATE TABLE names (sym STRING PRIMARY KEY, name STRING);
        INSERT INTO names VALUES ('s1', 'one'), ('s2', 'two');
        CREATE STREAM orders (id BIGINT, sym STRING, price DECIMAL(10,2)) WITH ('connector' = '{uri(kafka, topic)}');
        CREATE TABLE joined (PRIMARY KEY (id)) AS
          SELECT o.id, o.price, n.name, o._key AS key, o._partition AS p, o._offset AS at, o._timestamp AS sent
          FROM orders o LEFT JOIN names n ON o.sym = n.sym;
        CREATE TABLE sums AS SELECT sym, COUNT(*) AS n, SUM(price) AS total FROM orders GROUP BY sym;
    """
    with App(sql, state=tmp_path / "state") as app:
        app.drain(120)
        assert app.sql(
            "SELECT COUNT(*) AS n, COUNT(DISTINCT p) AS p, COUNT(name) AS named FROM joined"
        ).rows() == [{"n": 2000, "p": 2, "named": 1333}]
        row = app.sql("SELECT * FROM joined WHERE id = 8").rows()[0]
        assert (row["price"], row["name"], row["key"]) == (Decimal("8.25"), "two", "k1")
        assert abs(row["sent"].timestamp() - time.time()) < 600
        sums = "SELECT * FROM sums ORDER BY sym"
        expected = [
            {
                "sym": f"s{s}",
                "n": len(range(s, 2000, 3)),
                "total": sum((Decimal(i) + Decimal("0.25") for i in range(s, 2000, 3)), Decimal(0)),
            }
            for s in range(3)
        ]
        assert app.sql(sums).rows() == expected
    # What comes while nobody runs is there after a restart, once.
    kafka.produce(topic, orders(range(2000, 2500)))
    with App(
        sql.replace("INSERT INTO names VALUES ('s1', 'one'), ('s2', 'two');", ""), state=tmp_path / "state"
    ) as app:
        app.drain(120)
        assert app.sql("SELECT SUM(n) AS n FROM sums").rows() == [{"n": 2500}]
        kafka.produce(topic, orders(range(2500, 2510)))
        app.drain(120)
        assert app.sql("SELECT COUNT(*) AS n FROM joined").rows() == [{"n": 2510}]
        assert app.sql("SHOW QUERIES").rows()[0]["lag"] == 0


@pytest.mark.usefixtures("spark")
def test_columns_are_discovered_and_hidden_ones_are_not_in_star(kafka: Kafka) -> None:
    topic = new_topic(kafka)
    kafka.produce(topic, ['{"id": 1, "who": {"name": "a", "tags": ["x"]}}', '{"id": 2, "big": 12.5}'])
    with App(f"CREATE TABLE t AS SELECT * FROM {uri(kafka, topic)}") as app:
        app.drain(120)
        assert app.sql("SELECT * FROM t ORDER BY id").rows() == [
            {"id": 1, "who": {"name": "a", "tags": ["x"]}, "big": None},
            {"id": 2, "who": None, "big": 12.5},
        ]
        found = app.sql(f"SELECT who.name AS n, _offset FROM {uri(kafka, topic)} AS k")
        app.drain(120)
        assert found.rows() == [{"n": "a", "_offset": 0}, {"n": None, "_offset": 1}]


@pytest.mark.usefixtures("spark")
def test_only_committed_records_are_read(kafka: Kafka) -> None:
    from confluent_kafka import Producer

    topic = new_topic(kafka)
    producer = Producer({"bootstrap.servers": kafka.brokers, "transactional.id": topic})
    producer.init_transactions(60)
    for number, keep in enumerate((True, False, True)):
        producer.begin_transaction()
        for i in range(10):
            producer.produce(topic, json.dumps({"id": number * 10 + i}))
        producer.flush()
        producer.commit_transaction() if keep else producer.abort_transaction()
    with App(f"CREATE TABLE t (id BIGINT, PRIMARY KEY (id)) AS SELECT id FROM {uri(kafka, topic)}") as app:
        app.drain(120)
        ids = [r["id"] for r in app.sql("SELECT id FROM t ORDER BY id").rows()]
        assert ids == [*range(10), *range(20, 30)]


@pytest.mark.usefixtures("spark")
@pytest.mark.usefixtures("spark")
def test_queries_that_begin_at_the_end(kafka: Kafka, tmp_path: Path) -> None:
    """Each begins where the topic ended when it came, whatever others of the stream do, and keeps its place."""
    topic = new_topic(kafka)
    kafka.produce(topic, ['{"id": 1}'])
    sql = f"""
        CREATE STREAM s (id INT) WITH ('connector' = '{uri(kafka, topic)}', 'auto.offset.reset' = 'latest');
        CREATE TABLE a AS SELECT id FROM s;
    """
    with App(sql, state=tmp_path / "state") as app:
        kafka.produce(topic, ['{"id": 2}'])
        app.drain(120)
        app.sql("CREATE TABLE b AS SELECT id FROM s")
        kafka.produce(topic, ['{"id": 3}'])
        crash(app)
    with App(sql, state=tmp_path / "state") as app:
        app.drain(120)
        assert sorted(r["id"] for r in app.table("a")) == [2, 3]
        assert sorted(r["id"] for r in app.table("b")) == [3]


def test_new_partitions_and_latest(kafka: Kafka) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewPartitions

    topic = new_topic(kafka)
    kafka.produce(topic, orders(range(5)))
    late = f"'connector' = '{uri(kafka, topic)}', 'auto.offset.reset' = 'LATEST'"
    with App(f"""
        CREATE STREAM every (id BIGINT) WITH ('connector' = '{uri(kafka, topic)}');
        CREATE STREAM later (id BIGINT) WITH ({late});
        CREATE TABLE a AS SELECT id FROM every WITH ('primary.key' = '');
        CREATE TABLE b AS SELECT id FROM later WITH ('primary.key' = '');
    """) as app:
        app.drain(120)
        assert app.sql("SELECT COUNT(*) AS n FROM a").rows() == [{"n": 5}]
        assert app.sql("SELECT COUNT(*) AS n FROM b").rows() == [{"n": 0}]
        admin = AdminClient({"bootstrap.servers": kafka.brokers})
        for done in admin.create_partitions([NewPartitions(topic, 3)]).values():
            done.result(30)
        kafka.produce(topic, [(None, '{"id": 100}', p) for p in range(3)])
        _until(lambda: app.sql("SELECT COUNT(*) AS n FROM a").rows() == [{"n": 8}])
        _until(lambda: app.sql("SELECT COUNT(*) AS n FROM b").rows() == [{"n": 3}])


@pytest.mark.usefixtures("spark")
def test_a_message_without_a_value_ends_its_row(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    user = '{"id": %d, "name": "%s"}'
    kafka.produce(
        topic,
        [
            ("1", user % (1, "a")),
            ("2", user % (2, "b")),
            ("1", None),
            ("2", None),
            ("2", user % (2, "c")),
            ("7", None),
        ],
    )
    sql = f"""
        CREATE STREAM s (id BIGINT, name STRING) WITH ('connector' = '{uri(kafka, topic)}');
        CREATE TABLE users (PRIMARY KEY (id)) AS SELECT id, upper(name) AS name FROM s WHERE name <> 'hidden';
        CREATE TABLE n AS SELECT COUNT(*) AS n FROM users;
        CREATE TABLE every AS SELECT id, _deleted AS d FROM s WITH ('primary.key' = '');
    """
    with App(sql, state=tmp_path / "state") as app:
        app.drain(120)
        assert app.sql("SELECT * FROM users").rows() == [{"id": 2, "name": "C"}]
        assert app.sql("SELECT COUNT(*) AS n, COUNT(id) AS i FROM every WHERE d").rows() == [{"n": 3, "i": 0}]
        kafka.produce(topic, [("3", user % (3, "d")), ("2", None), ("2", user % (2, "hidden"))])
        app.drain(120)
        assert app.sql("SELECT * FROM users").rows() == [{"id": 3, "name": "D"}]
        assert app.sql("SELECT n FROM n").rows() == [{"n": 1}]
        kafka.produce(topic, [("x", None), (None, None), ('{"id": 3}', None)])
        app.drain(120)
        assert app.sql("SELECT * FROM users").rows() == []
        reasons = [r["reason"] for r in app.sql("SELECT reason FROM `users$errors` ORDER BY seq").rows()]
        assert len(reasons) == 2 and "has no key" in reasons[1]


Row = dict[str, Any]


def _envelopes(chance: random.Random, model: dict[int, Row], tries: int) -> Iterator[Row]:
    """Changes of a table that ``model`` follows: inserts, updates, also of the key, deletes."""
    for _ in range(tries):
        op = chance.choice("ccuud")
        if op != "c" and not model:
            continue
        old = model[chance.choice([*model])] if op != "c" else None
        key = old["id"] if old and chance.random() < 0.5 else chance.randrange(15)
        if op != "d" and key in model and (old is None or key != old["id"]):
            continue
        new = {"id": key, "name": chance.choice("abc")} if op != "d" else None
        if old is not None:
            del model[old["id"]]
        if new is not None:
            model[key] = new
        yield {"before": old, "after": new, "op": op, "ts_ms": 1}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("wrapped", [False, True])
def test_debezium_envelopes(kafka: Kafka, wrapped: bool) -> None:
    chance, model, topic = random.Random(5), dict[int, Row](), new_topic(kafka)
    sql = f"""
        CREATE STREAM s (id BIGINT, name STRING)
          WITH ('connector' = '{uri(kafka, topic)}', 'format' = 'debezium');
        CREATE TABLE t (PRIMARY KEY (id)) AS SELECT id, name FROM s;
        CREATE TABLE names AS SELECT name, COUNT(*) AS n FROM t GROUP BY name;
    """
    with App(sql) as app:
        for _ in range(3):
            messages: list[object] = []
            for envelope in _envelopes(chance, model, 60):
                messages.append(json.dumps({"schema": {}, "payload": envelope} if wrapped else envelope))
                if envelope["op"] == "d":
                    messages.append(None)
            kafka.produce(topic, messages)
            app.drain(120)
            rows = app.sql("SELECT * FROM t ORDER BY id").rows()
            assert rows == [model[k] for k in sorted(model)]
        counted = {r["name"]: r["n"] for r in app.sql("SELECT * FROM names").rows()}
        assert counted == Counter(str(r["name"]) for r in model.values())
        kafka.produce(topic, ['{"op": "z"}', "{"])
        app.drain(120)
        assert app.sql("SELECT COUNT(*) AS n FROM `t$errors`").rows() == [{"n": 2}]


@pytest.mark.usefixtures("spark")
def test_a_message_that_cannot_be_decoded_is_put_aside(kafka: Kafka) -> None:
    topic = new_topic(kafka)
    kafka.produce(topic, ['{"id": 1}', "{oops", '{"id": "x"}', '{"id": 2}', b"\xff"])
    sql = f"CREATE STREAM s (id BIGINT) WITH ('connector' = '{uri(kafka, topic)}');"
    with App(
        sql + "CREATE TABLE t AS SELECT id FROM s; CREATE TABLE n AS SELECT COUNT(*) AS n FROM s"
    ) as app:
        app.drain(120)
        assert [r["id"] for r in app.sql("SELECT id FROM t ORDER BY id").rows()] == [1, 2]
        assert app.sql("SELECT n FROM n").rows() == [{"n": 2}]
        errors = app.sql("SELECT seq, reason, `row` FROM `t$errors` ORDER BY seq").rows()
        assert [e["seq"] for e in errors] == [1, 2, 4]
        assert "JSON" in errors[0]["reason"] and errors[0]["row"] == '{"_message": "{oops"}'
        assert '"x" in column "id" is not a BIGINT' in errors[1]["reason"]
        assert app.sql("REPLAY `t$errors`").count == 0
        assert app.sql("SHOW QUERIES").rows()[0]["errors"] == 3
    failing = App(sql + "CREATE TABLE t AS SELECT id FROM s WITH ('on.error' = 'fail')")
    with failing, pytest.raises(BadData, match="cannot be decoded"):
        failing.drain(120)


def _until(done: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_broker_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    broker = Kafka(tmp_path / "kafka")
    try:
        broker.create("t")
        broker.produce("t", orders(range(100)))
        with App(
            f"CREATE TABLE t (id BIGINT) AS SELECT id FROM {uri(broker, 't')} WITH ('primary.key' = '')"
        ) as app:
            app.drain(120)
            broker.stop()
            time.sleep(2)
            assert app.sql("SELECT COUNT(*) AS n FROM t").rows() == [{"n": 100}]
            broker.start()
            broker.produce("t", orders(range(100, 200)))
            _until(lambda: app.sql("SELECT COUNT(*) AS n FROM t").rows()[0]["n"] >= 200)
            app.drain(120)
            counts = app.sql("SELECT COUNT(*) AS n, COUNT(DISTINCT id) AS d FROM t").rows()
            assert counts == [{"n": 200, "d": 200}]
    finally:
        broker.stop()


_APP = """
import sys
from millpond import App
uri, state = sys.argv[1:]
app = App(f'''
    CREATE STREAM s (id BIGINT, sym STRING, price DOUBLE) WITH ('connector' = '{uri}');
    CREATE TABLE sums AS SELECT sym, COUNT(*) AS n, SUM(id) AS total FROM s GROUP BY sym;
    CREATE TABLE every AS SELECT id FROM s WITH ('primary.key' = '');
''', state=state)
print("up", flush=True)
app.drain(300)
print("done", app.sql("SELECT * FROM sums ORDER BY sym").rows(),
      app.sql("SELECT COUNT(*) AS n, COUNT(DISTINCT id) AS d FROM every").rows(), flush=True)
app.close()
"""


def _kill_and_count(kafka: Kafka, state: Path, kills: int, records: int) -> None:
    """Kills an app that reads a topic while it is written; at the end every record counts once."""
    topic = new_topic(kafka, 2)
    kafka.produce(topic, orders(range(records // 2)))
    command = [sys.executable, "-c", _APP, uri(kafka, topic), str(state)]
    for kill in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "up"
        time.sleep(0.3 * kill)
        process.kill()
        process.wait()
    kafka.produce(topic, orders(range(records // 2, records)))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500)
    sums = [
        {"sym": f"s{s}", "n": len(range(s, records, 3)), "total": sum(range(s, records, 3))} for s in range(3)
    ]
    counts = [{"n": records, "d": records}]
    assert ended.stdout.splitlines()[-1] == f"done {sums} {counts}", ended.stderr


@pytest.mark.slow
def test_kills_while_a_topic_is_read(kafka: Kafka, tmp_path: Path) -> None:
    _kill_and_count(kafka, tmp_path / "state", 2, 20_000)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_many_kills_while_a_topic_is_read(kafka: Kafka, tmp_path: Path) -> None:
    _kill_and_count(kafka, tmp_path / "state", 15, 500_000)


# what can be wrong


def test_a_missing_topic_says_what_to_do(kafka: Kafka) -> None:
    topic = new_topic(kafka)
    with pytest.raises(TopicMissing) as caught:
        App(f"CREATE STREAM s WITH ('connector' = '{uri(kafka, topic)}x')")
    said = str(caught.value)
    assert f'did you mean "{topic}"' in said
    assert (
        f"--create --topic {topic}x" in said
        and "topic.wait.timeout" in said
        and "topic.create.if.missing" in said
    )
    assert caught.value.retryable


def test_a_topic_that_comes_while_it_is_waited_for(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    topic = f"t{uuid.uuid4().hex[:8]}"

    def create() -> None:
        time.sleep(1)
        kafka.create(topic)
        kafka.produce(topic, ['{"id": 1}'])

    thread = threading.Thread(target=create)
    thread.start()
    values = {"topic.wait.timeout": 60.0, "topic.retry.interval": 0.3, "topic.retry.strategy": "fixed"}
    with caplog.at_level(logging.WARNING, "millpond"):
        source = KafkaSource(uri(kafka, topic), values, None)
        assert source.schema().names[:2] == ("id", "_key")
    thread.join()
    tries = [r.getMessage() for r in caplog.records if "trying again" in r.getMessage()]
    assert len(tries) >= 2 and "trying again in 0.3 s (attempt 1)" in tries[0]


def test_a_topic_is_created_if_asked(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = f"t{uuid.uuid4().hex[:8]}"
    declared = Schema((Column("id", pa.int64()),))
    source = KafkaSource(
        uri(kafka, topic),
        {"topic.create.if.missing": True, "topic.partitions": 3, "topic.replication": 1},
        declared,
    )
    source.prepare()
    assert source.lag(None) == {"0": 0, "1": 0, "2": 0}
    monkeypatch.setenv("MILLPOND_DEFAULT_PARTITIONS", "2")
    other = KafkaSource(uri(kafka, f"{topic}b"), {"topic.create.if.missing": True}, declared)
    other.prepare()
    assert other.lag(None) == {"0": 0, "1": 0}


@pytest.mark.usefixtures("spark")
def test_a_table_over_a_topic_that_is_created(kafka: Kafka) -> None:
    """Its columns are those that the table declares; a check creates nothing."""
    topic = f"t{uuid.uuid4().hex[:8]}"
    made = "WITH ('topic.create.if.missing' = 'true')"
    sql = f"""
        CREATE TABLE a (id BIGINT PRIMARY KEY, name STRING) AS SELECT id, name FROM {uri(kafka, topic)} {made};
        CREATE TABLE b (id BIGINT, name STRING) AS SELECT * FROM {uri(kafka, topic)} {made};
    """
    assert not check_text(sql).errors
    with pytest.raises(TopicMissing):
        KafkaSource(uri(kafka, topic), {}, None).schema()
    with pytest.raises(SourceEmpty, match="its columns cannot be discovered"):
        App(f"CREATE TABLE c AS SELECT * FROM {uri(kafka, topic)} {made}")
    with App(sql) as app:
        app.drain(120)
        kafka.produce(topic, [("1", '{"id": 1, "name": "x", "more": 2}'), ("1", '{"id": 1, "name": "y"}')])
        app.drain(120)
        assert app.sql("SELECT * FROM a").rows() == [{"id": 1, "name": "y"}]
        assert [r["name"] for r in app.sql("SELECT name FROM b").rows()] == ["x", "y"]


def test_an_empty_topic_cannot_be_discovered(kafka: Kafka) -> None:
    with pytest.raises(SourceError, match="empty: its columns cannot be discovered") as caught:
        KafkaSource(uri(kafka, new_topic(kafka)), {}, None).schema()
    assert "declare the columns" in str(caught.value)


def test_secrets_are_not_shown() -> None:
    sql = """
        CREATE STREAM s (id INT) WITH ('connector' = 'kafka://localhost:1/t?kafka.ssl.key.password=hunter1',
          'kafka.sasl.jaas.config' = 'x required username="u" password="hunter2";',
          "kafka.ssl.keystore.password" = "hunter3", 'kafka.client.id' = 'shown');
    """
    with App(sql) as app:
        shown = str(app.sql("SHOW CREATE TABLE s").rows()) + str(app.sql("SHOW STREAMS").rows())
        shown += str(app.sql("EXPLAIN SELECT id FROM s").rows())
        shown += str(app.sql("DESCRIBE EXTENDED s").rows())
    assert "hunter" not in shown
    assert "kafka.sasl.jaas.config" in shown and "shown" in shown


def test_issues_are_told_apart(kafka: Kafka) -> None:
    declared = Schema((Column("id", pa.int64()),))
    with pytest.raises(NetworkIssue, match=r"no Kafka broker answers at 127\.0\.0\.1:1"):
        KafkaSource("kafka://127.0.0.1:1/t", {}, declared).prepare()
    login = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": 'PlainLoginModule required username="millpond" password="not-the-pond";',
    }
    with pytest.raises(AuthenticationIssue) as refused:
        KafkaSource(f"kafka://{kafka.sasl_brokers}/t", login, declared).prepare()
    assert not refused.value.retryable and "not-the-pond" not in str(refused.value)
    right = login | {"kafka.sasl.jaas.config": 'x required username="millpond" password="pond";'}
    topic = new_topic(kafka)
    KafkaSource(f"kafka://{kafka.sasl_brokers}/{topic}", right, declared).prepare()
    with pytest.raises(ConfigurationIssue, match=r'no setting "fetch\.max\.byte"') as unknown:
        KafkaSource(uri(kafka, topic), {"kafka.fetch.max.byte": "1"}, declared)
    assert "fetch.max.bytes" in str(unknown.value)
    with pytest.raises(ConfigurationIssue, match=r"security\.protocol"):
        KafkaSource(uri(kafka, topic), {"kafka.security.protocol": "NOTHING"}, declared).prepare()


def test_authentication_is_never_retried(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    values = {"topic.wait.timeout": 60.0, "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN",
              "kafka.sasl.jaas.config": 'x required username="a" password="b";'}  # fmt: skip
    with caplog.at_level(logging.WARNING, "millpond"), pytest.raises(AuthenticationIssue):
        KafkaSource(f"kafka://{kafka.sasl_brokers}/t", values, Schema((Column("id", pa.int64()),))).prepare()
    assert "trying again" not in caplog.text


# without a broker


@pytest.mark.parametrize(
    ("text", "servers", "topic"),
    [
        ("kafka://orders", "localhost:9092", "orders"),
        ("kafka://a:9092/orders", "a:9092", "orders"),
        ("kafka://a:9092,b:9093/orders", "a:9092,b:9093", "orders"),
        ("kafka://a:9092/orders?format=csv&delimiter=;", "a:9092", "orders"),
    ],
)
def test_uris(text: str, servers: str, topic: str) -> None:
    source = KafkaSource(text, {}, Schema((Column("id", pa.int64()),)))
    assert (source.servers, source.topic) == (servers, topic)
    assert source.values["format"] == ("csv" if "?" in text else "json")


def test_where_the_brokers_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = Schema((Column("id", pa.int64()),))
    monkeypatch.setenv("MILLPOND_KAFKA_BROKERS", "c:9092")
    assert KafkaSource("kafka://orders", {}, declared).servers == "c:9092"
    assert KafkaSource("kafka://orders", {"bootstrap.servers": "b:9092"}, declared).servers == "b:9092"
    assert KafkaSource("kafka://a:9092/orders", {"bootstrap.servers": "b:9092"}, declared).servers == "a:9092"


def test_wrong_uris_and_options() -> None:
    with pytest.raises(InvalidOption, match="names no topic"):
        KafkaSource("kafka://", {}, None)
    with pytest.raises(UnknownName, match="formt"):
        KafkaSource("kafka://a:1/t?formt=json", {}, None)
    with pytest.raises(Error, match=r'"topic\.retry\.intervall" is not known'):
        App("CREATE STREAM s (id INT) WITH ('connector' = 'kafka://t', 'topic.retry.intervall' = '1s')")


def test_an_odd_reset_warns_and_means_earliest(caplog: pytest.LogCaptureFixture) -> None:
    declared = Schema((Column("id", pa.int64()),))
    with caplog.at_level(logging.WARNING, "millpond"):
        assert KafkaSource("kafka://t", {"auto.offset.reset": "newest"}, declared).reset == "earliest"
    assert "'newest' is neither earliest nor latest" in caplog.text
    assert KafkaSource("kafka://t", {"auto.offset.reset": "Latest"}, declared).reset == "latest"


@pytest.mark.parametrize(
    ("strategy", "pauses"),
    [
        ("fixed", [2, 2, 2, 2, 2]),
        ("linear", [2, 4, 6, 8, 10]),
        ("exponential", [2, 3, 4.5, 6.75, 10.125]),
    ],
)
def test_pauses(strategy: str, pauses: list[float]) -> None:
    """On a clock that is moved by hand; the last pause is what is left of the time."""
    now = [100.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    def never() -> None:
        raise TopicMissing("there is no topic")

    total = sum(pauses)
    patience = Patience(total + 1, 2.0, strategy)  # type: ignore[arg-type]
    with pytest.raises(TopicMissing):
        patience.wait_for(never, clock=lambda: now[0], sleep=sleep)
    assert slept == [*pauses, 1.0]
    assert Patience(9, 50, "linear", longest=120).pause(3) == 120


def test_retries_are_counted_by_kind() -> None:
    now, issues = [0.0], Issues()

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def failing(*errors: Error) -> Callable[[], str]:
        left = list(errors)

        def work() -> str:
            if left:
                raise left.pop(0)
            return "there"

        return work

    def wait(work: Callable[[], str], *on: type[Error]) -> str:
        return Patience(10, 4, "fixed").wait_for(
            work, on=on, issues=issues, clock=lambda: now[0], sleep=sleep
        )

    missing, network = TopicMissing("no topic"), NetworkIssue("no broker")
    assert wait(failing(missing, network)) == "there"
    with pytest.raises(NetworkIssue):
        wait(failing(*[network] * 9))
    with pytest.raises(AuthenticationIssue):
        wait(failing(AuthenticationIssue("no")))
    with pytest.raises(TopicMissing):
        wait(failing(missing), ConnectionLost)
    assert wait(failing(network), ConnectionLost) == "there"
    assert str(issues) == (
        "authentication: 0 retries, 0 successes, 1 failures; network: 5 retries, 2 successes, 1 failures;"
        " topic_missing: 1 retries, 0 successes, 1 failures"
    )
    assert (issues + issues).retries == 2 * issues.retries == 12


def test_retry_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = Schema((Column("id", pa.int64()),))
    monkeypatch.setenv("MILLPOND_RETRY_STRATEGY", "linear")
    monkeypatch.setenv("MILLPOND_RETRY_INTERVAL_SECS", "3")
    monkeypatch.setenv("MILLPOND_RETRY_MULTIPLIER", "4")
    monkeypatch.setenv("MILLPOND_RETRY_MAX_DELAY_SECS", "50")
    assert KafkaSource("kafka://t", {}, declared)._patience == Patience(0.0, 3.0, "linear", 4.0, 50.0)
    values = {"topic.retry.strategy": "fixed", "topic.retry.interval": 1.0}
    assert KafkaSource("kafka://t", values, declared)._patience == Patience(0.0, 1.0, "fixed", 4.0, 50.0)


def test_where_the_connector_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "spark-sql-kafka" in connector_settings(())["spark.jars"]
    monkeypatch.setenv("MILLPOND_JARS", str(tmp_path))
    assert connector_settings(()) == {}
    assert "spark-sql-kafka" in connector_settings({"kafka"})["spark.jars.packages"]


@pytest.mark.slow
def test_without_the_connector_it_is_said_how_to_get_it(kafka: Kafka, tmp_path: Path) -> None:
    code = (
        "from millpond import App, Error\n"
        "App('CREATE STREAM a (id INT); CREATE TABLE t AS SELECT id FROM a')\n"
        f"try: App(\"CREATE STREAM s (id INT) WITH ('connector' = '{uri(kafka, new_topic(kafka))}');"
        ' CREATE TABLE u AS SELECT id FROM s")\n'
        "except Error as error: print(type(error).__name__, error)"
    )
    environment = os.environ | {"MILLPOND_JARS": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment
    )
    assert "ConnectorMissing" in done.stdout and "millpond jars kafka" in done.stdout, done.stderr


_SCHEMA = Schema(
    (Column("id", pa.int64()), Column("name", pa.string()), Column("price", pa.decimal128(10, 2)))
)


def test_json_messages_each_spoil_only_themselves() -> None:
    good = [
        b'{"id": 1, "name": "a", "price": 1.25}',
        b'{"id": 2,\n "name": "b"}',
        b' {"ID": 9, "more": [1]} ',
    ]
    bad = [
        b"{oops",
        b'{"id": "x"}',
        b"[1]",
        b"",
        b"\xff\xfe",
        b'{"id": 3}{"id": 4}',
        b'{"id":',
        b"null",
        b"7",
    ]
    values = [good[0], *bad[:4], None, good[1], *bad[4:], good[2]]
    found = JsonMessages(_SCHEMA, {}).decode(pa.array(values, pa.binary()))
    assert [r["id"] for r in found.rows.to_pylist()] == [1, None, 2, 9]
    assert found.rows.to_pylist()[0]["price"] == Decimal("1.25")
    assert found.bad == [values.index(b) for b in bad] and len(found.reasons) == len(bad)


def test_a_bad_message_among_many() -> None:
    values = [b'{"id": %d}' % i for i in range(50_000)]
    values[12_345] = b"{"
    found = JsonMessages(_SCHEMA, {}).decode(pa.array(values, pa.binary()))
    assert found.bad == [12_345] and found.rows.num_rows == 49_999
    assert found.rows.column(0)[12_345].as_py() == 12_346


def test_csv_and_text_messages() -> None:
    found = CsvMessages(_SCHEMA, {}).decode(
        pa.array([b"1,a,2.50", b'2,"x,y",', b"3", b"z,b,1", None], pa.binary())
    )
    assert [(r["id"], r["name"]) for r in found.rows.to_pylist()] == [(1, "a"), (2, "x,y"), (None, None)]
    assert found.bad == [2, 3]
    text = TextMessages(TextMessages.discover([], {}), {}).decode(
        pa.array([b"ok", b"\xff", None], pa.binary())
    )
    assert text.rows.to_pylist() == [{"value": "ok"}, {"value": None}] and text.bad == [1]
