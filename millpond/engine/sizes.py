"""Adapts the maximum number of rows of a batch to the time that batches take."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

MOST_ROWS = 1_000_000
FEWEST_ROWS = 1_000
TARGET = 2.0
"""Maximum seconds that a batch should take: rows become visible, and a query can be paused, in between."""
SPARK_TARGET = 4.0
"""The same for a batch that Spark evaluates: its plan costs the driver the same for any number of rows."""
SPARK_SECONDS = 0.5
"""The fixed cost of a batch that Spark evaluates: planning, tasks, the way of the rows."""
_SHRINK = 0.25
"""The smallest part of its size that a slow batch of Spark leaves to the next one."""
_SEEN = 6
"""Batches of Spark that the costs are estimated from."""


class BatchSize:
    """Adapts ``rows``: starts at the maximum; a slow batch makes it smaller, fast full batches make it larger.

    A batch has a cost per row, and, if Spark evaluates it, a fixed cost, which fewer rows do not change. It is slow if
    it takes longer than the target, and longer than twice the fixed cost.
    """

    def __init__(self, most: int | None = None, target: float = TARGET) -> None:
        self.most = self.rows = most or MOST_ROWS
        self._target = target
        self._spark_target = target if target < TARGET else max(target, SPARK_TARGET)
        self._fewest = min(FEWEST_ROWS, self.most)
        self._seen: deque[tuple[int, float]] = deque(maxlen=_SEEN)
        self._fixed: float | None = None

    def note(self, rows: int | None, seconds: float, fixed: float = 0.0) -> None:
        """Records that a batch of so many rows took so long, over all statements that got it; ``fixed`` is what any
        batch of these statements takes, as far as it is known before.
        """
        if rows is None or rows < self._fewest:
            return
        if fixed:
            self._seen.append((rows, seconds))
            self._fixed = _fixed_cost(self._seen) or self._fixed
            fixed = min(self._fixed or fixed, seconds)
        target = max(self._spark_target, 2 * fixed) if fixed else self._target
        spent, left = max(seconds - fixed, 0.0), target - fixed
        if spent > left:
            # A batch may be slow for another reason, such as a Spark that has just started.
            fitting = int(rows * max(left / spent, _SHRINK if fixed else 0.0))
            self.rows = max(self._fewest, min(self.rows, fitting))
        elif spent < left / 2 and 2 * rows > self.rows:  # a source may cut a little earlier
            self.rows = min(self.most, self.rows * 2)

    def lessen(self) -> None:
        """Makes the next batches much smaller, after a batch did more harm than to take long."""
        self.rows = max(self._fewest, self.rows // 8)


def _fixed_cost(seen: Collection[tuple[int, float]]) -> float | None:
    """Returns the seconds that a batch without rows would take, by the line through the batches that were seen; None
    if their sizes are alike.
    """
    count = len(seen)
    rows, seconds = sum(n for n, _ in seen) / count, sum(t for _, t in seen) / count
    spread = sum((n - rows) ** 2 for n, _ in seen)
    if spread < (rows / 4) ** 2:
        return None
    per_row = max(sum((n - rows) * (t - seconds) for n, t in seen) / spread, 0.0)
    return min(max(seconds - per_row * rows, 0.0), min(t for _, t in seen))
