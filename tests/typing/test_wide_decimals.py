"""Arithmetic of decimals whose exact results have more than 38 digits: Spark's values, and its overflows."""

from __future__ import annotations

import random
from decimal import Context, Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millpond.engine.row_transfer import to_frame
from millpond.query.decimals import functions_in
from millpond.sql.typing import decimals

TYPES = [
    pa.decimal128(*t) for t in ((38, 19), (38, 18), (38, 6), (38, 0), (38, 38), (20, 0), (10, 2), (37, 30))
]
RESULTS = {
    "add": decimals.add,
    "subtract": decimals.add,
    "multiply": decimals.multiply,
    "divide": decimals.divide,
}


def column(chance: random.Random, dtype: pa.DataType, rows: int) -> pa.Array:
    """Numbers of every length, with few and many digits, halves, and the edges."""
    edge = 10**dtype.precision - 1
    found: list[int | None] = [None, 0, 1, -1, edge, -edge, 5, -5, 10 ** (dtype.precision - 1)]
    while len(found) < rows:
        size = chance.randint(1, dtype.precision)
        number = chance.randrange(10 ** (size - 1), 10**size)
        if chance.random() < 0.5:  # few digits, as in prices
            cut = 10 ** chance.randint(0, size - 1)
            number = number // cut * cut + chance.choice((0, cut // 2))
        found.append(min(number, edge) * chance.choice((1, -1)))
    chance.shuffle(found)
    scaled = [None if n is None else Decimal(n).scaleb(-dtype.scale, Context(prec=80)) for n in found[:rows]]
    return pa.array(scaled, dtype)


def ours(function: Any, a: pa.Array, b: pa.Array) -> list[Decimal | None]:
    """Each row by itself: NULL where it raises, as the try_ functions have it."""
    found: list[Decimal | None] = []
    for i in range(len(a)):
        try:
            found += function(a.slice(i, 1), b.slice(i, 1)).to_pylist()
        except ValueError as error:
            assert "Overflow" in str(error) or "Division by zero" in str(error)
            found.append(None)
    return found


@pytest.mark.parametrize("operation", RESULTS)
def test_as_spark_computes(spark: SparkSession, operation: str) -> None:
    chance = random.Random(7)
    for left, right in product(TYPES, TYPES):
        result = RESULTS[operation](left, right)
        name = "_".join(str(n) for t in (left, right, result) for n in (t.precision, t.scale))
        ((_, function, _, _),) = functions_in(f"decimal_{operation}_{name}(a, b)")
        a, b = column(chance, left, 60), column(chance, right, 60)
        table = pa.table({"a": a, "b": b, "n": pa.array(range(60))})
        to_frame(spark, table).createOrReplaceTempView("wide")
        rows = spark.sql(f"SELECT n, try_{operation}(a, b) AS x FROM wide").toArrow().sort_by("n")
        assert rows["x"].type == result
        assert ours(function, a, b) == rows["x"].to_pylist(), (left, right)
        # All at once, of those that do not raise, is the same.
        fine = pa.array([x is not None for x in rows["x"].to_pylist()])
        whole = function(a.filter(fine), b.filter(fine))
        assert whole.to_pylist() == rows["x"].filter(fine).to_pylist()
