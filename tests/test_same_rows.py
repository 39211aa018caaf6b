"""One meaning: a condition finds the same rows by an index, on DuckDB, in each database and on Spark itself.

Spark gets many conditions as columns of one query, as they are written; each other way gets them one by one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from millpond import App, Table
from tests.conditions import COLUMNS, condition, narrowed, rows
from tests.contract.places import FINITE, KINDS, SERVED, Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 300
AT_ONCE = 100
PLACES = [kind for kind in (*KINDS, *SERVED) if kind not in ("memory", "cache", *FINITE)]
"""The rows have NaN and infinities; tests/test_pushdown.py has those that store none."""
Find = Callable[[str], list[int]]


@pytest.fixture(scope="module")
def ways(places: Places) -> Iterator[dict[str, Find]]:
    """Each way to find the ids of rows."""
    with ExitStack() as stack:
        tables = [f"CREATE TABLE t ({COLUMNS})", f"CREATE TABLE n ({COLUMNS.replace(' PRIMARY KEY', '')})"]
        for kind in PLACES:
            place = places.new(kind)
            options = {"extension": place.backend, **place.settings}
            listed = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
            tables.append(f"CREATE TABLE {kind} ({COLUMNS}) WITH ({listed})")
        app = stack.enter_context(App("; ".join(tables)))
        slow = stack.enter_context(App(tables[0], _path="duckdb"))
        for name in ("t", "n", *PLACES):
            app.table(name).bulk_insert(rows(ROWS))
        slow.table("t").bulk_insert(rows(ROWS))

        def asked(app: App, table: str) -> Find:
            return lambda where: [r["id"] for r in app.sql(f"SELECT id FROM {table} WHERE {where}").rows()]

        found = {name: asked(app, name) for name in ("t", "n", *PLACES)}
        found["duckdb"] = asked(slow, "t")
        found["find"] = lambda where: [r["id"] for r in app.table("t").find(where)]
        yield found


@pytest.fixture(scope="module")
def view(spark: SparkSession) -> str:
    """The rows, for Spark."""
    table = Table(COLUMNS)
    table.bulk_insert(rows(ROWS))
    spark.createDataFrame(table.to_arrow()).createOrReplaceTempView("rows_of_conditions")
    return "rows_of_conditions"


def check(spark: SparkSession, view: str, ways: dict[str, Find], seed: int, count: int) -> None:
    chance = random.Random(seed)
    different: list[str] = []
    for start in range(0, count, AT_ONCE):
        made = [condition(chance) if n % 2 else narrowed(chance) for n in range(min(AT_ONCE, count - start))]
        columns = ", ".join(
            f"collect_list(CASE WHEN {where} THEN id END) AS c{n}" for n, where in enumerate(made)
        )
        (expected,) = spark.sql(f"SELECT {columns} FROM {view}").toArrow().to_pylist()
        for n, where in enumerate(made):
            for name, find in ways.items():
                found = sorted(find(where))
                if found != sorted(expected[f"c{n}"]):
                    different.append(f"{name}: {where}: {found}, Spark: {sorted(expected[f'c{n}'])}")
    assert not different, f"{len(different)} with seed {seed}:\n" + "\n".join(different[:10])


@pytest.mark.slow
def test_conditions(spark: SparkSession, view: str, ways: dict[str, Find]) -> None:
    check(spark, view, ways, seed=1, count=AT_ONCE)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_conditions(spark: SparkSession, view: str, ways: dict[str, Find], seed: int) -> None:
    check(spark, view, ways, seed, 1_000)
