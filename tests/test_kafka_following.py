"""Tables over topics: loaded first, then following; topics whose records go, or that go themselves."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from millpond import App
from millpond.errors import TopicMissing, TopicReplaced
from millpond.loading.progress import Progress
from tests.servers import Kafka, Servers
from tests.test_kafka import new_topic, orders, uri


@pytest.fixture
def kafka(servers: Servers) -> Kafka:
    return servers.kafka


def until(done: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def count(app: App, table: str) -> int:
    return int(app.sql(f"SELECT COUNT(*) AS n FROM {table}").rows()[0]["n"])


def described(app: App, table: str) -> dict[str, str]:
    return {r["property"]: r["value"] for r in app.sql(f"DESCRIBE EXTENDED {table}").rows()}


def query(app: App, name: str) -> dict[str, object]:
    return next(r for r in app.sql("SHOW QUERIES").rows() if r["name"] == name)


@pytest.mark.usefixtures("spark")
def test_a_table_is_loaded_before_those_who_need_it_start(kafka: Kafka, tmp_path: Path) -> None:
    users, clicks = new_topic(kafka, 2), new_topic(kafka)
    kafka.produce(users, [(f"{i}", json.dumps({"id": i, "name": f"n{i}"})) for i in range(5000)])
    kafka.produce(clicks, [json.dumps({"n": i, "id": i}) for i in range(100)])
    sql = f"""
        CREATE STREAM users (id BIGINT, name STRING)
          WITH ('connector' = '{uri(kafka, users)}', 'batch.max.rows' = '1000');
        CREATE STREAM clicks (n BIGINT, id BIGINT) WITH ('connector' = '{uri(kafka, clicks)}');
        CREATE TABLE known (PRIMARY KEY (id)) AS SELECT id, name FROM users;
        CREATE TABLE joined AS SELECT c.n, k.name FROM clicks c LEFT JOIN known k ON c.id = k.id;
    """
    seen: list[Progress] = []
    waited: list[bool] = []
    states: list[str] = []

    def note(progress: Progress) -> None:
        seen.append(progress)
        states.append(app.ready().state)
        waited.append("table:joined" in app._runtime.runner.starter.needed())
        states.append(app.table("known").health_check().status)

    with App(sql, state=tmp_path / "state", _defer=True) as app:
        app._on_progress = note
        app._start()
        app.drain(120)
        assert count(app, "joined") == 100 and app.sql("SELECT COUNT(name) AS n FROM joined").rows() == [
            {"n": 100}
        ]
        known = [p for p in seen if p.table == "known"]
        assert [p.rows for p in known] == sorted(p.rows for p in known) and len(known) >= 3
        assert (known[0].rows, known[0].of, known[0].finished) == (0, 5000, False)
        assert (known[-1].rows, known[-1].of, known[-1].finished) == (5000, 5000, True)
        assert all(waited[: len(known) - 1]) and {"loading"} <= set(states)
        assert app.ready() and app.table("known").health_check().status == "healthy"
        stats = app.table("known").get_stats()
        assert stats.source == "kafka" and stats["lag"] == {"0": 0, "1": 0} and stats["lost"] == 0
        app.sql("PAUSE QUERY known")
        kafka.produce(users, [(None, '{"id": 1, "name": "x"}', 1)] * 3)
        assert app.table("known").get_stats()["lag"] == {"0": 0, "1": 3}
        assert described(app, "known")["lag of partition 1"] == "3"
        assert query(app, "table:known")["lag"] == 3
        app.sql("RESUME QUERY known")
        app.drain(120)
        assert app.table("known").get_stats()["lag"] == {"0": 0, "1": 0}


@pytest.mark.usefixtures("spark")
def test_records_that_retention_removed_are_counted(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = new_topic(kafka, 2)
    kafka.produce(topic, [(None, f'{{"id": {i}}}', i % 2) for i in range(20)])
    sql = f"""
        CREATE STREAM s (id BIGINT) WITH ('connector' = '{uri(kafka, topic)}');
        CREATE TABLE t AS SELECT id FROM s;
    """
    with App(sql, state=tmp_path / "state") as app:
        app.drain(120)
        assert count(app, "t") == 20
    kafka.produce(topic, [(None, f'{{"id": {i}}}', i % 2) for i in range(20, 40)])
    admin = AdminClient({"bootstrap.servers": kafka.brokers})
    for done in admin.delete_records([TopicPartition(topic, 0, 14), TopicPartition(topic, 1, 11)]).values():
        done.result(30)
    with caplog.at_level(logging.WARNING, "millpond"), App(sql, state=tmp_path / "state") as app:
        app.drain(120)
        assert count(app, "t") == 35
        assert query(app, "table:t")["lost"] == 5 and described(app, "t")["lost"] == "5"
        assert "5 rows of kafka://" in caplog.text and "removed before they were read" in caplog.text
        # One that begins now has lost nothing: it was never promised more.
        app.sql("CREATE TABLE later AS SELECT id FROM s")
        app.drain(120)
        assert count(app, "later") == 15 and query(app, "table:later")["lost"] == 0


@pytest.mark.usefixtures("spark")
def test_compaction_leaves_gaps(kafka: Kafka) -> None:
    topic = new_topic(
        kafka,
        **{
            "cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "100",
        },
    )  # fmt: skip
    kafka.produce(topic, [("a", f'{{"id": {i}}}') for i in range(50)])
    time.sleep(0.3)
    kafka.produce(topic, [("b", '{"id": 100}')])
    until(lambda: len(kafka.consume(topic)) < 51)
    left = len(kafka.consume(topic))
    with App(
        f"CREATE TABLE t (id BIGINT) AS SELECT id FROM {uri(kafka, topic)} WITH ('primary.key' = '')"
    ) as app:
        app.drain(120)
        assert count(app, "t") == left and app.ready()
        assert app.table("t").get_stats()["lag"] == {"0": 0} and query(app, "table:t")["lost"] == 0


@pytest.mark.usefixtures("spark")
def test_a_topic_that_is_deleted_fails_its_queries_alone(kafka: Kafka) -> None:
    gone, other = new_topic(kafka), new_topic(kafka)
    for topic in (gone, other):
        kafka.produce(topic, orders(range(10)))
    with App(f"""
        CREATE STREAM gone (id BIGINT) WITH ('connector' = '{uri(kafka, gone)}');
        CREATE STREAM other (id BIGINT) WITH ('connector' = '{uri(kafka, other)}');
        CREATE TABLE a AS SELECT id FROM gone WITH ('primary.key' = '');
        CREATE TABLE b AS SELECT id FROM other WITH ('primary.key' = '');
    """) as app:
        app.drain(120)
        kafka.delete(gone)
        until(lambda: query(app, "table:a")["state"] == "failed")
        with pytest.raises(TopicMissing, match=f'there is no topic "{gone}"'):
            app.drain()
        assert app.table("a").health_check().status == "stale" and count(app, "a") == 10
        assert "topic_missing: 0 retries, 0 successes, 1 failures" in described(app, "a")["issues"]
        kafka.produce(other, orders(range(10, 20)))
        until(lambda: count(app, "b") == 20)
        assert query(app, "table:b")["state"] == "running"


@pytest.mark.usefixtures("spark")
def test_a_topic_that_is_made_again(kafka: Kafka, tmp_path: Path) -> None:
    """It is waited for; then the query fails, and goes on with the new topic when it is told to, or by itself."""
    topic = new_topic(kafka)
    kafka.produce(topic, orders(range(10)))
    wait = "'topic.wait.timeout' = '100s', 'topic.retry.interval' = '300ms', 'topic.retry.strategy' = 'fixed'"
    sql = f"""
        CREATE STREAM strict (id BIGINT) WITH ('connector' = '{uri(kafka, topic)}', {wait});
        CREATE STREAM easy (id BIGINT)
          WITH ('connector' = '{uri(kafka, topic)}', {wait}, 'topic.recreated' = 'restart');
        CREATE TABLE a AS SELECT id FROM strict WITH ('primary.key' = '');
        CREATE TABLE b AS SELECT id FROM easy WITH ('primary.key' = '');
    """
    with App(sql, state=tmp_path / "state") as app:
        app.drain(120)
        kafka.delete(topic)
        until(lambda: {query(app, f"table:{t}")["state"] for t in "ab"} == {"retrying"})
        assert "there is no topic" in str(query(app, "table:a")["error"])
        kafka.create(topic)
        kafka.produce(topic, orders(range(100, 115)))
        until(lambda: count(app, "b") == 25)
        until(lambda: query(app, "table:a")["state"] == "failed")
        retries = query(app, "table:b")["retries"]
        assert isinstance(retries, int) and retries >= 1
        assert "topic_missing: " in described(app, "b")["issues"]
    with App(sql, state=tmp_path / "state") as app:
        until(lambda: query(app, "table:a")["state"] == "failed")
        with pytest.raises(TopicReplaced, match="deleted and created again") as caught:
            app.drain()
        assert "START QUERY" in str(caught.value)
        app.sql("START QUERY a")
        app.drain(120)
        assert count(app, "a") == 25 and count(app, "b") == 25
    with App(sql, state=tmp_path / "state") as app:
        kafka.produce(topic, orders(range(115, 120)))
        app.drain(120)
        assert count(app, "a") == 30 and count(app, "b") == 30
