"""Adapts the maximum number of rows of a batch to the time that batches take."""

from __future__ import annotations

MOST_ROWS = 1_000_000
FEWEST_ROWS = 1_000
TARGET = 2.0
"""Maximum seconds that a batch should take: rows become visible, and a query can be paused, in between."""


class BatchSize:
    """Adapts ``rows``: starts at the maximum; a slow batch makes it smaller, fast full batches make it larger."""

    def __init__(self, most: int | None = None, target: float = TARGET) -> None:
        self.most = self.rows = most or MOST_ROWS
        self._target = target
        self._fewest = min(FEWEST_ROWS, self.most)

    def note(self, rows: int | None, seconds: float) -> None:
        """Records that a batch of so many rows took so long, over all statements that got it."""
        if rows is None or rows < self._fewest:
            return
        if seconds > self._target:
            self.rows = max(self._fewest, min(self.rows, int(rows * self._target / seconds)))
        elif seconds < self._target / 2 and rows >= self.rows:
            self.rows = min(self.most, self.rows * 2)

    def lessen(self) -> None:
        """Makes the next batches much smaller, after a batch did more harm than to take long."""
        self.rows = max(self._fewest, self.rows // 8)
