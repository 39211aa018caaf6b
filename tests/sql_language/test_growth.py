"""How large texts and lists become that a statement makes: told from its text, before anything is made."""

from __future__ import annotations

import pytest
from sqlglot import exp

from millpond import App
from millpond.errors import NotSupported
from millpond.sql.growth import check_growth
from millpond.sql.parse import parse, parse_condition
from millpond.sql.render.duckdb.expression import Expressions

LARGE = [
    "repeat('a', CAST(TIMESTAMP '1971-01-01' AS INT))",
    "repeat('a', CAST(CAST('1971' AS TIMESTAMP) AS INT))",
    "repeat('a', CAST(least(CAST('nan' AS DOUBLE), 30000000) AS INT))",
    "space(CAST(CAST('9999' AS INTERVAL DAY) AS INT))",
    "sequence(1, CAST(DATE '9999-01-01' AS INT))",
    "repeat('a', CAST(CAST('inf' AS DOUBLE) - least(n, 5) AS INT))",
    "window(t, '100 days', '2 hours -7199 seconds')",
    "count_min_sketch(n, greatest(0.00000001D, least(CAST(length('') AS DOUBLE), 0.5D)), 0.5D, 1)",
    "count_min_sketch(n, least(CAST(n AS DOUBLE), 0.5D), 0.5D, 1)",
    "bround(CAST(1.5 AS DOUBLE), '100000000')",
    "round(CAST(1.5 AS DOUBLE), '-100000000')",
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
    "repeat('x', -least(n, 80))",
    "repeat('x', 0 - least(n, 80))",
    "repeat('x', least(n, 80) * least(m, 80))",
    "repeat('x', least(n, CAST(NULL AS INT)))",
    "repeat('x', least(n, TRY_CAST('1_0' AS INT)))",
    "sequence(least(n, 1), 10)",
    "sequence(1, least(n, 50))",
    "format_number(1.5, 2000000000)",
    "format_number(n, m)",
    "round(1.5, -100000000)",
    "bround(n, 100000000)",
    "ceil(1.5, -100000000)",
    "floor(n, 100000000)",
    "array_insert(a, 2000000000, 1)",
    "array_insert(a, -2000000000, 1)",
    "array_insert(a, least(n, 5), 1)",
    "histogram_numeric(n, 2000000000)",
    "length(count_min_sketch(n, 0.000000001D, 0.99D, 1))",
    "window(t, '10000 days', '1 millisecond')",
    "window(t, INTERVAL '10000' DAY, INTERVAL '1' SECOND)",
    "length(randstr(2000000000))",
    "levenshtein(repeat('a', 19000), repeat('b', 19000))",
    "array_join(split(s, ''), repeat('x', 10000))",
    "concat_ws(repeat('x', 10000), split(s, ''))",
    "format_string('" + "%1$s" * 1_200 + "', s)",
    "flatten(transform(a, x -> flatten(transform(a, y -> a))))",
    "flatten(zip_with(a, b, (x, y) -> flatten(transform(a, z -> b))))",
    "aggregate(a, 'x', (acc, x) -> hex(acc))",
    "aggregate(a, 'x', (acc, x) -> to_json(array(acc)))",
    *("(".join([call] * 12) + "(s" + ")" * 12 for call in ("hex", "base64", "url_encode", "quote")),
    "(".join(["to_json(array"] * 6) + "(s" + "))" * 6,
    "(".join(["decode(encode"] * 6) + "(s" + ", 'UTF-32'), 'ISO-8859-1')" * 6,
]
SMALL = [
    "repeat('x', CAST('10' AS INT))",
    "count_min_sketch(n, 0.1D, 0.5D, 1)",
    "window(t, '1 hour', '5 minutes')",
    "round(d, 2)",
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
    "sequence(1, greatest(1, least(n, 50)))",
    "sequence(DATE '2024-01-01', day)",
    "sequence(DATE '2024-01-01', DATE '2024-12-31')",
    "sequence(t, u, INTERVAL 1 DAY)",
    "transform(a, x -> x || '!')",
    "aggregate(a, 0, (acc, x) -> acc + x)",
    "CASE " + " ".join(f"WHEN n = {i} THEN 'name {i}'" for i in range(1_000)) + " END",
    "format_string('%05d %s', n, s)",
    "array_repeat(0, 100)",
    "repeat('#', greatest(0, least(n, 80)))",
    "repeat('x', NULL)",
    "sequence(10, 1)",
    "sequence(10, 1, -1)",
    "format_number(n, 2)",
    "format_number(n, '#,###.##')",
    "round(n, 2) + round(n) + bround(n, -2) + ceil(n, 1) + floor(n)",
    "array_insert(a, 3, s)",
    "array_insert(a, -1, s)",
    "array_insert(a, greatest(1, least(n, 5)), s)",
    "histogram_numeric(n, 50)",
    "count_min_sketch(n, 0.1D, 0.9D, 1)",
    "window(t, '10 minutes')",
    "window(t, '1 hour', '5 minutes')",
    "randstr(12)",
    "levenshtein(s, 'a word')",
    "array_join(a, ', ')",
    "concat_ws(', ', s, t, a)",
    "concat_ws(s, a, b)",
    "format_string('%s %s %s', s, t, n)",
    "transform(a, (x, i) -> concat(i, ': ', x, ' ', s))",
    "zip_with(a, b, (x, y) -> x + y)",
    "transform_values(m, (k, v) -> v * 2)",
    "aggregate(a, '', (acc, x) -> concat(acc, ', ', x))",
    "to_json(struct(s, t, n))",
    "hex(md5(s)) || base64(encode(s, 'UTF-8')) || url_encode(s)",
]


