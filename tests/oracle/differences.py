"""The one list of what differs from Spark on purpose; ``differences.toml`` beside this file has it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HOW = ("refused", "answered", "raised", "quiet", "value", "type")
"""The kinds of difference; the head of the list says what each is."""


@dataclass(frozen=True)
class Differs:
    """One entry: what it is, why, and which differences it explains."""

    name: str
    how: tuple[str, ...]
    reason: str
    sql: re.Pattern[str]
    spark: re.Pattern[str]
    ours: re.Pattern[str]


@cache
def differences() -> tuple[Differs, ...]:
    """The entries in their order."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return tuple(_entry(**values) for values in tomllib.loads(text)["differs"])


def explain(how: str, sql: str, *, spark: str = "", ours: str = "") -> Differs | None:
    """The entry that explains a difference; None if it is a defect."""
    assert how in HOW, how
    for entry in differences():
        found = entry.sql.search(sql) and entry.spark.search(spark) and entry.ours.search(ours)
        if how in entry.how and found:
            return entry
    return None


def _entry(
    *, name: str, how: list[str], reason: str, sql: str = "", spark: str = "", ours: str = ""
) -> Differs:
    assert how and set(how) <= set(HOW), f"{name}: how is some of {', '.join(HOW)}"
    patterns = (re.compile(p, re.IGNORECASE | re.DOTALL) for p in (sql, spark, ours))
    return Differs(name, tuple(how), reason, *patterns)
