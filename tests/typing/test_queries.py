"""Whole queries: both engines give the same rows, types and order."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millpond.errors import TypeMismatch
from millpond.sql.render.duckdb import Unrenderable, explain_error, render
from millpond.types import normal

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

SAME = """
SELECT id, amount FROM orders
SELECT o.id AS k, o.amount * 2 AS a FROM orders AS o WHERE o.qty > 1
SELECT DISTINCT note FROM orders
SELECT DISTINCT note FROM orders ORDER BY note
SELECT id FROM orders ORDER BY qty
SELECT id FROM orders ORDER BY qty DESC
SELECT id FROM orders ORDER BY amount DESC NULLS FIRST, id
SELECT id FROM orders ORDER BY price, id
SELECT id, qty AS q FROM orders ORDER BY 2, 1
SELECT id FROM orders ORDER BY id LIMIT 2
SELECT id FROM orders ORDER BY id LIMIT 2 OFFSET 3
SELECT o.id, c.name FROM orders o JOIN customers c ON o.cust = c.cid
SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.cust = c.cid
SELECT o.id, c.name FROM orders o RIGHT JOIN customers c ON o.cust = c.cid
SELECT o.id, c.name FROM orders o FULL OUTER JOIN customers c ON o.cust = c.cid
SELECT o.id, c.name FROM orders o CROSS JOIN customers c
SELECT o.id, c.name FROM orders o, customers c WHERE o.cust = c.cid AND o.qty + 1 > c.rank
SELECT o.id FROM orders o LEFT SEMI JOIN customers c ON o.cust = c.cid
SELECT o.id FROM orders o LEFT ANTI JOIN customers c ON o.cust = c.cid
SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.cust = c.cid AND o.amount > 10
SELECT o.id, p.id AS other FROM orders o JOIN orders p ON o.cust = p.cust AND o.id < p.id
SELECT cust, COUNT(*) AS n, SUM(qty) AS q, SUM(amount) AS s, AVG(amount) AS a FROM orders GROUP BY cust
SELECT cust, MIN(placed) AS first, MAX(price) AS top, AVG(qty) AS m, AVG(price) AS ap FROM orders GROUP BY cust
SELECT note, COUNT(DISTINCT cust) AS n, COUNT(DISTINCT cust, qty) AS m, SUM(DISTINCT qty) AS q FROM orders GROUP BY note
SELECT COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS a, MAX(note) AS m FROM nothing CROSS JOIN orders
SELECT COUNT(amount) AS n, COUNT(1) AS m, COUNT_IF(qty > 2) AS c FROM orders
SELECT SUM(amount) FILTER (WHERE qty > 2) AS s, COUNT(*) FILTER (WHERE note = 'a') AS n FROM orders
SELECT SUM(100 DIV (qty - 2)) FILTER (WHERE qty <> 2) AS s FROM orders
SELECT STDDEV(amount) AS a, STDDEV_POP(qty) AS b, VARIANCE(qty) AS c, VAR_POP(amount) AS d FROM orders
SELECT MEDIAN(qty) AS a, PERCENTILE(amount, 0.25) AS b, PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY qty) AS c FROM orders
SELECT PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY qty) AS a FROM orders
SELECT CORR(id, qty) AS a, COVAR_POP(id, qty) AS b, COVAR_SAMP(id, qty) AS c FROM orders
SELECT BOOL_AND(qty > 0) AS a, BOOL_OR(qty > 6) AS b, EVERY(qty > 1) AS c FROM orders
SELECT STRING_AGG(note, ',') WITHIN GROUP (ORDER BY id) AS s FROM orders
SELECT APPROX_COUNT_DISTINCT(cust) AS n, MAX_BY(id, amount) AS a, MIN_BY(note, amount) AS b FROM orders
SELECT note, SORT_ARRAY(COLLECT_LIST(qty)) AS l, SORT_ARRAY(COLLECT_SET(cust)) AS s FROM orders GROUP BY note
SELECT SORT_ARRAY(ARRAY_AGG(nid)) AS l FROM nothing
SELECT qty % 2 AS odd, COUNT(*) AS n FROM orders GROUP BY qty % 2
SELECT qty % 2 AS odd, COUNT(*) AS n FROM orders GROUP BY 1
SELECT price AS p, COUNT(*) AS n FROM orders GROUP BY price
SELECT cust, SUM(amount) AS s FROM orders GROUP BY cust HAVING SUM(amount) > 20 AND COUNT(*) > 1
SELECT cust, note, SUM(qty) AS q FROM orders GROUP BY ROLLUP (cust, note)
SELECT cust, note, SUM(qty) AS q FROM orders GROUP BY CUBE (cust, note)
SELECT cust, note, SUM(qty) AS q FROM orders GROUP BY GROUPING SETS ((cust), (note), ())
SELECT SUM(amount) / COUNT(*) AS a, SUM(amount) * 1.19 AS b, SUM(qty) / 3 AS c FROM orders
SELECT id FROM orders UNION ALL SELECT cid FROM customers
SELECT cust AS c FROM orders UNION SELECT cid FROM customers
SELECT id AS c FROM orders UNION ALL SELECT amount FROM orders
SELECT qty AS c FROM orders UNION ALL SELECT rank FROM customers
SELECT id AS c, note AS d FROM orders UNION ALL SELECT rank, 'x' FROM customers ORDER BY c, d LIMIT 5
SELECT cust AS c FROM orders INTERSECT SELECT cid FROM customers
SELECT cust AS c FROM orders EXCEPT SELECT cid FROM customers
SELECT qty AS c FROM orders EXCEPT ALL SELECT nid FROM nothing
SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.cid = o.cust)
SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT * FROM customers c WHERE c.cid = o.cust AND c.region = 'north')
SELECT o.id FROM orders o WHERE o.cust IN (SELECT c.cid FROM customers c)
SELECT o.id FROM orders o WHERE o.cust IN (SELECT c.rank * 10 FROM customers c)
SELECT o.id FROM orders o WHERE o.cust NOT IN (SELECT c.cid FROM customers c)
SELECT o.id FROM orders o WHERE o.qty NOT IN (SELECT c.rank FROM customers c)
SELECT o.id, (SELECT MAX(c.name) FROM customers c WHERE c.cid = o.cust) AS n FROM orders o
SELECT o.id, (SELECT c.name FROM customers c WHERE c.cid = o.cust) AS n FROM orders o
SELECT id FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)
SELECT t.c, t.s FROM (SELECT cust AS c, SUM(qty) AS s FROM orders GROUP BY cust) AS t WHERE t.s > 2
WITH t AS (SELECT cust AS c, SUM(qty) AS s FROM orders GROUP BY cust) SELECT t.c, t.s + 1 AS u FROM t
WITH t(a, b) AS (SELECT cust AS a, qty AS b FROM orders) SELECT t.a, t.b FROM t
SELECT id, ROW_NUMBER() OVER (PARTITION BY cust ORDER BY id DESC) AS n FROM orders
SELECT id, RANK() OVER (ORDER BY note) AS r, DENSE_RANK() OVER (ORDER BY note) AS d FROM orders
SELECT id, PERCENT_RANK() OVER (ORDER BY note) AS r, CUME_DIST() OVER (ORDER BY note) AS d, NTILE(3) OVER (ORDER BY id) AS t FROM orders
SELECT id, LAG(qty) OVER (ORDER BY id) AS a, LEAD(qty, 2, 0) OVER (ORDER BY id) AS b FROM orders
SELECT id, SUM(amount) OVER (PARTITION BY cust ORDER BY id) AS s, AVG(amount) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS a FROM orders
SELECT id, SUM(qty) OVER () AS s, COUNT(*) OVER (PARTITION BY note) AS n FROM orders
SELECT id, SUM(qty) OVER (ORDER BY qty) AS s, SUM(qty) OVER (ORDER BY qty DESC RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS n FROM orders
SELECT id, FIRST_VALUE(note) OVER (ORDER BY id) AS f, LAST_VALUE(note) OVER (ORDER BY id) AS l, NTH_VALUE(note, 2) OVER (ORDER BY id) AS n FROM orders
SELECT id, LAST_VALUE(note) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l FROM orders
SELECT id, FIRST_VALUE(note) IGNORE NULLS OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS l FROM orders
SELECT id, SUM(qty) OVER w AS s FROM orders WINDOW w AS (PARTITION BY cust ORDER BY id)
SELECT id, cust FROM orders QUALIFY ROW_NUMBER() OVER (PARTITION BY cust ORDER BY id) = 1
SELECT id FROM orders WHERE qty > 2 OR note = 'b'
SELECT id, qty > 2 AND 10 / (qty - 2) > 1 AS b FROM orders
SELECT id, qty = 2 OR 10 / (qty - 2) > 1 AS b FROM orders
SELECT id, COALESCE(IF(qty = 2, 0, NULL), 10 DIV (qty - 2)) AS b FROM orders
SELECT id, LAG(note) IGNORE NULLS OVER (ORDER BY id) AS l FROM orders
SELECT 1 AS a, 'x' AS b, 1.50 AS c
""".strip().splitlines()

RAISES = {
    "SELECT id / (qty - 2) AS x FROM orders": "division by zero",
    "SELECT CAST(note AS INT) AS x FROM orders": "cannot cast 'a' to INT",
    "SELECT id + 2147483647 AS x FROM orders": "overflow in addition",
    "SELECT (SELECT c.name FROM customers c WHERE c.region = 'north') AS x FROM orders": "a scalar subquery gave",
    "SELECT o.id, (SELECT c.name FROM customers c WHERE c.cid > o.cust) AS x FROM orders o": "a scalar subquery gave",
    "SELECT SUM(rank * 4611686018427387904) AS x FROM customers": "overflow in multiplication",
    "SELECT CAST(amount AS DECIMAL(3,2)) AS x FROM orders": "out of the range",
    "SELECT ARRAY(1)[id] AS x FROM orders": "cannot cast",
}

REFUSED = (
    "SELECT rand() AS r FROM orders",
    "SELECT current_timestamp() AS r FROM orders",
    "SELECT explode(array(id)) AS r FROM orders",
    "SELECT uuid() AS r FROM orders",
    "SELECT CAST(price AS STRING) AS r FROM orders",
    "SELECT id FROM orders TABLESAMPLE (10 PERCENT)",
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


@pytest.mark.parametrize("sql", SAME)
def test_same_rows(engines: Any, tables: dict[str, pa.Table], sql: str) -> None:
    theirs = engines.spark.sql(sql).toArrow()
    rendered = render(engines.resolve(sql, {n: t.schema for n, t in tables.items()}))
    ours = engines.connection(**tables).sql(rendered).to_arrow_table()
    assert ours.column_names == theirs.column_names
    assert [normal(f.type) for f in ours.schema] == [normal(f.type) for f in theirs.schema], rendered
    a, b = ([tuple(r.values()) for r in t.to_pylist()] for t in (ours, theirs))
    if "ORDER BY" not in sql.rsplit(")", 1)[-1]:
        a, b = sorted(a, key=repr), sorted(b, key=repr)
    assert engines.same(a, b), f"{rendered}\n{a}\n{b}"


@pytest.mark.parametrize("sql", RAISES)
def test_both_raise(engines: Any, tables: dict[str, pa.Table], sql: str) -> None:
    with pytest.raises(Exception):  # noqa: B017
        engines.spark.sql(sql).toArrow()
    rendered = render(engines.resolve(sql, {n: t.schema for n, t in tables.items()}))
    with pytest.raises(duckdb.Error) as caught:
        engines.connection(**tables).sql(rendered).to_arrow_table()
    explained = explain_error(caught.value)
    assert explained is not None
    assert RAISES[sql] in explained[0]


@pytest.mark.parametrize("sql", REFUSED)
def test_goes_to_spark(engines: Any, tables: dict[str, pa.Table], sql: str) -> None:
    with pytest.raises(Unrenderable):
        render(engines.resolve(sql, {n: t.schema for n, t in tables.items()}))


def test_in_with_nulls_is_null_as_a_value(engines: Any, tables: dict[str, pa.Table]) -> None:
    sql = "SELECT o.id, o.qty IN (SELECT c.rank FROM customers c) AS b FROM orders o ORDER BY o.id"
    rendered = render(engines.resolve(sql, {n: t.schema for n, t in tables.items()}))
    found = engines.connection(**tables).sql(rendered).to_arrow_table()
    assert found["b"].to_pylist() == [True, None, True, None, True, None]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT SUM(note) AS x FROM orders", "SUM does not take STRING"),
        ("SELECT AVG(qty > 1) AS x FROM orders", "AVG does not take BOOLEAN"),
        ("SELECT STDDEV(note) AS x FROM orders", "STDDEV does not take STRING"),
        ("SELECT id + ARRAY(1) AS x FROM orders", '"+" does not take INT and ARRAY<INT>'),
        ("SELECT (id > 1) + 1 AS x FROM orders", '"+" does not take BOOLEAN and INT'),
        ("SELECT id = ARRAY(1) AS x FROM orders", '"=" does not take INT and ARRAY<INT>'),
        ("SELECT (id > 1) = 1 AS x FROM orders", '"=" does not take BOOLEAN and INT'),
        ("SELECT COALESCE(placed, 1) AS x FROM orders", "COALESCE does not take TIMESTAMP and INT"),
        (
            "SELECT id AS x FROM orders UNION SELECT placed FROM orders",
            "UNION does not take INT and TIMESTAMP",
        ),
    ],
)
def test_mismatches(engines: Any, tables: dict[str, pa.Table], sql: str, message: str) -> None:
    with pytest.raises(TypeMismatch) as caught:
        render(engines.resolve(sql, {n: t.schema for n, t in tables.items()}))
    assert caught.value.message == message
