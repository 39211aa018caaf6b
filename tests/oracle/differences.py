"""The one list of what differs from Spark on purpose; ``differences.toml`` beside this file has it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HOW = ("refused", "answered", "raised", "quiet", "value", "type")
"""The kinds of difference; the head of the list says what each is."""
_PATTERNS = ("sql", "spark", "ours", "either")


@dataclass(frozen=True)
class Differs:
    """One entry: what it is, why, and which differences it explains."""

    name: str
    how: tuple[str, ...]
    reason: str
    sql: re.Pattern[str]
    spark: re.Pattern[str]
    ours: re.Pattern[str]
    either: re.Pattern[str]

    def explains(self, how: str, sql: str, spark: str, ours: str) -> bool:
        said = self.spark.search(spark) and self.ours.search(ours)
        both = self.either.search(spark) or self.either.search(ours)
        return how in self.how and bool(self.sql.search(sql) and said and both)


@cache
def differences() -> tuple[Differs, ...]:
    """The entries in their order."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return tuple(_entry(**values) for values in tomllib.loads(text)["differs"])


def explain(how: str, sql: str, *, spark: str = "", ours: str = "") -> Differs | None:
    """The entry that explains a difference; None if it is a defect."""
    assert how in HOW, how
    return next((entry for entry in differences() if entry.explains(how, sql, spark, ours)), None)


def _entry(*, name: str, how: list[str], reason: str, **patterns: str) -> Differs:
    assert how and set(how) <= set(HOW), f"{name}: how is some of {', '.join(HOW)}"
    assert set(patterns) <= set(_PATTERNS), f"{name}: patterns are {', '.join(_PATTERNS)}"
    made = (re.compile(patterns.get(key, ""), re.IGNORECASE | re.DOTALL) for key in _PATTERNS)
    return Differs(name, tuple(how), reason, *made)
