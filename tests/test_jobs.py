"""Spark's jobs have the name of the statement that they are for, and a scheduler pool of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond import App
from millpond.engine.jobs import named, working_for
from tests.spark_jobs import Jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL = """
CREATE STREAM picks (id BIGINT, qty INT);
CREATE TABLE doubled WITH ('engine' = 'spark') AS SELECT id, qty * 2 AS qty FROM picks WHERE qty > 1;
CREATE TABLE totals WITH ('engine' = 'spark') AS SELECT qty, COUNT(*) AS n FROM picks GROUP BY qty;
"""


def test_jobs_have_the_name_and_the_pool_of_their_statement(spark: SparkSession) -> None:
    jobs = Jobs(spark)
    with App(SQL) as app:
        app.send("picks", [{"id": i, "qty": i % 5} for i in range(20_000)])
        app.drain(120)
        assert len(app.table("totals")) == 5
        names = {q["name"] for q in app.sql("SHOW QUERIES").rows()}
    made = {(s.statement, s.pool) for s in jobs.stages}
    assert names == {"table:doubled", "table:totals"}
    assert {(name, name) for name in names} <= made
    assert {pool for said, pool in made if said not in names} <= {"default"}


def test_afterwards_the_thread_is_as_it_was(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setLocalProperty("spark.job.description", "mine")
    try:
        with working_for("totals"), named(spark):
            assert context.getLocalProperty("spark.scheduler.pool") == "totals"
            assert context.getLocalProperty("spark.job.description") == "totals"
        assert context.getLocalProperty("spark.scheduler.pool") is None
        assert context.getLocalProperty("spark.job.description") == "mine"
        with named(spark):
            assert context.getLocalProperty("spark.job.description") == "mine"
    finally:
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
