"""Generated expressions over edge values: values, types and refusals are Spark's, on every path.

``Generator(seed)`` makes the same expressions each time; what a test reports can be asked again by its text alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from millpond.sql.functions import function_classes
from tests.oracle.compare import Oracle
from tests.oracle.generate import FORMS, ORDERED, Generator, functions
from tests.oracle.our_side import OurGroups, OurSide
from tests.oracle.spark_side import SparkGroups, SparkSide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOGETHER = 500
"""How many come from one seed: they are compared together, many to a SELECT."""


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Oracle:
    theirs = SparkSide(spark)
    return Oracle(theirs, OurSide(theirs.rows))


@pytest.fixture(scope="module")
def groups(spark: SparkSession) -> Oracle:
    theirs = SparkGroups(spark)
    return Oracle(theirs, OurGroups(theirs.rows))


def check(oracle: Oracle, made: dict[str, list[str]]) -> None:
    """``made`` is what to compare, by where it comes from."""
    wrong = [f"{name}, {found}" for name, texts in made.items() for found in oracle.unexplained(texts)]
    count = sum(map(len, made.values()))
    assert not wrong, f"{len(wrong)} of {count}:\n" + "\n".join(wrong[:50])


def expressions(seeds: range, count: int) -> dict[str, list[str]]:
    return {f"seed {s}": [str(e) for e in Generator(s).expressions(count)] for s in seeds}


def aggregates(seeds: range, count: int) -> dict[str, list[str]]:
    return {f"aggregates of seed {s}": [str(e) for e in Generator(s).aggregates(count)] for s in seeds}


def test_expressions(rows: Oracle) -> None:
    check(rows, expressions(range(1), TOGETHER))


def test_aggregates(groups: Oracle) -> None:
    check(groups, aggregates(range(2), 60))


@pytest.mark.chaos
@pytest.mark.parametrize("piece", range(19))
def test_many_expressions(rows: Oracle, piece: int) -> None:
    """95,000 of them, in pieces of 5,000."""
    check(rows, expressions(range(1000 + 10 * piece, 1010 + 10 * piece), TOGETHER))


@pytest.mark.chaos
@pytest.mark.parametrize("piece", range(5))
def test_many_aggregates(groups: Oracle, piece: int) -> None:
    """5,000 of them, in pieces of 1,000."""
    check(groups, aggregates(range(1000 + 10 * piece, 1010 + 10 * piece), 100))


# What makes rows, and windows, have tests of their own; sketches of tuples are like those of theta.
ELSEWHERE = re.compile(
    r"explode|inline|stack|json_tuple|range$|window|cume_dist|rank$|row_number|ntile|nth_value|^lag$|^lead$|grouping|avro"
    r"|^tuple_|^st_|^kll_merge_agg|^approx_top_k_combine$|^measure$|^collect$|^covar$|^timediff$"
)


def test_every_pure_function_is_called() -> None:
    called = {call.name for file in ("functions", "aggregates") for call in functions(file)}
    words = " ".join([*(form for _, form, _ in FORMS), *(form for form, _ in ORDERED)]).lower()
    missing = {
        name
        for name, kind in function_classes().items()
        if kind == "pure" and name not in called and f"{name}(" not in words and not ELSEWHERE.search(name)
    }
    assert not missing
