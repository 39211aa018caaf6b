"""Every entry on both engines, over usual values and over the ends of the types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

FILES = sorted((Path(__file__).parent / "expressions").glob("*.txt"))


@pytest.mark.parametrize("rows", ["mild", "edge"])
@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_entries(engines: Any, file: Path, rows: str) -> None:
    """The files have one expression a line; each must be rendered and agree, row by row, also in what raises."""
    expressions = file.read_text(encoding="utf-8").splitlines()
    found = list(engines.differences(expressions, engines.values[rows]))
    assert not found, "\n".join(found)


INTEGERS = st.sampled_from(["i", "j", "l", "m", "i8", "i16", "1", "-3", "2147483647", "0"])
DECIMALS = st.sampled_from(["d", "e", "c", "1.5", "0.01", "-12.345"])
DOUBLES = st.sampled_from(["x", "y", "f", "1e3", "2.5D"])
STRINGS = st.sampled_from(["s", "t", "''", "'a'"])
BOOLEANS = st.sampled_from(["o", "p", "TRUE", "NULL"])


def _numbers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "%"]), inner),
        st.builds("(- {})".format, inner),
        st.builds("ABS({})".format, inner),
        st.builds("COALESCE({}, {})".format, inner, inner),
        st.builds("CASE WHEN {} < {} THEN {} ELSE {} END".format, inner, inner, inner, inner),
        st.builds("GREATEST({}, {})".format, inner, inner),
        st.builds("CAST({} AS DECIMAL(12,3))".format, inner),
        st.builds("CAST({} AS BIGINT)".format, inner),
        st.builds("NULLIF({}, {})".format, inner, inner),
    )


NUMBERS = st.recursive(st.one_of(INTEGERS, DECIMALS, DOUBLES), _numbers, max_leaves=5)
CONDITIONS = st.recursive(
    st.one_of(
        BOOLEANS, st.builds("({} {} {})".format, NUMBERS, st.sampled_from(["=", "<", ">=", "<=>"]), NUMBERS)
    ),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner),
        st.builds("(NOT {})".format, inner),
        st.builds("({} IS NULL)".format, inner),
    ),
    max_leaves=4,
)
TEXTS = st.recursive(
    STRINGS,
    lambda inner: st.one_of(
        st.builds("CONCAT({}, {})".format, inner, inner),
        st.builds("SUBSTRING({}, {}, {})".format, inner, st.integers(-4, 4), st.integers(-1, 5)),
        st.builds("UPPER({})".format, inner),
        st.builds("TRIM({})".format, inner),
        st.builds("IF({}, {}, {})".format, BOOLEANS, inner, inner),
    ),
    max_leaves=4,
)


EXPRESSIONS = given(st.lists(st.one_of(NUMBERS, CONDITIONS, TEXTS), min_size=25, max_size=50, unique=True))


def check(engines: Any, expressions: list[str]) -> None:
    """Made-up expressions: those that are rendered agree.

    DuckDB simplifies before it evaluates (``x AND FALSE``, ``(… IS NULL) IS NULL``, ``-i < 5``), so a part that
    does not matter may not raise. The other way round it must not raise where Spark has an answer.
    """
    accepted = ("not rendered", "Spark has 'raised'")
    for rows in ("mild", "edge"):
        differences = engines.differences(expressions, engines.values[rows])
        found = [d for d in differences if not any(a in d for a in accepted)]
        assert not found, "\n".join(found)


def form(examples: int) -> Any:
    return settings(
        max_examples=examples,
        phases=[Phase.generate],
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


test_any_expression = form(2)(EXPRESSIONS(check))
test_many_expressions = pytest.mark.chaos(form(60)(EXPRESSIONS(check)))