def doubled(call: str) -> str:
    """Columns of a SELECT list, each of which names the one before it twice."""
    listed = [call.format("s") + " AS a0", *(call.format(f"a{i}") + f" AS a{i + 1}" for i in range(30))]
    return f"SELECT {', '.join(listed)} FROM t"


def inside(call: str) -> str:
    """Queries one inside of the other, which do so."""
    query = "SELECT s AS a FROM t"
    for _ in range(12):
        query = f"SELECT {call.format('a')} AS a FROM ({query})"
    return query


CHAINS = [
    *(doubled(call) for call in ("concat({0}, {0})", "{0} || {0}", "array({0}, {0})", "struct({0}, {0})")),
    *(inside(call) for call in ("concat({0}, {0})", "array({0}, {0})", "struct({0}, {0})")),
    "FROM t" + " |> SET s = concat(s, s)" * 20,
    "SELECT repeat(c, 3) AS a, transform(arr, c -> a) AS b, repeat(a, 900) AS d FROM t",
    "SELECT length(a19) FROM t, LATERAL (SELECT concat(s, s) AS a0)"
    + "".join(f", LATERAL (SELECT concat(a{i}, a{i}) AS a{i + 1})" for i in range(19)),
    "SELECT * FROM stack(1000000, 1)",
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


def test_a_query_that_reads_itself_is_refused() -> None:
    with pytest.raises(NotSupported, match="does not read itself") as e:
        check(
            "WITH RECURSIVE r(n, s) AS (SELECT 1, 'x' UNION ALL SELECT n + 1, s || s FROM r) SELECT n FROM r"
        )
    assert e.value.hint


def test_names_of_the_list_may_be_used_again() -> None:
    check("SELECT n * 2 AS a, a + 1 AS b, a + b AS c, concat(s, '!') AS d, upper(d) AS e FROM t")
    check("SELECT concat(s, s) AS s, concat(s, 'x') AS t FROM t")


def test_a_statement_alone_may_make_more() -> None:
    check("SELECT repeat('x', 1000000) AS x")
    check(f"INSERT INTO t VALUES (1, '{'x' * 500_000}')")
    check(f"UPDATE t SET s = '{'x' * 500_000}' WHERE n > 1")
    check(f"SELECT n FROM t WHERE s = '{'x' * 500_000}'")
    with pytest.raises(NotSupported, match="5,000,000 bytes"):
        check("SELECT repeat('x', 6000000) AS x")


def test_an_operand_is_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards name operands several times; what is inside of them must not double with every level."""
    rendered: list[exp.Expr] = []
    plain = Expressions._render

    def noted(self: Expressions, node: exp.Expr) -> str:
        rendered.append(node)
        return plain(self, node)

    monkeypatch.setattr(Expressions, "_render", noted)
    text = "a"
    for _ in range(7):
        text = f"({text} + {text})"
    with App("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)") as app:
        assert app.sql(f"SELECT {text} AS c FROM t").rows() == [{"c": 128}]
    assert len(rendered) == len({id(node) for node in rendered})
