"""The two that answer: Spark over the rows of some tables, and an app that has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond import App
from tests.oracle.answers import Answer, answer_of
from tests.oracle.shapes import SCHEMAS, World
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


class Oracle:
    """Spark, in a session of its own."""

    def __init__(self, spark: SparkSession):
        self._session = spark.newSession()
        for name, value in SETTINGS.items():
            self._session.conf.set(name, value)

    def show(self, tables: Mapping[str, pa.Table]) -> None:
        """Gives it the rows of tables."""
        for name, table in tables.items():
            schema = ", ".join(f"{c} {t}" for c, t in SCHEMAS[name].items())
            frame = (
                self._session.createDataFrame(table)
                if table.num_rows
                else self._session.createDataFrame([], schema)
            )
            casts = [f"CAST({c} AS {t}) AS {c}" for c, t in SCHEMAS[name].items()]
            frame.selectExpr(*casts).createOrReplaceTempView(name)

    def ask(self, text: str) -> Answer:
        try:
            frame = self._session.sql(text)
        except Exception as error:
            return Answer(error=said(error), when="check")
        try:
            return answer_of(frame.toArrow())
        except Exception as error:
            return Answer(error=said(error), when="run")


def said(error: Exception) -> str:
    """The line of an error that names its class."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    found = next((line for line in lines if line.startswith("[") or ": [" in line), "")
    return (found or (lines or [repr(error)])[0])[:300]


@contextmanager
def app_with(world: World) -> Iterator[App]:
    """An app with the tables of a world, as they begin."""
    with App("; ".join(f"CREATE TABLE {name} ({columns_sql(name)})" for name in SCHEMAS)) as app:
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
