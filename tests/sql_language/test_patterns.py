"""Patterns that Java would match for ever are told from those that it would not."""

from __future__ import annotations

import re
import time

import pytest

from millpond import App
from millpond.errors import NotSupported
from millpond.sql.parse import parse
from millpond.sql.patterns import check_patterns, has_patterns, open_ended

SLOW = [
    "(a+)+$", "(a*)*b", "(a|a)*b", "(a|aa)+$", "([a-z]+)*x", "((a+)b?)+", "(?:a+){2,}", "(a+){10}", "(.*a){20}",
    "(a+)+\\1", "(\\w+)\\s\\1", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$", "(?<n>a+)+", ".*.*.*.*=",
    "a*a*a*a*b", "(?:(?:a+)b)*c", "(a?){30}a*", "([^,]*,)*x",
]  # fmt: skip
QUICK = [
    "", "abc", "^abc$", "a+b", "[a-z]+[0-9]*", "(abc)+", "(ab)*c", "^\\d{4}-\\d{2}$", "a|b|c", "(a|b)c", "\\(a+\\)+",
    "[(a+)]+", "id=([^&]*)", "(&|^)id=([^&]*)", "\\Q(a+)+\\E", "(?i)error", "a{3}", "colou?r", "\\s+",
]  # fmt: skip


@pytest.mark.parametrize("pattern", SLOW)
def test_slow(pattern: str) -> None:
    assert open_ended(pattern) is None


@pytest.mark.parametrize("pattern", QUICK)
def test_quick(pattern: str) -> None:
    assert open_ended(pattern) is not None


def check(text: str) -> None:
    parsed = parse(text, {})
    check_patterns(parsed.require(), parsed.script.place)


@pytest.mark.parametrize(
    "condition",
    [
        "s RLIKE '(a+)+$'",
        "regexp_replace(s, '(a+)+$', 'x') = 'x'",
        "regexp_count(s, '(a+)+$') > 1",
        "size(split(s, '(a+)+$')) > 1",
        "s RLIKE s",
        "s RLIKE concat('(a', '+)+$')",
        "s LIKE '%a%a%a%'",
        "s LIKE ANY ('b', '%a%a%a%')",
        "s ILIKE '%a%b%c'",
        "s LIKE t",
        "like(s, '%a%a%b')",
        "NOT (id = 1 AND EXISTS (SELECT 1 FROM u WHERE s RLIKE '(a+)+$'))",
    ],
)
def test_refused(condition: str) -> None:
    with pytest.raises(NotSupported) as e:
        check(f"SELECT id FROM t\nWHERE {condition}")
    assert e.value.hint and e.value.line == 2


COPIES = ", ".join(["s"] * 50)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT regexp_count(repeat('a', 4000000), 'a*?a*?a*?b')",
        "SELECT regexp_count(repeat('a', 4000000), 'a+b')",
        "SELECT repeat('a', 1500) RLIKE '[a-z]+[0-9]*'",
        "SELECT regexp_count(x, 'a+a+a+b') FROM (SELECT repeat('a', 15000) AS x FROM t)",
        "WITH w AS (SELECT lpad('a', 15000, 'a') AS x) SELECT 1 FROM w WHERE x RLIKE 'a*a*b'",
        f"SELECT regexp_count('{'a' * 30_000}', 'a+b')",
        f"SELECT regexp_count(concat({COPIES}), 'a+a+a+b') FROM t",
        "SELECT size(split(space(25000), ' +x')) FROM (VALUES (1))",
        f"SELECT '{'a' * 30_000}' LIKE 'a%b'",
        "SELECT listagg('aaaa', '') RLIKE '(?=a)a.*b.*c' FROM t",
        "SELECT array_join(collect_list(s), '') RLIKE 'a+b' FROM t",
        "SELECT n FROM (SELECT listagg(s, '') AS x FROM t) WHERE x RLIKE 'a+'",
        "SELECT hex(repeat('a', 180)) RLIKE 'a.*b.*c.*d'",
    ],
)
def test_texts_too_long_for_their_pattern(statement: str) -> None:
    with pytest.raises(NotSupported) as e:
        check(statement)
    assert e.value.hint and e.value.place


def test_texts_of_any_length_for_patterns_of_one_way() -> None:
    check(f"SELECT regexp_count('{'a' * 30_000}', 'a|b'), repeat('a', 4000000) RLIKE '^abc$'")


def test_let_through() -> None:
    for condition in (
        "concat(s, ' ', t) RLIKE 'a+b'",
        "upper(trim(s)) RLIKE '[a-z]+[0-9]*'",
        "regexp_replace(s, '(&|^)id=([^&]*)', 'x') = 'x'",
        "repeat(s, 3) RLIKE 'a+'",
        "s LIKE '%a%'",
        "s LIKE 'a%b'",
        "s LIKE '%a%b%'",
        "s RLIKE '^a+'",
        "split(s, ',')[0] = 'a'",
    ):
        check(f"SELECT id FROM t WHERE {condition}")
    assert has_patterns(parse("SELECT s LIKE 'x'").require()) and not has_patterns(
        parse("SELECT 1").require()
    )


def test_like_with_many_wildcards_takes_no_time() -> None:
    """DuckDB's own LIKE would try all ways to divide the text: 10³⁰ of them."""
    with App("CREATE TABLE t (id INT PRIMARY KEY, s STRING)") as app:
        app.table("t").insert({"id": 1, "s": "a" * 20_000})
        for pattern in ("%a%a%a%a%_%a%a%a%b", "_%a%a%a%a%a%a%b", "%a%a%\\%%a%a%"):
            assert app.sql("SELECT s LIKE ? AS x, s ILIKE ? AS y FROM t", [pattern, pattern]).rows() == [
                {"x": False, "y": False}
            ]
        assert app.sql("SELECT s LIKE '%a%a%a%' AS x FROM t").rows() == [{"x": True}]


def test_what_is_called_quick_is() -> None:
    """Python matches as Java does, one way after the other."""
    for pattern in QUICK:
        if "\\Q" not in pattern:
            began = time.process_time()
            re.search(pattern, "a" * 3_000 + "!")
            re.search(pattern, "ab" * 1_500 + "!")
            assert time.process_time() - began < 60
