"""Paths mean the same in SQL and in the Python API."""

from __future__ import annotations

from typing import Any

import pytest

from millpond import App, Error, Table
from millpond.errors import NotSupported, QueryFailed, TypeMismatch, UnknownName

COLUMNS = {
    "id": "INT",
    "positions": "MAP<STRING, STRUCT<shares: INT, price: DECIMAL(10,2)>>",
    "orders": "ARRAY<STRUCT<Amount: DECIMAL(10,2), lines: ARRAY<STRUCT<qty: INT, price: INT>>>>",
    "nested": "STRUCT<a: STRUCT<x: INT, y: BIGINT>, b: STRUCT<x: INT, y: BIGINT>>",
    "matrix": "ARRAY<ARRAY<INT>>",
    "numbered": "MAP<INT, DOUBLE>",
}
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "positions": {"A": {"shares": 5, "price": "1.50"}, "B": {"shares": None, "price": "2.25"}, "C": None},
        "orders": [
            {"Amount": "10.00", "lines": [{"qty": 1, "price": 7}, {"qty": 2}]},
            None,
            {"Amount": None, "lines": []},
            {"Amount": "3.00", "lines": None},
        ],
        "nested": {"a": {"x": 1, "y": 2}, "b": {"x": 3}},
        "matrix": [[1, 2], [], None, [3, None]],
        "numbered": {1: 0.5, 2: None},
    },
    {"id": 2, "positions": {}, "orders": [], "nested": {"a": None, "b": None}, "matrix": []},
    {"id": 3},
]
PATHS = [
    "positions.*.shares",
    "positions.*.price",
    "positions.A.*",
    "positions.**.price",
    "orders[*].amount",
    "orders[0].lines[*].qty",
    "orders[*].lines[*].price",
    "orders.*.lines.price",
    "orders[3].lines[*]",
    "orders[9].lines[*].qty",
    "orders.**.price",
    "nested.*.x",
    "nested.**.y",
    "nested.a.*",
    "nested.c.*",
    "matrix[*][*]",
    "matrix[0][*]",
    "matrix.**",
    "matrix[*][1]",
    "numbered.*",
    "numbered[*]",
    "id.*",
    "**.qty",
]


@pytest.fixture(scope="module")
def table() -> Table:
    table = Table(COLUMNS, key="id")
    table.bulk_insert(ROWS)
    return table


@pytest.mark.parametrize("path", PATHS)
def test_values_and_aggregates(table: Table, path: str) -> None:
    values = table.sql_wildcard_values(path)
    assert [v for row in table.sql_column_values(path) for v in row] == values
    assert table.sql_scalar(f"COUNT({path})") == table.sql_wildcard_aggregate(f"COUNT({path})")
    if path != "orders[3].lines[*]":
        for name in ("SUM", "MIN", "MAX", "AVG"):
            assert table.sql_scalar(f"{name}({path})") == table.sql_wildcard_aggregate(f"{name}({path})"), (
                name
            )


@pytest.mark.parametrize("path", [p for p in PATHS if p != "orders[3].lines[*]"])
@pytest.mark.parametrize("test", ["> 1", "= 2", "<> 5", "<= 0.5"])
def test_comparisons(table: Table, path: str, test: str) -> None:
    found = [row["id"] for row in table.find(f"{path} {test}")]
    assert found == [i for i in (1, 2, 3) if table.sql_wildcard_values(f"{path} {test}", f"id = {i}")]


def test_a_path_that_begins_at_no_column(table: Table) -> None:
    """In SQL it is a mistake; the methods for paths find nothing."""
    assert table.sql_wildcard_values("orderz.*.x") == []
    assert table.sql_wildcard_values("orderz.*.x > 100") == []
    assert table.sql_wildcard_aggregate("COUNT(orderz.*.x)") == 0
    assert table.sql_wildcard_aggregate("SUM(DISTINCT orderz.*.x)") is None
    for ask in (
        lambda: table.find("orderz.*.x > 100"),
        lambda: table.sql_column_values("orderz[*].x"),
        lambda: table.sql_scalar("COUNT(orderz.**.x)"),
        lambda: table.sql_scalar("SUM(orderz.*)"),
    ):
        with pytest.raises(UnknownName, match='"orderz"') as failed:
            ask()
        assert "orders" in (failed.value.hint or "")
    with App("CREATE TABLE t (id INT, a ARRAY<STRUCT<b: INT>>)") as app:
        with pytest.raises(UnknownName, match='column "aa" is not in "x"') as failed:
            app.sql("SELECT x.id FROM t x WHERE x.aa[*].b > 1")
        assert (failed.value.line, failed.value.column) == (1, 28)
        assert app.sql("SELECT a[*].c AS c FROM t").rows() == []


