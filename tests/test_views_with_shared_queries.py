"""Views that read a query of WITH, or copies of a subquery, several times: operators and their state are there once."""

from __future__ import annotations

from random import Random

import pytest

from millpond import App
from tests.random_views import TABLES, bag, change

pytestmark = pytest.mark.slow

GROUPS = "x AS (SELECT g, COUNT(*) AS c, MAX(k) AS k FROM b GROUP BY g)"
FIRST = "x AS (SELECT id, g, k FROM b ORDER BY k, g, id LIMIT 4)"
VIEWS = {
    "self join": f"WITH {GROUPS} SELECT p.g, q.c, q.k FROM x p JOIN x q ON p.g = q.g",
    "self join by other columns": f"WITH {GROUPS} SELECT p.g AS a, q.g AS b FROM x p JOIN x q ON p.c = q.k",
    "left join": f"WITH {GROUPS} SELECT p.g AS a, q.g AS b FROM x p LEFT JOIN x q ON p.c = q.k",
    "full join": f"WITH {GROUPS} SELECT p.g AS a, q.g AS b FROM x p FULL JOIN x q ON p.c = q.k",
    "no equality": f"WITH {GROUPS} SELECT p.g AS a, q.g AS b FROM x p JOIN x q ON p.c < q.c",
    "of filters": "WITH x AS (SELECT id, k, x FROM b WHERE k > 0)"
    " SELECT p.id, q.id AS b FROM x p JOIN x q ON p.k = q.x",
    "union all": f"WITH {GROUPS} SELECT g, c FROM x UNION ALL SELECT g, c FROM x",
    "union": f"WITH {GROUPS} SELECT g, c FROM x UNION SELECT g, CAST(k AS BIGINT) FROM x WHERE c > 1",
    "except all": f"WITH {GROUPS} SELECT c FROM x EXCEPT ALL SELECT CAST(k AS BIGINT) FROM x",
    "subquery and outside": f"WITH {GROUPS} SELECT g, c FROM x WHERE c = (SELECT MAX(c) FROM x)",
    "exists": f"WITH {GROUPS} SELECT g, c FROM x WHERE EXISTS (SELECT 1 FROM x y WHERE y.k = x.c)",
    "not in": f"WITH {GROUPS} SELECT g, c FROM x WHERE k NOT IN (SELECT c FROM x WHERE g IS NOT NULL)",
    "renamed": f"WITH {GROUPS} SELECT p.a, q.g FROM x p(a, n, m) JOIN x q ON p.n = q.c",
    "first rows": f"WITH {FIRST} SELECT p.id, COUNT(*) AS c FROM x p JOIN x q ON p.k <= q.k GROUP BY p.id",
    "windows": "WITH x AS (SELECT id, k, RANK() OVER (PARTITION BY k ORDER BY id) AS r FROM b)"
    " SELECT p.id, q.id AS b FROM x p JOIN x q ON p.k = q.k AND p.r = q.r + 1",
    "nested": f"WITH {GROUPS}, y AS (SELECT p.g, q.c FROM x p JOIN x q ON p.c = q.k)"
    " SELECT m.g, n.c, x.k FROM y m JOIN y n ON m.g = n.g LEFT JOIN x ON x.c = n.c",
    "in a subquery": "SELECT s.g, t.c FROM (SELECT DISTINCT g FROM a) s JOIN"
    f" (WITH {GROUPS} SELECT p.g, q.c FROM x p JOIN x q ON p.g = q.g) t ON s.g = t.g",
    "cube": f"WITH {GROUPS} SELECT c, k, COUNT(*) AS n FROM x GROUP BY CUBE (c, k)",
    "cube of a subquery": "SELECT c, k, SUM(c) AS n FROM (SELECT k, COUNT(*) AS c FROM b GROUP BY k)"
    " GROUP BY CUBE (c, k)",
}


def operators_of(app: App, query: str) -> list[str]:
    lines = app.sql(f"EXPLAIN CREATE TABLE e AS {query}").to_arrow()["plan"].to_pylist()
    return [line.strip() for line in lines if line.strip().startswith("operator")]


@pytest.mark.parametrize("name", VIEWS)
def test_what_is_read_twice_is_what_its_query_answers(name: str) -> None:
    query, random = VIEWS[name], Random(name)
    with App(f"{TABLES} CREATE TABLE v WITH ('refresh' = 'incremental') AS {query}") as app:
        (view,) = app._runtime.views
        for step in range(40):
            change(app, random)
            app.drain()
            assert bag(app, "SELECT * FROM v") == bag(app, query), (name, step)
        assert view.by_changes.rounds > 5


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_the_state_is_there_once(reads: int) -> None:
    joins = "".join(f" JOIN x AS x{n} ON x{n}.g = x0.g" for n in range(1, reads))
    query = f"WITH {GROUPS} SELECT x0.g FROM x AS x0{joins}"
    with App(f"{TABLES} CREATE TABLE v WITH ('refresh' = 'incremental') AS {query}") as app:
        app.table("b").bulk_insert([{"id": i, "k": i % 4, "g": f"g{i % 10}", "x": i} for i in range(100)])
        app.drain()
        (view,) = app._runtime.views
        assert view.by_changes.size == 10 + 10 * 2  # the groups, and the values of MAX
        app.sql("UPDATE b SET g = 'g0' WHERE id = 1")
        app.drain()
        assert bag(app, "SELECT * FROM v") == bag(app, query)


def test_explain_shows_a_shared_query_once() -> None:
    with App(TABLES) as app:
        assert operators_of(app, VIEWS["self join"])[1:] == [
            "operator inner join: a change of a side finds the other by index; keeps nothing besides the indexes",
            "operator [1] groups: touched groups; keeps the values of each group",
            "operator columns: row by row; keeps nothing",
            "operator changes of table b: old and new rows, net; keeps nothing",
            "operator [1], as above",
        ]
        for name in ("nested", "cube", "cube of a subquery"):
            lines = operators_of(app, VIEWS[name])
            assert sum("changes of table" in line for line in lines) == 1, name


def test_many_levels_of_shared_queries_are_as_many_operators() -> None:
    levels = ["x0 AS (SELECT g, COUNT(*) AS c FROM b GROUP BY g)"]
    levels += [f"x{n} AS (SELECT p.g, q.c FROM x{n - 1} p JOIN x{n - 1} q ON p.g = q.g)" for n in range(1, 8)]
    query = f"WITH {', '.join(levels)} SELECT g, c FROM x7"
    with App(TABLES) as app:
        assert len(operators_of(app, query)) < 40


def test_queries_of_one_name_and_other_letters_are_not_the_same() -> None:
    query = (
        "SELECT p.c AS p, q.c AS q FROM (WITH x AS (SELECT COUNT(*) AS c FROM b WHERE g = 'X') SELECT c FROM x) p"
        " CROSS JOIN (WITH x AS (SELECT COUNT(*) AS c FROM b WHERE g = 'x') SELECT c FROM x) q"
    )
    with App(f"{TABLES} CREATE TABLE v AS {query}") as app:
        for n in range(3):
            app.sql("INSERT INTO b VALUES (?, 1, 'x', 1)", [n])
            app.drain()
        assert app.sql("SELECT * FROM v").rows() == [{"p": 0, "q": 3}]
