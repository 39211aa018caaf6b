"""Views with subqueries, grouping sets and joins without an equality, kept by changes: as their queries, in every
form of NULL, no rows and two rows.
"""

from __future__ import annotations

from random import Random

import pytest

from millpond import App
from millpond.errors import Error
from tests.random_views import TABLES, bag, change

pytestmark = pytest.mark.slow

QUERIES = (
    # Totals and values that read nothing around them.
    "SELECT id, n FROM a WHERE n > (SELECT AVG(n) FROM a)",
    "SELECT id, (SELECT MAX(x) FROM b) AS m FROM a WHERE k IS NOT NULL",
    "SELECT id, g FROM a WHERE k = (SELECT MIN(k) FROM log WHERE g = 'x')",
    "SELECT id, (SELECT b.g FROM b WHERE b.id = 3) AS other FROM a",
    "SELECT g, SUM(n) AS s FROM a GROUP BY g HAVING SUM(n) > (SELECT SUM(n) * 0.3 FROM a)",
    "SELECT g, COUNT(*) + (SELECT COUNT(*) FROM b) AS c FROM a GROUP BY g",
    "SELECT COUNT(*) AS c FROM a WHERE EXISTS (SELECT 1 FROM log WHERE x = 2)",
    "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM log WHERE x = 3 GROUP BY k HAVING COUNT(*) > 1)",
    "SELECT id FROM a WHERE k >= (SELECT x FROM b ORDER BY id LIMIT 1)",
    # Those that do.
    "SELECT id, (SELECT COUNT(*) FROM b WHERE b.k = a.k) AS c FROM a",
    "SELECT id, (SELECT SUM(b.x) FROM b WHERE b.k = a.k AND b.g = a.g) AS s FROM a",
    "SELECT id, coalesce((SELECT MIN(b.x) + COUNT(*) FROM b WHERE a.k = b.k AND b.x > 0), -1) AS s FROM a",
    "SELECT a.id FROM a, b WHERE a.k = b.k AND b.x = (SELECT MAX(o.x) FROM b AS o WHERE o.k = a.k)",
    "SELECT id, (SELECT b.g FROM b WHERE b.id = a.id) AS other FROM a",
    "SELECT g, SUM(n) AS s FROM a WHERE k < (SELECT AVG(x) FROM log WHERE log.g = a.g) GROUP BY g",
    "SELECT b.id FROM b WHERE b.x IN (SELECT a.k FROM a WHERE a.n > (SELECT AVG(i.n) FROM a AS i WHERE i.g = a.g))",
    # NOT IN, and tests inside of OR.
    "SELECT id, k FROM a WHERE k NOT IN (SELECT x FROM log)",
    "SELECT id, k FROM a WHERE k NOT IN (SELECT x FROM log WHERE x IS NOT NULL AND g = 'x')",
    "SELECT k, COUNT(*) AS c FROM b WHERE NOT (k IN (SELECT k FROM log WHERE g = 'y' GROUP BY k)) GROUP BY k",
    "SELECT id FROM a WHERE n > 3 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.x = 1)",
    "SELECT id FROM a WHERE n > 3 OR k IN (SELECT x FROM log)",
    "SELECT id FROM a WHERE n > 3 OR NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "SELECT b.id FROM b WHERE b.k IN (SELECT b.x FROM b)",
    # ANY and ALL.
    "SELECT id FROM a WHERE k = ANY (SELECT x FROM log) AND n < ALL (SELECT x + 2 FROM b WHERE b.k = a.k)",
    "SELECT id FROM a WHERE k <> ALL (SELECT x FROM b)",
    "SELECT id FROM a WHERE n > 3 OR k = ANY (SELECT x FROM b WHERE b.k = a.k)",
    # One name inside and around.
    "SELECT b.id FROM b WHERE EXISTS (SELECT 1 FROM log AS b WHERE b.x = 2)",
    # Joins without an equality.
    "SELECT a.id, b.id AS other FROM a JOIN b ON a.k < b.x",
    "SELECT a.id, b.id AS other FROM a LEFT JOIN b ON a.k > b.x",
    "SELECT a.id, t.c FROM a CROSS JOIN (SELECT COUNT(*) AS c FROM log) t",
    "SELECT a.g, COUNT(*) AS c FROM a, b WHERE (a.k = b.k AND b.x = 1) OR (a.k = b.k AND a.n > 2) GROUP BY a.g",
    # NOT IN of the rows around it, and other aggregates of them.
    "SELECT id, k FROM a WHERE k NOT IN (SELECT b.x FROM b WHERE b.g = a.g)",
    "SELECT id, k FROM a WHERE k + 1 NOT IN (SELECT b.x FROM b WHERE b.k < a.k AND b.g = 'x')",
    "SELECT id, (SELECT STDDEV_POP(b.x) FROM b WHERE b.k = a.k) AS s FROM a",
    "SELECT id, (SELECT MEDIAN(b.x) FROM b WHERE b.k = a.k) AS m FROM a",
    "SELECT id, (SELECT SUM(DISTINCT b.x) FROM b WHERE b.k = a.k) AS s FROM a",
    "SELECT id, (SELECT DISTINCT b.k + 1 FROM b WHERE b.k = a.k) AS s FROM a",
    "SELECT id, (SELECT DISTINCT MAX(b.x) FROM b WHERE b.k = a.k) AS s FROM a",
    # Numbers with a floating point.
    "SELECT SUM(f) AS s, AVG(f) AS a, MIN(f) AS b, MAX(f) AS c, COUNT(DISTINCT f) AS d, COUNT(f) AS n FROM a",
    "SELECT upper(g) AS g, AVG(f) AS a, SUM(f) FILTER (WHERE k > 1) AS s, MAX(f) AS m FROM a GROUP BY upper(g)",
    "SELECT k % 2 AS odd, SUM(f) AS s, COUNT(*) AS c FROM a GROUP BY k % 2 HAVING SUM(f) > 1",
    # Windows over all rows, and over groups.
    "SELECT id, RANK() OVER (ORDER BY f) AS r, COUNT(*) OVER () AS c FROM a WHERE k > 0",
    "SELECT id, SUM(n) OVER (ORDER BY id) AS r FROM a",
    "SELECT id, k, SUM(x) OVER (PARTITION BY k + 1) AS s FROM b",
    "SELECT g, SUM(x) AS s, RANK() OVER (ORDER BY SUM(x)) AS r FROM log GROUP BY g",
    "SELECT g, k, SUM(x) AS s, SUM(SUM(x)) OVER (PARTITION BY g) AS r FROM log GROUP BY g, k",
    "SELECT g, COUNT(*) AS s, COUNT(*) OVER () AS r FROM log GROUP BY g HAVING COUNT(*) > 1",
    "SELECT g, SUM(x) AS s FROM log GROUP BY g QUALIFY ROW_NUMBER() OVER (ORDER BY SUM(x) DESC, g) < 3",
    # Sets of keys.
    "SELECT k, g, GROUPING(k) AS a, GROUPING(g) AS b, COUNT(*) AS n FROM log GROUP BY ROLLUP (k, g)",
    "SELECT g, k, GROUPING_ID(g, k) AS i, GROUPING_ID() AS j, grouping__id AS h FROM b GROUP BY CUBE (g, k)",
    "SELECT g, k, x, GROUPING_ID() AS i FROM b GROUP BY GROUPING SETS ((g), (k)), ROLLUP (x)",
    "SELECT k, SUM(x) AS s FROM log GROUP BY ROLLUP (k) HAVING GROUPING(k) = 0",
    "SELECT CASE WHEN GROUPING(k) = 1 THEN 'all' ELSE 'one' END AS w, SUM(x) AS s FROM log GROUP BY ROLLUP (k)",
    "SELECT g, k, COUNT(*) AS c, SUM(x) AS s FROM b GROUP BY ROLLUP (g, k)",
    "SELECT g, k, MAX(x) AS s FROM b GROUP BY CUBE (g, k) HAVING COUNT(*) > 1",
    "SELECT g, k, x, COUNT(*) AS c FROM b GROUP BY x, GROUPING SETS ((g), (k), ())",
    "SELECT g, SUM(CASE WHEN x = 1 THEN n ELSE 0 END) AS s FROM a JOIN log USING (g) GROUP BY g",
)


