"""Conditions that a database looks for by itself find the rows that DuckDB finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.predicates import text
from millpond.sql.catalog import Relation
from millpond.sql.filters import parse_columns, parse_filter
from millpond.sql.pushdown import predicate_of
from tests.contract.places import OUTSIDE, Places

COLUMNS = "id INT PRIMARY KEY, i INT, l BIGINT, d DECIMAL(12,3), f DOUBLE, s STRING, b BOOLEAN, day DATE, at TIMESTAMP"
NAN, INF = float("nan"), float("inf")
VALUES: dict[str, list[Any]] = {
    "i": [None, 0, 1, -1, 7, 2**31 - 1, -(2**31)],
    "l": [None, 0, 5, -5, 2**63 - 1, -(2**63), 2**53 + 1],
    "d": [
        None,
        Decimal("0"),
        Decimal("0.001"),
        Decimal("-0.001"),
        Decimal("10"),
        Decimal("9.5"),
        Decimal("-100.25"),
    ],
    "f": [None, 0.0, -0.0, 0.1, -1.5, NAN, INF, -INF, 1e300],
    "s": [None, "", "a", "A", "ab", "abc", "b", "ž", "z", "10", "9", "🐎", "a%", "it's"],
    "b": [None, True, False],
    "day": [None, date(1, 1, 1), date(2024, 2, 29), date(2024, 3, 1), date(9999, 12, 31)],
    "at": [
        None,
        datetime(1900, 1, 1, tzinfo=UTC),
        datetime(2024, 3, 1, tzinfo=UTC),
        datetime(2024, 3, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(2024, 3, 1, 12, 30, tzinfo=UTC),
    ],
}
CONSTANTS: dict[str, list[str]] = {
    "i": ["0", "1", "-1", "7", "2147483647", "-2147483648", "1.5", "7.0", "99999999999"],
    "l": ["0", "5", "-5", "9223372036854775807", "9007199254740993", "5.0"],
    "d": ["0", "0.001", "-0.001", "10", "9.5", "9.50", "10.0004", "-100.25", "123456789012345"],
    "f": ["0", "0.1", "-1.5", "1", "1000.25"],
    "s": ["''", "'a'", "'ab'", "'b'", "'ž'", "'10'", "'🐎'", "'it\\'s'"],
    "b": ["true", "false"],
    "day": ["DATE '2024-02-29'", "'2024-03-01'", "DATE '0001-01-01'"],
    "at": [
        "TIMESTAMP '2024-03-01 00:00:00'",
        "'2024-03-01 12:30:00'",
        "TIMESTAMP '2024-03-01 00:00:00.000001'",
    ],
}


def condition(chance: random.Random, depth: int = 0) -> str:
    kind = chance.random()
    if depth < 3 and kind < 0.35:
        word = chance.choice(["AND", "OR"])
        return f"({condition(chance, depth + 1)} {word} {condition(chance, depth + 1)})"
    if depth < 3 and kind < 0.45:
        return f"NOT ({condition(chance, depth + 1)})"
    column = chance.choice(list(VALUES))
    constant = chance.choice(CONSTANTS[column])
    form = chance.randrange(8)
    if form == 0:
        return f"{column} IS {chance.choice(['', 'NOT '])}NULL"
    if form == 1:
        return f"{column} BETWEEN {constant} AND {chance.choice(CONSTANTS[column])}"
    if form == 2:
        listed = ", ".join(chance.sample(CONSTANTS[column], 2))
        return f"{column} {chance.choice(['', 'NOT '])}IN ({listed})"
    if form == 3:
        return f"s LIKE '{chance.choice(['a%', 'ab%', '%b', 'a_', 'ž%', 'it%', 'a%c', ''])}'"
    if form == 4:
        return chance.choice(["i + 1 > 1", "length(s) = 1", "i > l", "upper(s) = 'A'", "abs(f) > 1"])
    operator = chance.choice(["=", "!=", "<", "<=", ">", ">=", "<>", "<=>"])
    return f"{constant} {operator} {column}" if form == 5 else f"{column} {operator} {constant}"


@pytest.fixture(params=OUTSIDE)
def app(request: pytest.FixtureRequest, places: Places) -> Iterator[App]:
    place = places.new(request.param)
    settings = {"extension": place.backend, **place.settings}
    options = ", ".join(f"'{k}' = '{v}'" for k, v in settings.items())
    chance = random.Random(11)
    rows = [{"id": n, **{c: chance.choice(v) for c, v in VALUES.items()}} for n in range(400)]
    with App(f"CREATE TABLE m ({COLUMNS}); CREATE TABLE t ({COLUMNS}) WITH ({options})") as app:
        app.table("m").bulk_insert(rows)
        app.table("t").bulk_insert(rows)
        yield app


def test_random_conditions_find_the_same_rows(app: App) -> None:
    chance = random.Random(5)
    expected, found, pushed = app.table("m"), app.table("t"), 0
    relation = Relation("t", "table", found.schema)
    for number in range(200):
        where = condition(chance)
        predicate = predicate_of(parse_filter(relation, where).tree, found.schema)
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
    ],
)
def test_what_is_pushed(where: str, expected: str | None) -> None:
    relation = Relation("t", "table", parse_columns(COLUMNS))
    found = predicate_of(parse_filter(relation, where).tree, relation.schema)
    assert (found and text(found)) == expected


def test_explain_says_what_is_pushed(tmp_path: Path) -> None:
    options = f"WITH ('extension' = 'sqlite', 'path' = '{tmp_path}/x.db')"
    with App(f"CREATE TABLE t ({COLUMNS}) {options}") as app:
        plan = [r["plan"] for r in app.sql("EXPLAIN SELECT id FROM t WHERE i > 5 AND upper(s) = 'A'").rows()]
    assert f"read table t as t from sqlite:{tmp_path}/x.db where i > 5" in plan
