"""Adapts the maximum number of rows of a batch to the time that batches take."""

from __future__ import annotations

MOST_ROWS = 1_000_000
FEWEST_ROWS = 1_000
TARGET = 2.0
"""Maximum seconds that a batch should take: rows become visible, and a query can be paused, in between."""
SPARK_SECONDS = 0.5
"""The fixed cost of a batch that Spark evaluates: planning, tasks, the way of the rows."""
_SHRINK = 0.25
"""The smallest part of its size that a slow batch leaves to the next one."""


class BatchSize:
    """Adapts ``rows``: starts at the maximum; a slow batch makes it smaller, fast full batches make it larger. A batch
    has a fixed cost, which rows do not change, and a cost per row.
    """

    def __init__(self, most: int | None = None, target: float = TARGET) -> None:
        self.most = self.rows = most or MOST_ROWS
        self._target = target
        self._fewest = min(FEWEST_ROWS, self.most)

    def note(self, rows: int | None, seconds: float, fixed: float = 0.0) -> None:
        """Records that a batch of so many rows took so long, over all statements that got it; ``fixed`` is the part of
        the time that any batch takes.
        """
        if rows is None or rows < self._fewest:
            return
        fixed = min(fixed, self._target / 2)
        spent, left = max(seconds - fixed, 1e-6), self._target - fixed
        if spent > left:
            # One that was slow for another reason, such as the first of a Spark that has just started, must not make
            # the next ones tiny.
            fitting = int(rows * max(left / spent, _SHRINK))
            self.rows = max(self._fewest, min(self.rows, fitting))
        elif spent < left / 2 and rows >= self.rows:
            self.rows = min(self.most, self.rows * 2)

    def lessen(self) -> None:
        """Makes the next batches much smaller, after a batch did more harm than to take long."""
        self.rows = max(self._fewest, self.rows // 8)
