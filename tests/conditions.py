"""Made-up conditions on a table with columns of every kind, and rows that they hold for now and then."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

COLUMNS = "id INT PRIMARY KEY, i INT, l BIGINT, d DECIMAL(12,3), f DOUBLE, s STRING, b BOOLEAN, day DATE, at TIMESTAMP"
NAN, INF = float("nan"), float("inf")
VALUES: dict[str, list[Any]] = {
    "i": [None, 0, 1, -1, 7, 2**31 - 1, -(2**31)],
    "l": [None, 0, 5, -5, 2**63 - 1, -(2**63), 2**53 + 1],
    "d": [
        None,
        Decimal("0"),
        Decimal("0.001"),
        Decimal("-0.001"),
        Decimal("10"),
        Decimal("9.5"),
        Decimal("-100.25"),
    ],
    "f": [None, 0.0, -0.0, 0.1, -1.5, NAN, INF, -INF, 1e300],
    "s": [None, "", "a", "A", "ab", "abc", "b", "ž", "z", "10", "9", "🐎", "a%", "it's"],
    "b": [None, True, False],
    "day": [None, date(1, 1, 1), date(2024, 2, 29), date(2024, 3, 1), date(9999, 12, 31)],
    "at": [
        None,
        datetime(1900, 1, 1, tzinfo=UTC),
        datetime(2024, 3, 1, tzinfo=UTC),
        datetime(2024, 3, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(2024, 3, 1, 12, 30, tzinfo=UTC),
    ],
}
CONSTANTS: dict[str, list[str]] = {
    "i": ["0", "1", "-1", "7", "2147483647", "-2147483648", "1.5", "7.0", "99999999999"],
    "l": ["0", "5", "-5", "9223372036854775807", "9007199254740993", "5.0"],
    "d": ["0", "0.001", "-0.001", "10", "9.5", "9.50", "10.0004", "-100.25", "123456789012345"],
    "f": ["0", "0.1", "-1.5", "1", "1000.25"],
    "s": ["''", "'a'", "'ab'", "'b'", "'ž'", "'10'", "'🐎'", "'it\\'s'"],
    "b": ["true", "false"],
    "day": ["DATE '2024-02-29'", "'2024-03-01'", "DATE '0001-01-01'"],
    "at": [
        "TIMESTAMP '2024-03-01 00:00:00'",
        "'2024-03-01 12:30:00'",
        "TIMESTAMP '2024-03-01 00:00:00.000001'",
    ],
}


OTHERS = [
    "CAST(i AS BIGINT) + 1 > 1",
    "length(s) = 1",
    "i > l",
    "l < i",
    "d > i",
    "d = f",
    "i % 2 = 1",
    "d * 2 >= 1.5",
    "upper(s) = 'A'",
    "s || 'b' = 'ab'",
    "substring(s, 1, 1) = 'a'",
    "abs(f) > 1",
    "f / 2 < 0.5",
    "coalesce(i, 7) = 7",
    "CASE WHEN b THEN i ELSE l END > 0",
    "IF(i IS NULL, d, 9.5) > 1",
    "nullif(i, 1) IS NULL",
    "greatest(i, 3) = 3",
    "year(day) = 2024",
    "date_add(day, 1) > DATE '2024-03-01'",
    "CAST(at AS DATE) = day",
    "CAST(i AS STRING) = '7'",
    "s RLIKE '^a'",
    "s IN ('a', NULL)",
    "i NOT IN (1, NULL)",
    "b = (i > 0)",
    "s < 'b' IS TRUE",
    "isnan(f)",
    "f = double('NaN')",
    "round(d, 1) = 9.5",
]


def condition(chance: random.Random, depth: int = 0) -> str:
    kind = chance.random()
    if depth < 3 and kind < 0.35:
        word = chance.choice(["AND", "OR"])
        return f"({condition(chance, depth + 1)} {word} {condition(chance, depth + 1)})"
    if depth < 3 and kind < 0.45:
        return f"NOT ({condition(chance, depth + 1)})"
    column = chance.choice(list(VALUES))
    constant = chance.choice(CONSTANTS[column])
    form = chance.randrange(8)
    if form == 0:
        return f"{column} IS {chance.choice(['', 'NOT '])}NULL"
    if form == 1:
        return f"{column} BETWEEN {constant} AND {chance.choice(CONSTANTS[column])}"
    if form == 2:
        listed = ", ".join(chance.sample(CONSTANTS[column], 2))
        return f"{column} {chance.choice(['', 'NOT '])}IN ({listed})"
    if form == 3:
        return f"s LIKE '{chance.choice(['a%', 'ab%', '%b', 'a_', 'ž%', 'it%', 'a%c', ''])}'"
    if form == 4:
        return chance.choice(OTHERS)
    operator = chance.choice(["=", "!=", "<", "<=", ">", ">=", "<>", "<=>"])
    return f"{constant} {operator} {column}" if form == 5 else f"{column} {operator} {constant}"


def rows(count: int, seed: int = 11, *, finite: bool = False) -> list[dict[str, Any]]:
    """Rows, if need be without NaN and infinities."""
    chance = random.Random(seed)
    values = {**VALUES, "f": [v for v in VALUES["f"] if not finite or v is None or math.isfinite(v)]}
    return [{"id": n, **{c: chance.choice(v) for c, v in values.items()}} for n in range(count)]


def narrowed(chance: random.Random) -> str:
    """A condition that an index may answer: equality, and perhaps more."""
    column = chance.choice(["id", *VALUES])
    value = str(chance.randrange(420)) if column == "id" else chance.choice(CONSTANTS[column])
    equal = f"{column} = {value}"
    return f"{equal} AND {condition(chance, 2)}" if chance.random() < 0.7 else equal
