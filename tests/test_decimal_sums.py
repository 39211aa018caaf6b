"""Sums and differences of decimals have all digits, whatever DuckDB computes them in."""

from __future__ import annotations

from decimal import Context, Decimal
from itertools import combinations_with_replacement

import pytest

from millpond import App

TYPES = [(1, 0), (3, 3), (4, 1), (9, 2), (15, 2), (17, 0), (17, 16), (18, 0), (18, 2), (18, 18)]
WIDE = [(19, 0), (19, 2), (20, 20), (30, 4), (37, 0), (37, 20)]
EXACT = Context(prec=100)


def most(precision: int, scale: int) -> Decimal:
    return EXACT.scaleb(Decimal(10**precision - 1), -scale)


def spark_type(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    scale = max(a[1], b[1])
    return max(a[0] - a[1], b[0] - b[1]) + scale + 1, scale


@pytest.mark.parametrize("symbol", ["+", "-"])
def test_the_greatest_and_the_least_have_all_digits(symbol: str) -> None:
    pairs = [p for p in combinations_with_replacement([*TYPES, *WIDE], 2) if spark_type(*p)[0] <= 38]
    assert len(pairs) > 100
    columns = ", ".join(f"c{i} DECIMAL({p}, {s})" for i, (p, s) in enumerate([*TYPES, *WIDE]))
    at = {t: i for i, t in enumerate([*TYPES, *WIDE])}
    outputs = ", ".join(f"c{at[a]} {symbol} c{at[b]} AS r{n}" for n, (a, b) in enumerate(pairs))
    with App(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", engine="process") as app:
        for sign in (1, -1):
            other = sign if symbol == "+" else -sign
            app.sql("TRUNCATE t")
            rows = [
                {"id": which} | {f"c{i}": EXACT.multiply(s, most(*t)) for t, i in at.items()}
                for which, s in ((0, sign), (1, other))
            ]
            app.table("t").bulk_insert(rows)
            text = ", ".join(f"a.c{at[a]} {symbol} b.c{at[b]} AS r{n}" for n, (a, b) in enumerate(pairs))
            found = app.sql(f"SELECT {text} FROM t AS a JOIN t AS b ON a.id = 0 AND b.id = 1")
            (row,) = found.rows()
            for n, (a, b) in enumerate(pairs):
                add = EXACT.add if symbol == "+" else EXACT.subtract
                assert row[f"r{n}"] == add(EXACT.multiply(sign, most(*a)), EXACT.multiply(other, most(*b))), (
                    a,
                    b,
                )
        types = app.sql(f"SELECT {outputs} FROM t").to_arrow().schema.types
        assert [(t.precision, t.scale) for t in types] == [spark_type(a, b) for a, b in pairs]
