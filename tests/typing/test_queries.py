"""Whole queries: both engines give the same rows, types and order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millpond.query.duck import to_duckdb
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.parse import parse_one_statement
from millpond.sql.render.duckdb import Unrenderable, explain_error
from millpond.sql.resolve import Resolved, Resolver
from millpond.sql.statements import Select
from millpond.types import Column, Schema, normal

ORDERS = """(1, 10, 12.50, 3, 1.5D, TIMESTAMP'2024-01-01 10:00:00', 'a'),
(2, 10, 7.25, NULL, 2.5D, TIMESTAMP'2024-01-01 11:00:00', NULL),
(3, 20, 100.00, 1, double('nan'), TIMESTAMP'2024-01-02 09:30:00', 'b'),
(4, NULL, 0.01, 5, -0.0D, NULL, 'a'),
(5, 30, NULL, 2, NULL, TIMESTAMP'2024-01-03 00:00:00', ''),
(6, 20, 33.33, 7, 8.25D, TIMESTAMP'2024-01-02 12:00:00', 'c')"""
CUSTOMERS = (
    """(10, 'Ann', 'north', 1L), (20, 'Bob', 'south', 2L), (40, 'Cy', NULL, 3L), (50, 'Di', 'north', NULL)"""
)
TABLES = {
    "orders": f"""SELECT id, cust, CAST(amount AS DECIMAL(10,2)) AS amount, qty, price, placed, note
        FROM VALUES {ORDERS} AS v(id, cust, amount, qty, price, placed, note)""",
    "customers": f"SELECT cid, name, region, rank FROM VALUES {CUSTOMERS} AS v(cid, name, region, rank)",
    "nothing": "SELECT CAST(1 AS INT) AS nid WHERE false",
}

SAME = (Path(__file__).parent / "queries.txt").read_text(encoding="utf-8").splitlines()

RAISES = {
    "SELECT id / (qty - 2) AS x FROM orders": "division by zero",
    "SELECT CAST(note AS INT) AS x FROM orders": "cannot cast 'a' to INT",
    "SELECT id + 2147483647 AS x FROM orders": "overflow in addition",
    "SELECT (SELECT c.name FROM customers c WHERE c.region = 'north') AS x FROM orders": "scalar subquery returned",
    "SELECT o.id, (SELECT c.name FROM customers c WHERE c.cid > o.cust) AS x FROM orders o": "scalar subquery returned",
    "SELECT SUM(rank * 4611686018427387904) AS x FROM customers": "overflow in multiplication",
    "SELECT CAST(amount AS DECIMAL(3,2)) AS x FROM orders": "out of the range",
    "SELECT ARRAY(1)[id] AS x FROM orders": "an array index is out of range",
}

REFUSED = (
    "SELECT rand() AS r FROM orders",
    "SELECT explode(array(id)) AS r FROM orders",
    "SELECT uuid() AS r FROM orders",
    "SELECT CAST(price AS STRING) AS r FROM orders",
    "SELECT id FROM orders LATERAL VIEW explode(array(1)) v AS x",
)


@pytest.fixture(scope="session")
def tables(engines: Any) -> dict[str, pa.Table]:
    found = {}
    for name, text in TABLES.items():
        frame = engines.spark.sql(text)
        frame.createOrReplaceTempView(name)
        found[name] = frame.toArrow()
    return found


def resolver(tables: dict[str, pa.Table]) -> Resolver:
    catalog = Catalog()
    for name, table in tables.items():
        columns = tuple(Column(f.name, normal(f.type)) for f in table.schema)
        catalog.add(Relation(name, "table", Schema(columns)))
    return Resolver(catalog)


def resolve(tables: dict[str, pa.Table], sql: str) -> Resolved:
    statement = parse_one_statement(sql)
    assert isinstance(statement, Select)
    used = resolver(tables)
    resolved = used.resolve(statement.query.expression)
    if used.errors:
        raise used.errors[0]
    return resolved


def views(resolved: Resolved, tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    return {i.view: tables[i.relation.name] for i in resolved.inputs}


def _any_zero(value: Any) -> Any:
    """Which of 0.0 and -0.0 stands for a group is open."""
    return value + 0.0 if isinstance(value, float) else value


@pytest.mark.parametrize("sql", SAME)
def test_same_rows(engines: Any, tables: dict[str, pa.Table], sql: str) -> None:
    theirs = engines.spark.sql(sql).toArrow()
    resolved = resolve(tables, sql)
    rendered = to_duckdb(resolved)
    ours = engines.connected(rendered, views(resolved, tables)).sql(rendered).to_arrow_table()
    assert ours.column_names == theirs.column_names
    assert [normal(f.type) for f in ours.schema] == [normal(f.type) for f in theirs.schema], rendered
    a, b = ([tuple(map(_any_zero, r.values())) for r in t.to_pylist()] for t in (ours, theirs))
    if "ORDER BY" not in sql.rsplit(")", 1)[-1]:
        a, b = sorted(a, key=repr), sorted(b, key=repr)
    assert engines.same(a, b), f"{rendered}\n{a}\n{b}"


@pytest.mark.parametrize("sql", RAISES)
def test_both_raise(engines: Any, tables: dict[str, pa.Table], sql: str) -> None:
    with pytest.raises(Exception):  # noqa: B017
        engines.spark.sql(sql).toArrow()
    resolved = resolve(tables, sql)
    with pytest.raises(duckdb.Error) as caught:
        rendered = to_duckdb(resolved)
        engines.connected(rendered, views(resolved, tables)).sql(rendered).to_arrow_table()
    explained = explain_error(caught.value)
    assert explained is not None
    assert RAISES[sql] in explained[0]


@pytest.mark.parametrize("sql", REFUSED)
def test_goes_to_spark(engines: Any, tables: dict[str, pa.Table], sql: str) -> None:
    with pytest.raises(Unrenderable):
        to_duckdb(resolve(tables, sql))


def test_in_with_nulls_is_null_as_a_value(engines: Any, tables: dict[str, pa.Table]) -> None:
    sql = "SELECT o.id, o.qty IN (SELECT c.rank FROM customers c) AS b FROM orders o ORDER BY o.id"
    resolved = resolve(tables, sql)
    rendered = to_duckdb(resolved)
    found = engines.connected(rendered, views(resolved, tables)).sql(rendered).to_arrow_table()
    assert found["b"].to_pylist() == [True, None, True, None, True, None]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT SUM(note) AS x FROM orders", "SUM does not take STRING"),
        ("SELECT AVG(qty > 1) AS x FROM orders", "AVG does not take BOOLEAN"),
        ("SELECT STDDEV(note) AS x FROM orders", "STDDEV does not take STRING"),
        ("SELECT id + ARRAY(1) AS x FROM orders", '"+" does not take INT and ARRAY<INT>'),
        ("SELECT ARRAY(note) = ARRAY(id) AS x FROM orders", '"=" does not take ARRAY<STRING> and ARRAY<INT>'),
        ("SELECT MAX_BY(id, MAP('a', id)) AS x FROM orders", "MAX_BY does not take MAP<STRING, INT>"),
        ("SELECT (id > 1) + 1 AS x FROM orders", '"+" does not take BOOLEAN and INT'),
        ("SELECT id = ARRAY(1) AS x FROM orders", '"=" does not take INT and ARRAY<INT>'),
        ("SELECT (id > 1) = 1 AS x FROM orders", '"=" does not take BOOLEAN and INT'),
        ("SELECT COALESCE(placed, 1) AS x FROM orders", "COALESCE does not take TIMESTAMP and INT"),
        (
            "SELECT id AS x FROM orders UNION SELECT placed FROM orders",
            'UNION: column "x" is INT on the left, TIMESTAMP on the right',
        ),
    ],
)
def test_mismatches(tables: dict[str, pa.Table], sql: str, message: str) -> None:
    statement = parse_one_statement(sql)
    assert isinstance(statement, Select)
    used = resolver(tables)
    used.resolve(statement.query.expression)
    assert message in [error.message for error in used.errors]
