"""Aggregates that leave open which value they choose: a view chooses by the values, whatever order rows come in."""

from __future__ import annotations

from random import Random

import pytest

from millpond import App
from millpond.errors import SqlError
from tests.random_views import TABLES, change, counted

pytestmark = pytest.mark.slow

VIEWS = (
    "SELECT k, ANY_VALUE(g) AS v, ANY_VALUE(x, TRUE) AS w FROM b GROUP BY k",
    "SELECT ANY_VALUE(g) AS v, ANY_VALUE(x) FILTER (WHERE k > 1) AS w FROM b",
    "SELECT k + 1 AS k, ANY_VALUE(g) AS v FROM b GROUP BY k + 1",
    "SELECT id, ANY_VALUE(g) OVER (PARTITION BY k) AS v FROM b",
    "SELECT k, MIN_BY(g, x) AS v, MAX_BY(g, x) AS w FROM b GROUP BY k",
    "SELECT g, MIN_BY(f, k) AS v, MAX_BY(n, d) AS w, MAX_BY(k, f) AS x FROM a GROUP BY g",
    "SELECT k, MAX_BY(x, g) FILTER (WHERE x IS NULL OR x > 1) AS v FROM b GROUP BY k",
    "SELECT k, LISTAGG(g, ',') WITHIN GROUP (ORDER BY x DESC) AS v FROM b GROUP BY k",
    "SELECT k, LISTAGG(x, '-') WITHIN GROUP (ORDER BY g) AS v FROM b GROUP BY k",
    "SELECT k, LISTAGG(DISTINCT g, ',') WITHIN GROUP (ORDER BY g DESC) AS v FROM b GROUP BY k",
    "SELECT k, LISTAGG(g, ',') WITHIN GROUP (ORDER BY id, g) AS v FROM b GROUP BY k HAVING MIN_BY(g, x) <> 'x'",
    "SELECT a.id, (SELECT ANY_VALUE(b.g) FROM b WHERE b.k = a.k) AS v FROM a",
)


@pytest.mark.parametrize("query", VIEWS)
def test_chosen_values_are_kept_by_changes(query: str) -> None:
    random = Random(VIEWS.index(query))
    with App(f"{TABLES} CREATE TABLE v WITH ('refresh' = 'incremental') AS {query}") as app:
        (view,) = app._runtime.views
        for step in range(40):
            change(app, random)
            app.drain()
            tables = {
                i.view: app.table(i.relation.name).backend.snapshot().scan() for i in view.plan.query.inputs
            }
            rows = app._runtime.evaluator.answer(view.plan.query, tables).to_pylist()
            assert counted(app.sql("SELECT * FROM v").rows()) == counted(rows), step
        assert view.by_changes.rounds > 5


def test_of_equal_rows_the_values_decide() -> None:
    query = (
        "SELECT k, ANY_VALUE(g) AS any, MIN_BY(g, x) AS first, MAX_BY(g, x) AS last,"
        " LISTAGG(g, '') WITHIN GROUP (ORDER BY x) AS all FROM b GROUP BY k"
    )
    with App(f"{TABLES} CREATE TABLE v WITH ('refresh' = 'incremental') AS {query}") as app:
        for n, g in enumerate("cabd"):
            app.sql("INSERT INTO b VALUES (?, 1, ?, 5), (?, 1, NULL, 5)", [2 * n, g, 2 * n + 1])
            app.drain()
        app.sql("INSERT INTO b VALUES (20, 1, 'e', NULL), (21, 1, 'f', 4)")
        app.drain()
        assert app.sql("SELECT * FROM v").rows() == [
            {"k": 1, "any": "a", "first": "f", "last": "d", "all": "efabcd"}
        ]
        app.sql("DELETE FROM b WHERE g IN ('a', 'd', 'f')")
        app.drain()
        assert app.sql("SELECT * FROM v").rows() == [
            {"k": 1, "any": "b", "first": "b", "last": "c", "all": "ebc"}
        ]


@pytest.mark.parametrize(
    "call", ["LISTAGG(g, ',')", "FIRST(g)", "LAST(g)", "COLLECT_LIST(g)", "COLLECT_SET(g)"]
)
def test_what_depends_on_the_order_of_rows_is_recomputed(call: str) -> None:
    with App(TABLES) as app, pytest.raises(SqlError, match="'incremental'"):
        app.sql(f"CREATE TABLE v WITH ('refresh' = 'incremental') AS SELECT k, {call} AS v FROM b GROUP BY k")


def test_a_query_chooses_as_ever() -> None:
    with App(TABLES) as app:
        app.sql("INSERT INTO b VALUES (1, 1, 'c', 5), (2, 1, 'a', 5)")
        assert app.sql("SELECT ANY_VALUE(g) AS v FROM b").rows() == [{"v": "c"}]
