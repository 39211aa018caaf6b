"""What Spark's executors do of a large batch, by what Spark itself counts: rows read, jobs, bytes to the driver."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from millpond import App
from millpond.connectors.kafka.source import KafkaSource
from millpond.engine.carrier import Carrier
from tests.engines import too_large
from tests.servers import Kafka, Servers
from tests.spark_jobs import Jobs
from tests.test_kafka import new_topic, uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 200_000
SQL = """
CREATE STREAM sales (id BIGINT, shop BIGINT, price DOUBLE);
CREATE TABLE shops (shop BIGINT PRIMARY KEY, name STRING);
"""
QUERIES = {
    "a join": "CREATE TABLE t AS SELECT s.id, h.name FROM sales s JOIN shops h ON s.shop = h.shop",
    "an aggregate": "CREATE TABLE t AS SELECT shop, COUNT(*) AS n, SUM(price) AS total FROM sales GROUP BY shop",
    "a filter": "CREATE TABLE t AS SELECT id FROM sales WHERE price > 0.99",
}


@pytest.fixture
def kafka(servers: Servers) -> Kafka:
    return servers.kafka


def sales() -> pa.Table:
    random = np.random.default_rng(5)
    return pa.table(
        {"id": np.arange(ROWS), "shop": random.integers(0, 100, ROWS), "price": random.random(ROWS)}
    )


@pytest.mark.parametrize("kind", QUERIES)
def test_executors_read_what_was_sent_in_one_job_for_a_batch(spark: SparkSession, kind: str) -> None:
    with App(SQL) as app:
        app.table("shops").bulk_insert(
            pa.table({"shop": np.arange(100), "name": [f"s{i}" for i in range(100)]})
        )
        app.send("sales", sales())
        jobs = Jobs(spark)
        app.sql(QUERIES[kind])
        app.drain(120)
        (query,) = app.sql("SHOW QUERIES").rows()
        result = app.sql("SELECT COUNT(*) AS n FROM t").rows()[0]["n"]
    stages = jobs.of("table:t")
    assert (query["process_rows"], query["spark_rows"]) == (0, ROWS)
    assert sum(s.read for s in stages) == ROWS
    assert len({s.job for s in stages}) <= 2 * query["spark_batches"]  # with broadcasts
    returned = sum(s.result for s in stages)
    if kind == "an aggregate":
        assert result == 100 and returned < 200_000, "only groups reach the driver"
    if kind == "a filter":
        assert returned < 8 * ROWS * 0.02 + 100_000, "only results reach the driver"


def test_executors_alone_decode_a_topic(
    spark: SparkSession, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KafkaSource, "decode", None)
    topic = new_topic(kafka, 2)
    kafka.produce(topic, [json.dumps({"id": i, "shop": i % 100}) for i in range(30_000)])
    jobs = Jobs(spark)
    sql = f"""
        CREATE STREAM sales (id BIGINT, shop BIGINT) WITH ('connector' = '{uri(kafka, topic)}');
        CREATE TABLE t AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;
    """
    with App(sql) as app:
        app.drain(120)
        (query,) = app.sql("SHOW QUERIES").rows()
        assert app.sql("SELECT SUM(n) AS n, COUNT(*) AS g FROM t").rows() == [{"n": 30_000, "g": 100}]
    stages = jobs.of("table:t")
    assert query["spark_rows"] == 30_000
    assert (
        len({s.job for s in stages}) <= 2 * query["spark_batches"]
    )  # Spark plans the rest when it knows the groups
    assert 0 < sum(s.result for s in stages) < 200_000


def test_results_that_are_too_large_come_in_halves(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = too_large(monkeypatch, 1)
    with App(SQL) as app:
        app.send("sales", sales())
        app.sql(QUERIES["a filter"])
        app.drain(120)
        (query,) = app.sql("SHOW QUERIES").rows()
        assert (query["spark_batches"], query["spark_rows"]) == (2, ROWS) == (len(asked) - 1, ROWS)
        expected = int((sales()["price"].to_numpy() > 0.99).sum())
        assert app.sql("SELECT COUNT(*) AS n FROM t").rows() == [{"n": expected}]


def test_no_session_is_made_while_spark_runs_a_batch(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor is a source registered: all batches of a stream, also those that are cut, have what was made before."""
    from pyspark.sql import SparkSession as Session
    from pyspark.sql.datasource import DataSource, DataSourceRegistration

    running = threading.local()
    batches: list[int] = []
    made: list[tuple[str, bool]] = []
    run, new, register = Carrier._batch, Session.newSession, DataSourceRegistration.register

    def batch(self: Carrier, frame: DataFrame, number: int) -> None:
        batches.append(number)
        running.now = True
        try:
            run(self, frame, number)
        finally:
            running.now = False

    def new_session(self: Session) -> Session:
        made.append(("session", getattr(running, "now", False)))
        return new(self)

    def registered(self: DataSourceRegistration, source: type[DataSource]) -> None:
        made.append(("source", getattr(running, "now", False)))
        register(self, source)

    monkeypatch.setattr(Carrier, "_batch", batch)
    monkeypatch.setattr(Session, "newSession", new_session)
    monkeypatch.setattr(DataSourceRegistration, "register", registered)
    for name in range(2):
        (tmp_path / f"{name}.csv").write_text("id\n" + "".join(f"{name * 100 + i}\n" for i in range(100)))
    sql = f"""
        CREATE STREAM s (id BIGINT) WITH ('connector' = 'file://{tmp_path}/*.csv', 'batch.max.rows' = '1');
        CREATE TABLE t AS SELECT id FROM s;
    """
    with App(sql, engine="spark") as app:
        app.drain(120)
        assert app.sql("SELECT COUNT(*) AS n, SUM(id) AS x FROM t").rows() == [{"n": 200, "x": 19_900}]
    assert len(batches) > 1
    assert ("source", False) in made and ("session", False) in made
    assert not [what for what, in_batch in made if in_batch]
