"""Spark's own SQL tests, on Spark and here: nothing silently different, no foreign message, no fewer equal answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from tests.oracle.suite import files
from tests.oracle.suite.oracle import Theirs
from tests.oracle.suite.ours import Outcome, outcomes
from tests.oracle.suite.share import answered, fewer_than_before, share

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT = (
    "natural-join",
    "group-by-all",
    "subquery/exists-subquery/exists-having",
    "subquery/in-subquery/in-null-semantics",
    "qualify",
)
PIECES = 12
SILENT = ("value", "type", "answered", "quiet", "foreign")
"""What a user would not see, or should not have to read. A refusal in our own words is told by the share."""


def test_some_files(spark: SparkSession) -> None:
    _compare(spark, SHORT)


@pytest.mark.chaos
@pytest.mark.spark
@pytest.mark.parametrize("piece", range(PIECES))
def test_all_files(spark: SparkSession, piece: int) -> None:
    _compare(spark, files.names()[piece::PIECES])


def _compare(spark: SparkSession, names: Sequence[str]) -> None:
    theirs = Theirs(spark)
    found = {name: list(outcomes(theirs.run(name))) for name in names}
    counts = {name: Counter(o.how for o in made) for name, made in found.items()}
    print(f"\nequal answers: {share(counts):.1%} of {sum(answered(c) for c in counts.values())}")
    reports = [f"{n}: {text}" for n, made in found.items() for text in _wrong(made)]
    assert not reports, f"{len(reports)} differ:\n" + "\n".join(reports[:20])
    fewer = list(fewer_than_before(counts))
    assert not fewer, "\n".join(fewer)


def _wrong(made: Sequence[Outcome]) -> Iterator[str]:
    for one in made:
        if one.how in SILENT and not one.explained:
            yield f"{one.how}: {one.text}\n  Spark: {one.spark[:500]}\n  here:  {one.ours[:500]}"
