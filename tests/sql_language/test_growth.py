"""How large texts and lists become that a statement makes: told from its text, before anything is made."""

from __future__ import annotations

import pytest

from millpond.errors import NotSupported
from millpond.sql.growth import check_growth
from millpond.sql.parse import parse, parse_condition

LARGE = [
    "repeat('x', 2000000000)",
    "repeat('x', 2 * 1000000000)",
    "repeat(s, 2000)",
    "repeat(s, n)",
    "repeat('x', length(s) * 1000000)",
    "repeat(repeat(s, 100), 100)",
    "repeat(repeat('x', 1000), 1000)",
    "length(repeat('x', CAST('2000000000' AS INT)))",
    "lpad(s, 2000000000, 'x')",
    "rpad(s, n)",
    "space(2000000000)",
    "array_repeat(s, 1000000000)",
    "array_repeat(1, 1000000000)",
    "sequence(1, 1000000000)",
    "sequence(1, 1000000000, 10)",
    "sequence(1, n)",
    "sequence(1, n * 1000000000)",
    "sequence(DATE '0001-01-01', DATE '9999-12-31')",
    "sequence(t, u, INTERVAL 1 SECOND)",
    "concat_ws(',', array_repeat('x', 500000000))",
    "replace(repeat('x', 10000), 'x', 'yyyyyyyyyy')",
    "replace(repeat(s, 100), 'x', repeat('y', 100))",
    "regexp_replace(repeat(s, 100), 'x', repeat('y', 100))",
    "regexp_replace(s, '', repeat('y', 10000))",
    "format_string('%2000000000d', 1)",
    "flatten(array_repeat(sequence(1, 1000), 1000))",
    "transform(a, x -> repeat('x', 10000))",
    "transform(sequence(1, 1000), x -> repeat('x', 1000))",
    "aggregate(a, 'x', (acc, x) -> acc || acc)",
    "aggregate(a, 'x', (acc, x) -> concat(acc, 'y', acc))",
    "concat(" + ", ".join(["s"] * 1_200) + ")",
    "CASE WHEN n > 1 THEN repeat('x', 1000000) ELSE 'y' END",
    "if(n > 1, 'x', space(100000))",
]
SMALL = [
    "repeat('x', 1000)",
    "repeat(s, 10)",
    "repeat('#', least(n, 1000))",
    "repeat('#', CAST(least(n / 10, 80) AS INT))",
    "lpad(s, 20)",
    "rpad(CAST(n AS STRING), 100, '.') || lpad(s, 100, '.')",
    "concat(s, ', ', s, n)",
    "concat_ws(',', a, b, c, d, e, f)",
    "replace(s, 'a', 'b')",
    "replace(s, 'a', t)",
    "regexp_replace(s, '[0-9]+', '<number>')",
    "sequence(1, 100)",
    "sequence(1, least(n, 50))",
    "sequence(DATE '2024-01-01', day)",
    "sequence(DATE '2024-01-01', DATE '2024-12-31')",
    "sequence(t, u, INTERVAL 1 DAY)",
    "transform(a, x -> x || '!')",
    "aggregate(a, 0, (acc, x) -> acc + x)",
    "CASE " + " ".join(f"WHEN n = {i} THEN 'name {i}'" for i in range(1_000)) + " END",
    "format_string('%05d %s', n, s)",
    "array_repeat(0, 100)",
]
CHAINS = [
    "WITH a AS (SELECT repeat(s, 20) AS x FROM t), b AS (SELECT repeat(x, 20) AS y FROM a) "
    "SELECT repeat(y, 20) FROM b",
    "SELECT repeat(x, 100) FROM (SELECT repeat(s, 100) AS x FROM t)",
    "SELECT length(x || x || x) FROM (SELECT " + " || ".join(["s"] * 90) + " AS x FROM (SELECT "
    + " || ".join(["s"] * 90) + " AS s FROM t))",
    "SELECT " + ", ".join(f"repeat('x', 1000) AS c{i}" for i in range(100)) + " FROM t",
    "SELECT '" + "x" * 30_000 + "' AS x FROM t",
    "UPDATE t SET s = repeat(s, 10000) WHERE n > 1",
    "DELETE FROM t WHERE repeat('x', 1000000) = s",
    "INSERT INTO t VALUES (1, repeat('x', 2000000000))",
    "EXPLAIN ANALYZE SELECT repeat(s, 10000) FROM t",
]  # fmt: skip


def check(text: str) -> None:
    parsed = parse(text, {})
    check_growth(parsed.require(), parsed.script.place)


@pytest.mark.parametrize("expression", LARGE)
def test_what_becomes_too_large_is_refused(expression: str) -> None:
    for text in (
        f"SELECT n,\n  {expression} AS x FROM t",
        f"SELECT n FROM t WHERE 'x' =\n  {expression}",
        f"SELECT n FROM t WHERE n IN (SELECT n FROM u WHERE s =\n  {expression})",
        f"WITH a AS (SELECT\n  {expression} AS x FROM t) SELECT COUNT(*) FROM a",
    ):
        with pytest.raises(NotSupported) as e:
            check(text)
        assert e.value.line == 2 and e.value.column and e.value.hint
    with pytest.raises(NotSupported):
        check_growth(parse_condition(f"'x' = {expression}"), parse("SELECT 1").script.place)


@pytest.mark.parametrize("expression", SMALL)
def test_what_stays_small_is_not(expression: str) -> None:
    check(f"SELECT n, {expression} AS x FROM t WHERE {expression} IS NOT NULL")


@pytest.mark.parametrize("text", CHAINS)
def test_statements(text: str) -> None:
    with pytest.raises(NotSupported, match="this makes more than"):
        check(text)


def test_a_statement_alone_may_make_more() -> None:
    check("SELECT repeat('x', 1000000) AS x")
    check(f"INSERT INTO t VALUES (1, '{'x' * 500_000}')")
    check(f"UPDATE t SET s = '{'x' * 500_000}' WHERE n > 1")
    check(f"SELECT n FROM t WHERE s = '{'x' * 500_000}'")
    with pytest.raises(NotSupported, match="5,000,000 bytes"):
        check("SELECT repeat('x', 6000000) AS x")
