"""Columns of topics: discovered, kept, and followed when fields come, change and go."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from millpond import App
from tests.servers import Kafka, Servers
from tests.test_kafka import new_topic, uri


@pytest.fixture
def kafka(servers: Servers) -> Kafka:
    return servers.kafka


def described(app: App, name: str) -> dict[str, str]:
    return {r["column"]: r["type"] for r in app.sql(f"DESCRIBE {name}").rows() if r["column"][0] != "_"}


@pytest.mark.usefixtures("spark")
def test_a_restart_sees_the_same_columns(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    kafka.produce(topic, ['{"id": 1, "name": "a"}'])
    sql = f"""
        CREATE STREAM s WITH ('connector' = '{uri(kafka, topic)}');
        CREATE TABLE t AS SELECT * FROM {uri(kafka, topic)};
        CREATE TABLE exact (id BIGINT, name STRING) AS SELECT * FROM {uri(kafka, topic)};
        CREATE TABLE n AS SELECT COUNT(*) AS n FROM s;
    """
    columns = {"id": "BIGINT", "name": "STRING"}
    with App(sql, state=tmp_path) as app:
        app.drain(120)
        assert described(app, "s") == described(app, "t") == columns
    # A sample would now find nothing: the topic's records are gone.
    kafka.delete_records(topic)
    with App(sql, state=tmp_path) as app:
        assert described(app, "s") == described(app, "t") == columns
        kafka.produce(topic, ['{"id": 2, "name": "b"}'])
        app.drain(120)
        assert app.sql("SELECT * FROM t ORDER BY id").rows() == [
            {"id": 1, "name": "a"},
            {"id": 2, "name": "b"},
        ]
        assert app.sql("SELECT (SELECT n FROM n) AS n, COUNT(*) AS e FROM exact").rows() == [{"n": 2, "e": 2}]
        # What nobody reads any more is looked at anew.
        app.sql("DROP TABLE t; DROP TABLE exact; DROP TABLE n; DROP STREAM s")
        kafka.delete_records(topic)
        kafka.produce(topic, ['{"id": "x"}'])
        app.sql(f"CREATE TABLE u AS SELECT * FROM {uri(kafka, topic)}")
        assert described(app, "u") == {"id": "STRING"}


def test_an_empty_topic_is_waited_for(kafka: Kafka) -> None:
    topic = new_topic(kafka)

    def first() -> None:
        time.sleep(0.5)
        kafka.produce(topic, ['{"id": 1}'])

    thread = threading.Thread(target=first)
    thread.start()
    wait = "'topic.wait.timeout' = '60s', 'topic.retry.interval' = '200ms'"
    with App(f"CREATE STREAM s WITH ('connector' = '{uri(kafka, topic)}', {wait})") as app:
        assert described(app, "s") == {"id": "BIGINT"}
    thread.join()
