"""UPDATE and DELETE as text and the methods of a table do the same, and fail alike."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from millpond import App, Error
from millpond.errors import CheckFailed
from tests.conditions import COLUMNS, CONSTANTS, condition, rows

KEYED = f"CREATE TABLE t ({COLUMNS})"
PLAIN = KEYED.replace(" PRIMARY KEY", "")

VALUES: dict[str, list[str]] = {
    "id": ["id", "id + 1000", "1000 - id", "7", "id % 10", "NULL", "9999999999"],
    "i": ["i + 1", "i * 2", "NULL", "id", "100 / (id - 7)", "'5'", "s", "l", "length(s)", "2.7", "i.x"],
    "l": ["l + i", "-l", "id * 1000000000", "CAST(d AS BIGINT)", "nosuch(l)", "l +"],
    "d": ["d * 2", "d / 3", "f", "d * 100000000", "0.0005", "i", "nosuch + 1", "sum(d)"],
    "f": ["f / 2", "i", "d", "s", "f * 1e300", "1 / 0"],
    "s": ["upper(s)", "s || i", "day", "NULL", "i", "substring(s, 1, 1)", "true", "'x"],
    "b": ["NOT b", "i > 0", "1", "s = 'a'", "NULL"],
    "day": ["date_add(day, 1)", "at", "'2024-05-05'", "DATE '2024-05-05'", "s", "i"],
    "at": ["day", "at + INTERVAL 1 DAY", "TIMESTAMP '2024-03-01 00:00:00'", "'2024-03-01 00:00:00'", "i"],
}
WRONG = [
    "nosuch = 1", "i > s", "i", "i +", "nosuch(i) = 1", "t.i = 1", "u.i = 1", "sum(i) > 1", "i = 1 i", "",
    "i / 0 > 1", "CAST(s AS INT) = 1", "s = 'x", "row_number() OVER (ORDER BY id) = 1",
]  # fmt: skip

# Which row of several a failed cast names is whichever was read first.
VALUE = re.compile(r"cannot cast '[^']*'")


def assignments(chance: random.Random) -> str:
    names = chance.sample(list(VALUES), chance.choice([1, 1, 2, 3]))
    made = [f"{name} = {chance.choice(VALUES[name] + CONSTANTS.get(name, [])[:2])}" for name in names]
    odd = chance.random()
    if odd < 0.04:
        made.append(chance.choice(["nosuch = 1", made[0]]))
    return ", ".join(made)


def where(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.35:
        return f"id = {chance.randrange(70)}"
    if kind < 0.5:
        return chance.choice(WRONG)
    if kind < 0.6:
        return f"id < {chance.randrange(20)} AND {condition(chance, 2)}"
    return condition(chance)


def outcome(run: Callable[[], Any]) -> tuple[str, Any]:
    try:
        found = run()
        return "count", getattr(found, "count", found)
    except CheckFailed as error:
        return "several", sorted((type(e).__name__, e.message) for e in error.errors)
    except Error as error:
        return type(error).__name__, VALUE.sub("cannot cast a value", error.message)


def alike(one: tuple[str, Any], other: tuple[str, Any]) -> bool:
    """Of mistakes in both, the methods tell those of the condition first. What a half of the text cannot mean, the
    whole may call something else."""
    if one[0] == other[0] == "SqlSyntaxError":
        return True
    if one[0] == "several" and other[0] != "several":
        return other in one[1]
    if one[0] == other[0] == "several":
        return set(other[1]) <= set(one[1])
    return one == other


@pytest.mark.slow
@pytest.mark.parametrize("create", [KEYED, PLAIN], ids=["keyed", "plain"])
def test_statements_and_methods_agree(create: str) -> None:
    chance = random.Random(23)
    counts = failures = 0
    with App(create) as by_text, App(create) as by_method:
        text, method = by_text.table("t"), by_method.table("t")
        for number in range(150):
            if number % 20 == 0:
                for table in (text, method):
                    table.delete("true")
                    table.bulk_insert(rows(60, number))
            test, changes = where(chance), assignments(chance)
            if chance.random() < 0.2:
                one = outcome(lambda t=test: by_text.sql(f"DELETE FROM t WHERE {t}"))
                other = outcome(lambda t=test: method.delete(t))
                what = f"DELETE WHERE {test}"
            else:
                one = outcome(lambda t=test, c=changes: by_text.sql(f"UPDATE t SET {c} WHERE {t}"))
                other = outcome(lambda t=test, c=changes: method.update(t, c))
                what = f"UPDATE SET {changes} WHERE {test}"
            assert alike(one, other), (what, one, other)
            assert sorted(map(repr, text.all_rows())) == sorted(map(repr, method.all_rows())), what
            counts += one[0] == "count" and one[1] > 0
            failures += one[0] != "count"
    assert counts > 30 and failures > 30
