"""The two that answer: Spark over the rows of some tables, and an app that has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.types import StructType

from millpond import App
from millpond.engine.collect import collect
from tests.oracle.answers import Answer, answer_of
from tests.oracle.shapes import INDEXES, SCHEMAS, World
from tests.oracle.shapes.tables import Change, columns_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.maxPlanStringLength": "100",
}
"""A query over ten rows is planned, not compiled."""

_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]*")


@contextmanager
def planned(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark, whose new sessions, those of apps too, have these settings."""
    conf = spark.sparkContext._jsc.sc().conf()
    before = {name: conf.get(name, "") for name in SETTINGS}
    for name, value in SETTINGS.items():
        conf.set(name, value)
    try:
        yield spark
    finally:
        for name, value in before.items():
            conf.set(name, value) if value else conf.remove(name)


class Oracle:
    """Spark, in a session of its own."""

    def __init__(self, spark: SparkSession):
        self._session = spark.newSession()

    def show(self, tables: Mapping[str, pa.Table]) -> None:
        """Gives it the rows of tables."""
        for name, table in tables.items():
            frame = self._session.createDataFrame(table) if table.num_rows else self._empty(name)
            casts = [f"CAST({c} AS {t}) AS {c}" for c, t in SCHEMAS[name].items()]
            frame.selectExpr(*casts).createOrReplaceTempView(name)

    def _empty(self, name: str) -> DataFrame:
        """No rows, by a relation that Spark does not know to be empty, and reads without Python."""
        java, context = self._session._jsparkSession, self._session.sparkContext
        columns = StructType.fromDDL(", ".join(f"{c} {t}" for c, t in SCHEMAS[name].items()))
        schema = java.parseDataType(columns.json())
        return DataFrame(java.createDataFrame(context._jsc.emptyRDD(), schema), self._session)

    def ask(self, text: str) -> Answer:
        try:
            frame = self._session.sql(text)
        except Exception as error:
            return Answer(error=said(error), when="check")
        try:
            return answer_of(collect(frame))
        except Exception as error:
            return Answer(error=said(error), when="run")


def said(error: Exception) -> str:
    """What an error says from its condition on, or else its cause."""
    found = _CONDITION.search(str(error))
    if found:
        return found[0][:300]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = next((line for line in lines if line.startswith("Caused by:")), "")
    return (cause or (lines or [repr(error)])[0])[:300]


@contextmanager
def app_with(world: World, *, indexes: bool = False) -> Iterator[App]:
    """An app with the tables of a world, as they begin."""
    made = [f"CREATE TABLE {name} ({columns_sql(name)})" for name in SCHEMAS]
    if indexes:
        made += [
            f"CREATE INDEX i{i}_{name} ON {name} ({c})"
            for name, listed in INDEXES.items()
            for i, c in enumerate(listed)
        ]
    with App("; ".join(made)) as app:
        for name, rows in world.rows.items():
            app.table(name).bulk_insert(rows)
        yield app


def change(app: App, changes: Iterable[Change]) -> None:
    for made in changes:
        if isinstance(made, str):
            app.sql(made)
        else:
            app.table(made[0]).bulk_insert(made[1])


def tables_of(app: App) -> dict[str, pa.Table]:
    return {name: app.table(name).to_arrow() for name in SCHEMAS}
