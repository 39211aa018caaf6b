"""EXPLAIN says what will really run: what it tells of a statement is compared with who evaluates it then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from millpond import App
from millpond.errors import Error
from millpond.steps import Steps, recording

OUTPUTS = [
    "*",
    "name",
    "id + 1 AS x",
    "COUNT(*)",
    "SUM(qty), MIN(name)",
    "upper(name)",
    "row_number() OVER (ORDER BY id)",
]
CONDITIONS = [
    "",
    "id = 7",
    "id = '7'",
    "id = 3000000000",
    "id = 1.5",
    "id = NULL",
    "id IN (1, 2, 300)",
    "id = 7 AND qty > 3",
    "id = 7 OR qty = 3",
    "name = 'n3'",
    "tier = 'GOLD' AND qty = 3",
    "qty = 3 AND id > 2",
    "id = (SELECT MAX(k) FROM u)",
    "id = 7 AND name LIKE 'n%'",
    "id = :id",
    "name = :name AND qty = 3",
]  # fmt: skip
TAILS = ["", " LIMIT 1", " ORDER BY 1"]
CHANGES = [
    "UPDATE t SET qty = 5 WHERE id = 7",
    "UPDATE t SET qty = qty + 1 WHERE id = 7",
    "UPDATE t SET qty = qty + 1 WHERE id > 95",
    "UPDATE t SET id = -7 WHERE id = 7",
    "UPDATE t SET qty = (SELECT MAX(k) FROM u) WHERE id = 8",
    "DELETE FROM t WHERE id = 9",
    "DELETE FROM t WHERE id = '10'",
    "DELETE FROM t WHERE qty = 3 AND id < 20",
    "INSERT INTO t VALUES (1000, 'x', 'GOLD', 1)",
    "INSERT INTO t VALUES (1001, upper('x'), 'GOLD', 1 + 1)",
    "INSERT INTO t SELECT id + 2000, name, tier, qty FROM t WHERE id = 8",
    "MERGE INTO t USING u ON t.id = u.k WHEN MATCHED THEN UPDATE SET qty = 1",
    "UPSERT INTO t SELECT k, 'x', 'GOLD', 1 FROM u ON t.id = u.k",
]


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    sql = """CREATE TABLE t (id INT PRIMARY KEY, name STRING, tier STRING, qty INT);
        CREATE INDEX by_tier ON t (tier, qty);
        CREATE TABLE u (k INT)"""
    with App(sql) as app:
        rows = [{"id": i, "name": f"n{i % 9}", "tier": "GOLD", "qty": i % 5} for i in range(100)]
        app.table("t").bulk_insert(rows)
        app.sql("INSERT INTO u VALUES (1), (2)")
        yield app


def told(app: App, text: str, params: dict[str, Any] | None) -> str:
    """Who EXPLAIN says evaluates a statement."""
    lines = app.sql(f"EXPLAIN {text}", params).to_arrow().column("plan").to_pylist()
    (said,) = [line.split()[2] for line in lines if line.startswith("evaluated by: ")]
    return str(said)


def executed(app: App, text: str, params: dict[str, Any] | None) -> str:
    """Who evaluated it."""
    with recording(record := Steps()), suppress(Error):
        app.sql(text, params).rows()
    names = {step.name for step in record}
    if "evaluate by Spark" in names:
        return "spark"
    return "duckdb" if "evaluate in process (DuckDB)" in names else "lookup"


def test_queries(app: App) -> None:
    found: dict[str, int] = {}
    for output, condition, tail in product(OUTPUTS, CONDITIONS, TAILS):
        text = f"SELECT {output} FROM t{' WHERE ' if condition else ''}{condition}{tail}"
        params = {k: v for k, v in {"id": 7, "name": "n3"}.items() if f":{k}" in text} or None
        said = told(app, text, params)
        found[said] = found.get(said, 0) + 1
        for _ in range(2):
            assert executed(app, text, params) == said, (text, said)
    assert found["lookup"] > 50 and found["duckdb"] > 50


@pytest.mark.parametrize("text", CHANGES)
def test_changes(app: App, text: str) -> None:
    said = told(app, text, None)
    assert executed(app, text, None) == ("lookup" if said == "values" else said)


def test_inside_of_a_transaction(app: App) -> None:
    """There the rows that only the transaction sees count, which no index has."""
    with app.begin_transaction() as transaction:
        lines = (
            transaction.sql("EXPLAIN SELECT name FROM t WHERE id = 7").to_arrow().column("plan").to_pylist()
        )
        assert "evaluated by: duckdb (in process)" in lines
        with recording(record := Steps()):
            transaction.sql("SELECT name FROM t WHERE id = 7")
        assert "evaluate in process (DuckDB)" in {step.name for step in record}


def test_queries_of_spark(app: App, spark: object) -> None:
    text = "SELECT name, spark_partition_id() AS p FROM t WHERE id = 7"
    assert told(app, text, None) == executed(app, text, None) == "spark"
