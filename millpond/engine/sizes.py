"""How many rows a batch may have: adapted to the time that batches take."""

from __future__ import annotations

MOST_ROWS = 1_000_000
FEWEST_ROWS = 1_000
TARGET = 2.0
"""Seconds that a batch should take at the most: rows become visible, and a query can be paused, in between."""


class BatchSize:
    """``rows`` begins at the most; a batch that takes long makes it smaller, full ones that are quick larger."""

    def __init__(self) -> None:
        self.most = self.rows = MOST_ROWS

    def note(self, rows: int | None, seconds: float) -> None:
        """A batch of so many rows took so long, over all statements that it went to."""
        if rows is None or rows < FEWEST_ROWS:
            return
        if seconds > TARGET:
            self.rows = max(FEWEST_ROWS, min(self.rows, int(rows * TARGET / seconds)))
        elif seconds < TARGET / 2 and rows >= self.rows:
            self.rows = min(self.most, self.rows * 2)
