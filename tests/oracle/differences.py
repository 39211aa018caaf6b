"""The one list of what differs from Spark on purpose; ``differences.toml`` beside this file has it."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HOW = ("refused", "answered", "raised", "quiet", "value", "type")
"""The kinds of difference; the head of the list says what each is."""
_PATTERNS = ("sql", "spark", "ours", "either", "together")
_NUMBER = re.compile(r"-?\b\d+(?:\.\d*)?(?:[eE][-+]?\d+)?\b")


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
    together: re.Pattern[str]
    tolerance: float | None = None
    part: bool = False

    def explains(self, how: str, sql: str, spark: str, ours: str, part: Callable[[], bool]) -> bool:
        said = self.spark.search(spark) and self.ours.search(ours)
        both = self.either.search(spark) or self.either.search(ours)
        found = self.sql.search(sql) and said and both and self.together.search(f"{spark}\n{sql}")
        if how not in self.how or not found:
            return False
        near = self.tolerance is None or numbers_are_near(spark, ours, self.tolerance)
        return near and (not self.part or part())


@cache
def differences() -> tuple[Differs, ...]:
    """The entries in their order."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return tuple(_entry(**values) for values in tomllib.loads(text)["differs"])


def explain(
    how: str, sql: str, *, spark: str = "", ours: str = "", part: Callable[[], bool] = lambda: True
) -> Differs | None:
    """The entry that explains a difference; None if it is a defect. ``part`` tells whether a part of the expression by
    itself fails here; of whole queries that is not known."""
    assert how in HOW, how
    return next((entry for entry in differences() if entry.explains(how, sql, spark, ours, part)), None)


def numbers_are_near(a: str, b: str, tolerance: float) -> bool:
    """Whether two texts are the same but for numbers, and these nearly so."""
    left, right = _NUMBER.findall(a), _NUMBER.findall(b)
    if len(left) != len(right) or _NUMBER.sub("", a) != _NUMBER.sub("", b):
        return False
    return all(math.isclose(float(x), float(y), rel_tol=tolerance) for x, y in zip(left, right, strict=True))


def _entry(
    *,
    name: str,
    how: list[str],
    reason: str,
    tolerance: float | None = None,
    part: bool = False,
    **patterns: str,
) -> Differs:
    assert how and set(how) <= set(HOW), f"{name}: how is some of {', '.join(HOW)}"
    assert set(patterns) <= set(_PATTERNS), f"{name}: patterns are {', '.join(_PATTERNS)}"
    made = (re.compile(patterns.get(key, ""), re.IGNORECASE | re.DOTALL) for key in _PATTERNS)
    return Differs(name, tuple(how), reason, *made, tolerance=tolerance, part=part)
