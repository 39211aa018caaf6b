"""Arithmetic that cannot fail is rendered for DuckDB as it is; what can is evaluated only where Spark would."""

from __future__ import annotations

import pytest

from millpond import App
from millpond.query.duck import to_duckdb

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, n DECIMAL(15, 2), wide DECIMAL(30, 2), d DATE);"


@pytest.mark.parametrize(
    ("condition", "lazy"),
    [
        ("n <= 1 + 10", False),
        ("n <= 2147483647 + 1", True),
        ("n <= (3 - 4) * 5", False),
        ("id <= id + 1", True),
        ("n * (1 - n) > 5", False),
        ("wide * (1 - wide) > 5", True),
        ("n + wide > 5", False),
        ("d < DATE '1994-01-01' + INTERVAL '1' YEAR", False),
        ("d < DATE '1994-01-01' - INTERVAL '90' DAY", False),
        ("d < CAST(CAST(id AS STRING) AS DATE)", True),
    ],
)
def test_conditions_are_guarded_where_they_can_fail(condition: str, lazy: bool) -> None:
    with App(f"{TABLE} CREATE TABLE v AS SELECT id FROM t WHERE id = 1 OR {condition}") as app:
        (view,) = app._runtime.views
        assert ("CASE" in to_duckdb(view.plan.query)) is lazy
