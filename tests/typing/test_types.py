"""Every operator over every pair of types: the result type, and what is refused, are as in Spark's analyser."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from millpond.errors import TypeMismatch
from millpond.sql.typing import type_of

OPERANDS = ("i", "l", "f", "d", "g", "s", "o", "dt", "ts", "tn", "a", "st", "NULL", "1", "1.5")
OPERATORS = (
    "{} + {}", "{} - {}", "{} * {}", "{} / {}", "{} % {}", "{} DIV {}", "{} = {}", "COALESCE({}, {})",
    "{} AND {}", "GREATEST({}, {})", "{} & {}", "ARRAY({}, {})", "NULLIF({}, {})", "{} IN ({})",
)  # fmt: skip

# INTERVAL DAY has no Arrow type of its own: it is the duration that INTERVAL DAY TO SECOND is.
SPELLINGS = {"interval day": "interval day to second"}


def spark_type(engines: Any, expression: str) -> str:
    from pyspark.errors import AnalysisException

    try:
        found = engines.spark.sql(f"SELECT {expression} AS c FROM typed").schema[0].dataType.simpleString()
    except AnalysisException:
        return "refused"
    return SPELLINGS.get(found, found)


def our_type(engines: Any, expression: str) -> str:
    tree = engines.resolve(f"SELECT {expression} AS c FROM t", {"t": engines.schema})
    try:
        found = type_of(tree.selects[0])
    except TypeMismatch:
        return "refused"
    return "unknown" if found is None else engines.spelled(found)


@pytest.mark.parametrize("operator", OPERATORS)
def test_some_pairs(engines: Any, operator: str) -> None:
    """A fourth of them: others for each operator, each type on both sides."""
    pairs = list(product(OPERANDS, repeat=2))
    check_pairs(engines, operator, pairs[OPERATORS.index(operator) % 4 :: 4])


@pytest.mark.chaos
@pytest.mark.parametrize("operator", OPERATORS)
def test_pairs(engines: Any, operator: str) -> None:
    check_pairs(engines, operator, list(product(OPERANDS, repeat=2)))


def check_pairs(engines: Any, operator: str, pairs: list[tuple[str, str]]) -> None:
    engines.create_view("typed")
    wrong = []
    for left, right in pairs:
        expression = operator.format(left, right)
        ours, theirs = our_type(engines, expression), spark_type(engines, expression)
        if ours != theirs:
            wrong.append(f"{expression}: {ours}, Spark has {theirs}")
    assert not wrong, "\n".join(wrong)
