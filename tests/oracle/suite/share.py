"""How many of the queries that Spark answers are answered the same here. ``same.txt`` has the number of each file as it
was; it may only rise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

SAME = Path(__file__).with_name("same.txt")
Counts = Mapping[str, Counter[str]]
"""How often each outcome came, by file."""


def answered(counts: Counter[str]) -> int:
    """Queries that Spark answers, and that have one answer which can be read."""
    return sum(n for how, n in counts.items() if how not in ("both", "answered", "quiet", "open", "unread"))


def share(counts: Counts) -> float:
    return sum(c["same"] for c in counts.values()) / max(1, sum(answered(c) for c in counts.values()))


def _lines() -> list[str]:
    return [line for line in SAME.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]


def known() -> dict[str, int]:
    return {name: int(same) for name, same, _ in (line.split() for line in _lines())}


def fewer_than_before(counts: Counts) -> Iterator[str]:
    """The files that have fewer equal answers than they had."""
    before = known()
    for name, made in counts.items():
        if made["same"] < before.get(name, 0):
            yield f"{name}: {made['same']} answers are equal, {before[name]} were"


def write(counts: Counts) -> None:
    """Writes down the numbers of these files as they are now."""
    kept = dict(line.split(" ", 1) for line in _lines()) if SAME.is_file() else {}
    kept |= {name: f"{c['same']} {answered(c)}" for name, c in counts.items()}
    lines = [
        "# Spark's SQL tests: file, queries answered as by Spark, queries that Spark answers.",
        *(f"{name} {numbers}" for name, numbers in sorted(kept.items())),
    ]
    SAME.write_text("\n".join(lines) + "\n", encoding="utf-8")
