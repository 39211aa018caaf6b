"""Made-up queries of every shape, on Spark and here, on every path: the same rows, types and refusals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from tests.oracle.engines import Oracle, planned
from tests.oracle.paths import compare, compare_streams
from tests.oracle.search import Found, search
from tests.oracle.shapes import Statement, World, lookup_statement, statement, stream_statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECES = [f"piece {n}" for n in range(20)]
"""Seeds of the full form: of each 400 queries in process, of these 60 also by Spark and as live views, 100 running
statements, and 100 that an index answers: 14,400 in all."""
FORMS = {"index": lookup_statement, "stream": stream_statement}


@pytest.fixture(scope="module")
def oracle(spark: SparkSession) -> Iterator[Oracle]:
    with planned(spark):
        yield Oracle(spark)


@pytest.mark.parametrize(
    ("seed", "path", "count"),
    [
        ("short", "index", 60),
        ("short", "duckdb", 24),
        ("short", "spark", 6),
        ("short", "view", 6),
        ("short", "stream", 6),
    ],
)
def test_some_shapes(oracle: Oracle, seed: str, path: str, count: int) -> None:
    _find(oracle, seed, path, count, shortened=0)


@pytest.mark.chaos
@pytest.mark.spark
@pytest.mark.parametrize(
    ("path", "count"),
    [("index", 100), ("duckdb", 400), ("spark", 60), ("view", 60), ("stream", 100)],
)
@pytest.mark.parametrize("seed", PIECES)
def test_many_shapes(oracle: Oracle, seed: str, path: str, count: int) -> None:
    _find(oracle, seed, path, count, shortened=3)


def _find(oracle: Oracle, seed: str, path: str, count: int, shortened: int) -> None:
    def tables(statements: Sequence[Statement], world: str) -> Iterator[Found]:
        return compare(statements, World(world), oracle, paths=[path])

    def streams(statements: Sequence[Statement], world: str) -> Iterator[Found]:
        return compare_streams(statements, World(world), oracle)

    differ = streams if path == "stream" else tables
    found = search(seed, range(count), FORMS.get(path, statement), differ, shortened)
    assert not found, f"{len(found)} of {count} differ:\n" + "\n".join(found)
