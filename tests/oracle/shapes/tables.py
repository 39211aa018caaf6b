"""The tables that statements are about: columns of equal names, keys and none, NULLs, duplicates, nested values."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
Change = str | tuple[str, list[Row]]
"""A statement, or rows that are put into a table."""
SCHEMAS: dict[str, dict[str, str]] = {
    "t1": {"id": "INT", "a": "INT", "b": "BIGINT", "s": "STRING", "d": "DECIMAL(10,2)", "ts": "TIMESTAMP"},
    "t2": {"id": "INT", "a": "INT", "c": "DOUBLE", "s": "STRING", "dt": "DATE"},
    "t3": {"k": "STRING", "a": "BIGINT", "d": "DECIMAL(6,3)", "o": "BOOLEAN", "n": "TIMESTAMP_NTZ"},
    "t4": {"id": "INT", "xs": "ARRAY<INT>", "m": "MAP<STRING,INT>", "st": "STRUCT<p:INT,q:STRING>"},
    "none": {"id": "INT", "a": "INT", "s": "STRING"},
}
KEYS = {"t1": "id", "t3": "k"}
_VALUES: dict[str, list[Any]] = {
    "INT": [None, 0, 1, 2, 3, -1],
    "BIGINT": [None, 0, 1, 2, 3, 10**10],
    "DOUBLE": [None, 0.0, 0.5, 1.0, 2.0, -1.5],
    "STRING": [None, "", "a", "b", "A", "ab"],
    "DECIMAL(10,2)": [None, Decimal("0.00"), Decimal("1.00"), Decimal("2.50"), Decimal("-3.25")],
    "DECIMAL(6,3)": [None, Decimal("0.000"), Decimal("1.000"), Decimal("2.500"), Decimal("0.125")],
    "BOOLEAN": [None, True, False],
    "DATE": [None, date(2024, 2, 29), date(2024, 3, 1), date(2024, 3, 4)],
    "TIMESTAMP": [
        None,
        datetime(2024, 2, 29, 12, tzinfo=UTC),
        datetime(2024, 3, 1, tzinfo=UTC),
        datetime(2024, 3, 1, 0, 4, 59, tzinfo=UTC),
    ],
    "TIMESTAMP_NTZ": [None, datetime(2024, 2, 29, 12), datetime(2024, 3, 1)],
    "ARRAY<INT>": [None, [], [1], [1, None, 2], [3, 3]],
    "MAP<STRING,INT>": [None, {}, {"a": 1}, {"b": 2, "a": 1}, {"a": None}],
    "STRUCT<p:INT,q:STRING>": [None, {"p": 1, "q": "a"}, {"p": None, "q": "b"}, {"p": 1, "q": None}],
}


def columns_sql(name: str, *, key: bool = True) -> str:
    key_column = KEYS.get(name) if key else None
    return ", ".join(f"{c} {t}{' PRIMARY KEY' if c == key_column else ''}" for c, t in SCHEMAS[name].items())


class World:
    """The rows that the tables begin with, and random changes of them: the same for the same seed."""

    def __init__(self, seed: int | str):
        self.seed = seed
        self._chance = random.Random(f"world {seed}")
        self.rows = {name: self._several(name) for name in SCHEMAS}

    def _several(self, name: str) -> list[Row]:
        if name == "none":
            return []
        count = self._chance.choice((5, 6, 8)) if name == "t1" else self._chance.choice((0, 2, 5, 6, 7))
        found = self._fresh(name, count)
        return found + [dict(r) for r in found[:2]] if name not in KEYS else found

    def _fresh(self, name: str, count: int) -> list[Row]:
        """Rows with different keys."""
        rows = [self._row(name) for _ in range(count)]
        key = KEYS.get(name)
        return rows if key is None else list({r[key]: r for r in rows}.values())

    def _row(self, name: str) -> Row:
        row = {c: self._chance.choice(_VALUES[t]) for c, t in SCHEMAS[name].items()}
        if name in KEYS:
            row[KEYS[name]] = self._chance.randrange(7) if name == "t1" else self._chance.choice("abcAB")
        return row

    def changes(self) -> Iterator[Change]:
        """A few changes, which are made together."""
        names = [name for name in SCHEMAS if name != "none"]
        for name in self._chance.sample(names, self._chance.choice((1, 1, 2, 3))):
            column = self._chance.choice([c for c in ("id", "a", "k") if c in SCHEMAS[name]])
            value = self._chance.choice(("'a'", "'b'") if column == "k" else ("1", "2", "3", "0"))
            kind = self._chance.randrange(4)
            if kind == 0:
                yield f"DELETE FROM {name} WHERE {column} = {value} OR {column} IS NULL"
            elif kind == 1 and "a" in SCHEMAS[name]:
                to = self._chance.choice(("a + 1", "NULL", "2", "1"))
                yield f"UPDATE {name} SET a = {to} WHERE {column} = {value}"
            else:
                yield name, self._fresh(name, self._chance.choice((1, 1, 2, 3)))

    def stream(self) -> list[Row]:
        """Rows of a stream with the columns of ``t1``, which has no key."""
        return [self._row("t1") for _ in range(self._chance.choice((0, 3, 8, 12, 15)))]
