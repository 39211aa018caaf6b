"""Looks for statements that are answered differently, and makes them as short as it can."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.oracle.differences import explain
from tests.oracle.shapes import Statement, minimise

TOGETHER = 20
"""Statements over the same rows."""


@dataclass(frozen=True)
class Found:
    """A statement that differs on a path: how, what Spark said, what is said here."""

    statement: Statement
    path: str
    how: str
    spark: str
    ours: str

    @property
    def explained(self) -> bool:
        """Whether the list of what differs on purpose has it. Messages of others, and ways that were not taken, it has
        not."""
        return self.how not in ("foreign", "way") and bool(
            explain(self.how, self.statement.text, spark=self.spark, ours=self.ours)
        )


Make = Callable[[str | None, Sequence[int] | None], Statement]
Compare = Callable[[Sequence[Statement], str], Iterator[Found]]
"""(statements, seed of the rows) → what differs."""


def search(seed: str, numbers: range, make: Make, compare: Compare, shortened: int = 3) -> list[str]:
    """What differs and is not in the list; the first few are made shorter."""
    reports: list[str] = []
    for start in range(numbers.start, numbers.stop, TOGETHER):
        made = {n: make(f"{seed}:{n}", None) for n in range(start, min(start + TOGETHER, numbers.stop))}
        world = f"{seed}:{start // TOGETHER}"
        for found in compare(list(made.values()), world):
            if found.explained:
                continue
            number = next(n for n, s in made.items() if s is found.statement)
            if len(reports) < shortened:
                found = _shorter(found, world, make, compare)
            reports.append(
                f"seed {seed}:{number}, rows {world}, path {found.path}: {found.how}\n"
                f"  {found.statement.text}\n  Spark: {found.spark}\n  here:  {found.ours}"
            )
    return reports


def _shorter(found: Found, world: str, make: Make, compare: Compare) -> Found:
    best = found

    def fails(record: list[int]) -> bool:
        nonlocal best
        made = make(None, record)
        if len(made.text) >= len(best.statement.text):
            return False
        for other in compare([made], world):
            if (other.how, other.path) == (found.how, found.path) and not other.explained:
                best = other
                return True
        return False

    minimise(found.statement.record, fails, tries=150)
    return best