def test_comparisons_within_an_aggregate(table: Table) -> None:
    assert table.sql_wildcard_aggregate("SUM(matrix[*][*] > 1)") == 5
    assert table.sql_wildcard_aggregate("COUNT(orders[*].amount <> 10)", "id = 1") == 1
    assert table.sql_wildcard_aggregate("MAX(nested.**.y < 1)") is None


def test_paths_in_other_places() -> None:
    with App("CREATE TABLE t (id INT, a ARRAY<INT>, m MAP<STRING, INT>)") as app:
        app.table("t").bulk_insert(
            [{"id": 1, "a": [3, 1], "m": {"x": 5}}, {"id": 2, "a": [4], "m": {"x": 6, "y": 7}}]
        )
        assert app.sql("SELECT id FROM t ORDER BY array_max(a[*]) DESC").rows() == [{"id": 2}, {"id": 1}]
        assert app.sql("SELECT a.*, t.m.* FROM t WHERE id = 2").rows() == [{"a.*": [4], "t.m.*": [6, 7]}]
        assert app.sql("UPDATE t SET id = id + 10 WHERE m.* > 6").count == 1
        assert app.sql("SELECT CASE WHEN a[*] = 1 THEN 'one' ELSE 'none' END AS c FROM t").rows() == [
            {"c": "one"},
            {"c": "none"},
        ]
        for wrong in (
            "SELECT COUNT(t.*) AS n FROM t",
            "SELECT t.* AS n FROM t",
            "SELECT id FROM t WHERE t.* = 1",
        ):
            with pytest.raises(Error, match=r"all columns of t|COUNT\(\*\) counts rows"):
                app.sql(wrong)
        joined = "SELECT l.id FROM t l JOIN t r ON l.a[*] = r.id + 2 AND l.id <> r.id"
        assert app.sql(joined).rows() == []
        with pytest.raises(TypeMismatch, match="no common type"):
            app.sql("SELECT u.* FROM (SELECT named_struct('x', 1, 'y', array(1)) AS u) q")


JSON = [
    '{"items": [{"sku": "a", "price": 1.50}, {"price": 20}, {"sku": null}], "tags": {"x": [1, 2], "y": []}}',
    "[1, [2, 3]]",
    "broken {",
    None,
]


@pytest.mark.parametrize(
    "path", ["body.items[*].price", "body.**.price", "body.tags.*[0]", "body[0].*", "body[1][*]"]
)
def test_json_text(path: str) -> None:
    table = Table({"id": "INT", "body": "STRING"}, key="id")
    table.bulk_insert([{"id": i, "body": text} for i, text in enumerate(JSON)])
    values = table.sql_wildcard_values(path)
    assert [v for row in table.sql_column_values(path) for v in row] == [str(v) for v in values]
    for name in ("COUNT", "SUM", "MIN", "MAX"):
        assert table.sql_scalar(f"{name}({path})") == table.sql_wildcard_aggregate(f"{name}({path})")
    for test in ("> 1", "= 20", "<> 2"):
        found = [row["id"] for row in table.find(f"{path} {test}")]
        assert found == [i for i in range(4) if table.sql_wildcard_values(f"{path} {test}", f"id = {i}")]


def test_json_text_in_a_running_statement_is_refused() -> None:
    sql = "CREATE STREAM s (id INT, body STRING); CREATE TABLE t (id INT)"
    with App(sql) as app, pytest.raises(NotSupported, match="JSON text"):
        app.sql("INSERT INTO t SELECT id FROM s WHERE body.items[*].price > 10")


def test_a_json_number_that_does_not_fit_is_an_error() -> None:
    table = Table({"id": "INT", "body": "STRING"}, key="id")
    table.insert({"id": 1, "body": '{"a": [1e30]}'})
    with pytest.raises(QueryFailed, match="does not fit"):
        table.sql_scalar("SUM(body.a[*])")
