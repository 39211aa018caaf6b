"""Conditions that a database looks for by itself find the rows that DuckDB finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond import App
from millpond.predicates import text
from millpond.sql.catalog import Relation
from millpond.sql.filters import parse_columns, parse_filter
from tests.conditions import COLUMNS, condition, rows
from tests.contract.places import FINITE, OUTSIDE, Places


@pytest.fixture(params=OUTSIDE)
def app(request: pytest.FixtureRequest, places: Places) -> Iterator[App]:
    place = places.new(request.param)
    settings = {"extension": place.backend, **place.settings}
    options = ", ".join(f"'{k}' = '{v}'" for k, v in settings.items())
    with App(f"CREATE TABLE m ({COLUMNS}); CREATE TABLE t ({COLUMNS}) WITH ({options})") as app:
        for name in ("m", "t"):
            app.table(name).bulk_insert(rows(400, finite=request.param in FINITE))
        yield app


def test_random_conditions_find_the_same_rows(app: App) -> None:
    chance = random.Random(5)
    expected, found, pushed = app.table("m"), app.table("t"), 0
    relation = Relation("t", "table", found.schema)
    for number in range(200):
        where = condition(chance)
        predicate = parse_filter(relation, where).reading.predicate
        pushed += predicate is not None
        want = sorted(r["id"] for r in expected.find(where))
        got = sorted(r["id"] for r in found.find(where))
        assert got == want, (where, predicate and text(predicate))
        if number % 8 == 0:
            for source in ("t", "(SELECT * FROM t) AS x"):
                queried = app.sql(f"SELECT id FROM {source} WHERE {where}").rows()
                assert sorted(r["id"] for r in queried) == want, where
    assert pushed > 100


def test_a_join_keeps_rows_without_a_match(app: App) -> None:
    for join in ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "JOIN"):
        for where in ("t.i IS NULL", "t.i > 0", "m.i > 0", "t.s = 'a' AND m.b"):
            sql = f"SELECT m.id AS a, t.id AS b FROM m {join} t ON m.id = t.id AND t.id > 200 WHERE {where}"
            plain = sql.replace(" t ON", " m t ON")
            key = lambda r: (r["a"] or -1, r["b"] or -1)  # noqa: E731
            assert sorted(app.sql(sql).rows(), key=key) == sorted(app.sql(plain).rows(), key=key), sql


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("i > 5 AND upper(s) = 'A'", "i > 5"),
        ("i > 5 OR upper(s) = 'A'", None),
        ("NOT (i > 5 OR s = 'a')", "i <= 5 AND s != 'a'"),
        ("NOT (i > 5 AND upper(s) = 'a')", None),
        ("5 < i", "i > 5"),
        ("s LIKE 'ab%'", "s >= 'ab' AND s < 'ac'"),
        ("d = 1.5", "d = Decimal('1.500')"),
        ("i = 1.5", None),
        ("i = '5'", None),
        ("f > 1", "f > 1.0"),
        ("day >= '2024-01-01'", "day >= datetime.date(2024, 1, 1)"),
        ("i IN (1, NULL)", None),
        ("i = NULL", None),
        ("b AND NOT (b OR i < 0)", "b = True AND b = False AND i >= 0"),
        ("i > 0 AND (i IN (1, 2) OR 3 = i)", "i > 0 AND (i = 1 OR i = 2 OR i = 3)"),
        ("i NOT IN (1, 2) OR b", "i != 1 AND i != 2 OR b = True"),
    ],
)
def test_what_is_pushed(where: str, expected: str | None) -> None:
    relation = Relation("t", "table", parse_columns(COLUMNS))
    found = parse_filter(relation, where).reading.predicate
    assert (found and text(found)) == expected


def test_explain_says_what_is_pushed(tmp_path: Path) -> None:
    options = f"WITH ('extension' = 'sqlite', 'path' = '{tmp_path}/x.db')"
    with App(f"CREATE TABLE t ({COLUMNS}) {options}") as app:
        plan = [r["plan"] for r in app.sql("EXPLAIN SELECT id FROM t WHERE i > 5 AND upper(s) = 'A'").rows()]
    assert f"read table t as t from sqlite:{tmp_path}/x.db where i > 5" in plan
