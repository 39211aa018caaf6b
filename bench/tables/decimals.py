"""F17: an exact sum of decimals, beside the same in floats and in Python's Decimal."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa

from bench.figure import Figure
from bench.tables.measure import best_rates
from millpond import Table


def run(rows: int) -> Iterator[Figure]:
    cents = pa.array(np.random.default_rng(7).integers(0, 10_000_000, rows)).cast(pa.decimal128(19, 0))
    money = pa.Array.from_buffers(pa.decimal128(12, 2), rows, cents.buffers())
    table = Table({"id": "BIGINT", "price": "DECIMAL(12,2)", "approx": "DOUBLE"}, key="id")
    table.bulk_insert(pa.table({"id": np.arange(rows), "price": money, "approx": money.cast(pa.float64())}))
    values = money.to_pylist()
    total = sum(values, Decimal(0))

    def by_us() -> int:
        assert table.sql_scalar("SUM(price)") == total
        return rows

    def as_float() -> int:
        table.sql_scalar("SUM(approx)")
        return rows

    def in_python() -> int:
        assert sum(values, Decimal(0)) == total
        return rows

    ours, floats, python = best_rates([by_us, as_float, in_python], seconds=2)
    yield Figure("F17", f"exact SUM of {rows:,} decimals", ours, floats, "SUM of floats", "values")
    yield Figure("F17", f"exact SUM of {rows:,} decimals", ours, python, "Python's Decimal", "values")