@pytest.mark.parametrize("part", range(6))
def test_views_with_subqueries_are_what_their_queries_answer(part: int) -> None:
    queries, random = QUERIES[part::6], Random(part)
    with App(TABLES) as app:
        for i, query in enumerate(queries):
            app.sql(f"CREATE TABLE v{i} WITH ('refresh' = 'incremental') AS {query}")
        for _ in range(12):
            with app.begin_transaction() as tx:
                for _ in range(random.randint(1, 3)):
                    change(tx, random)
            app.drain()
            for i, query in enumerate(queries):
                assert bag(app, f"SELECT * FROM v{i}") == bag(app, query), query
        for view in app._runtime.views:
            assert 0 < view.rounds - 1 <= 2 * view.by_changes.rounds, view.plan.text


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.id, (SELECT b.x FROM b WHERE b.k = a.k) AS x FROM a",
        "SELECT a.id FROM a WHERE a.k = (SELECT b.x FROM b)",
    ],
)
def test_two_rows_of_a_scalar_subquery_are_an_error_until_one_leaves(query: str) -> None:
    with App(TABLES + f"CREATE TABLE v AS {query}") as app:
        app.sql("INSERT INTO a (id, k) VALUES (1, 1), (2, 2); INSERT INTO b VALUES (1, 1, 'x', 1)")
        app.drain()
        shown = bag(app, "SELECT * FROM v")
        assert shown == bag(app, query)
        app.sql("INSERT INTO b VALUES (2, 1, 'x', 2)")
        with pytest.raises(Error, match="scalar subquery returned"):
            app.drain()
        assert bag(app, "SELECT * FROM v") == shown
        app.sql("DELETE FROM b WHERE id = 1")
        app.drain()
        assert bag(app, "SELECT * FROM v") == bag(app, query) != shown


def test_what_is_not_in_an_empty_subquery_and_in_one_with_null() -> None:
    query = "SELECT id, k FROM a WHERE k NOT IN (SELECT x FROM log)"
    with App(TABLES + f"CREATE TABLE v WITH ('refresh' = 'incremental') AS {query}") as app:
        app.sql("INSERT INTO a (id, k) VALUES (1, 1), (2, 2), (3, NULL)")
        app.drain()
        for change_, ids in (
            ("INSERT INTO log VALUES (1, 'x', 1)", [2]),
            ("INSERT INTO log VALUES (1, 'x', NULL)", []),
            ("DELETE FROM log WHERE x = 1", []),
            ("DELETE FROM log", [1, 2, 3]),
        ):
            app.sql(change_)
            app.drain()
            assert sorted(row["id"] for row in app.sql("SELECT id FROM v").rows()) == ids
        (view,) = app._runtime.views
        assert view.by_changes.rounds == 5
