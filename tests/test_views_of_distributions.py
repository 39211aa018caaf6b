"""Variances and percentiles of views are kept by changes, with and without groups."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from math import inf, isclose, nan
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond import App
from millpond.records.ordered_counts import OrderedCounts
from millpond.records.spread import Quantile, Spread
from millpond.records.values import Unfit

SQL = "CREATE TABLE a (id INT PRIMARY KEY, g INT, x INT, b BIGINT, n DECIMAL(10,2), f DOUBLE)"
CALLS = [
    *(f"{name}({column})" for name in ("STDDEV", "STDDEV_POP", "VARIANCE", "VAR_POP") for column in "xbnf"),
    *(f"MEDIAN({column})" for column in "xbnf"),
    *("PERCENTILE(f, 0.3)", "PERCENTILE(x, 1)", "PERCENTILE(n, 0)"),
    "PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY x)",
    "STDDEV(x) FILTER (WHERE x > 3)",
]
GROUPS = ("", " GROUP BY g", " GROUP BY g % 2")


def queries() -> list[str]:
    keys = {"": "", " GROUP BY g": "g, ", " GROUP BY g % 2": "g % 2 AS h, "}
    listed = ", ".join(f"{call} AS c{i}" for i, call in enumerate(CALLS))
    return [f"SELECT {keys[group]}{listed} FROM a{group}" for group in GROUPS]


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    def order(row: dict[str, Any]) -> str:
        return str(row.get("g", row.get("h")))

    return len(found) == len(wanted) and all(
        a == b or (a is not None and b is not None and isclose(a, b, rel_tol=1e-9, abs_tol=1e-9))
        for one, other in zip(sorted(found, key=order), sorted(wanted, key=order), strict=True)
        for a, b in zip(one.values(), other.values(), strict=True)
    )


def test_all_are_kept_by_changes_and_equal_their_queries() -> None:
    random = Random(1)
    with App(SQL) as app:
        rows = [
            {"id": i, "g": i % 5, "x": i * 7 % 13, "b": i * 10**6, "n": Decimal(i) / 4, "f": i / 3}
            for i in range(50)
        ]
        app.table("a").bulk_insert(rows)
        for i, query in enumerate(queries()):
            app.sql(f"CREATE TABLE v{i} WITH ('refresh' = 'incremental') AS {query}")
        for n in range(12):
            for _ in range(3):
                key = random.randrange(60)
                values = {
                    "g": random.choice((None, 1, 2, 3)),
                    "x": random.choice((None, random.randrange(-50, 50))),
                    "b": random.choice((None, 10 ** random.randrange(18))),
                    "n": Decimal(random.randrange(1_000)) / 4,
                    "f": random.choice((None, random.random() * 1e5)),
                }
                app.table("a").insert({"id": key, **values})
            app.sql("DELETE FROM a WHERE id = ?" if n != 8 else "DELETE FROM a", [3 * n] if n != 8 else [])
            app.drain()
            for i, query in enumerate(queries()):
                assert same(app.sql(f"SELECT * FROM v{i}").rows(), app.sql(query).rows()), (n, query)
        for view in app._runtime.views:
            assert view.by_changes.rounds >= 12, view.plan.text


def test_a_variance_is_what_it_would_be_without_what_came_and_went() -> None:
    kept = Spread(pa.float64(), 1, root=False)
    one, two = kept.start(), kept.start()
    for value in (1e300, 1e-300, 0.1, 0.2):
        kept.add(one, value, 1)
    for value in (1e300, 1e-300):
        kept.add(one, value, -1)
    for value in (0.2, None, 0.1):
        kept.add(two, value, 1)
    assert one == two and kept.read(one) == pytest.approx(0.005)
    kept.add(one, inf, 1)
    with pytest.raises(Unfit):
        kept.read(one)
    kept.add(one, inf, -1)
    assert kept.read(one) == kept.read(two)
    kept.add(one, 0.1, -1)
    assert kept.read(one) is None, "of a sample of one value"


def test_percentiles_are_those_of_numpy() -> None:
    random, values, state, kept = Random(2), Counter[float](), None, Quantile(0.37)
    state = kept.start()
    for n in range(3_000):
        value = float(random.randrange(2_000)) if n % 3 else random.choice([*values] or [0.0])
        times = 1 if n % 3 or not values[value] else -1
        values[value] += times
        values += Counter()
        kept.add(state, value, times)
        if n % 100 == 0 and values:
            there = np.array(sorted(values.elements()))
            assert kept.read(state) == pytest.approx(np.percentile(there, 37))
    kept.add(state, nan, 10_000)
    assert kept.read(state) != kept.read(state), "NaN is greater than all others"


def test_values_in_order_when_blocks_grow_and_vanish() -> None:
    random, counts = Random(3), Counter[int]()
    order = OrderedCounts(counts)
    for phase in range(4):
        for _ in range(3_000):
            value = random.randrange(5_000)
            if phase % 2 == 0:
                came = value not in counts
                counts[value] += 1
                order.changed(value, 1, came=came, went=False)
            elif value in counts:
                times = counts.pop(value)
                order.changed(value, -times, came=False, went=True)
        there = sorted(counts.elements())
        for place in {0, len(there) // 3, len(there) - 1}:
            assert order.at(place) == there[place]
    for value in list(counts):
        order.changed(value, -counts.pop(value), came=False, went=True)
    with pytest.raises(IndexError):
        order.at(0)
