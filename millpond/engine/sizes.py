"""How many rows a batch may have: adapted to the time that batches take."""

from __future__ import annotations

MOST_ROWS = 1_000_000
FEWEST_ROWS = 1_000
TARGET = 2.0
"""Seconds that a batch should take at the most: rows become visible, and a query can be paused, in between."""


class BatchSize:
    """``rows`` begins at the most; a batch that takes long makes it smaller, full ones that are quick larger."""

    def __init__(self, most: int | None = None, target: float = TARGET) -> None:
        self.most = self.rows = most or MOST_ROWS
        self._target = target
        self._fewest = min(FEWEST_ROWS, self.most)

    def note(self, rows: int | None, seconds: float) -> None:
        """A batch of so many rows took so long, over all statements that it went to."""
        if rows is None or rows < self._fewest:
            return
        if seconds > self._target:
            self.rows = max(self._fewest, min(self.rows, int(rows * self._target / seconds)))
        elif seconds < self._target / 2 and rows >= self.rows:
            self.rows = min(self.most, self.rows * 2)

    def lessen(self) -> None:
        """A batch did more harm than to take long: the next ones are much smaller."""
        self.rows = max(self._fewest, self.rows // 8)
