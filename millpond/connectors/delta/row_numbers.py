"""Gives numbers to the rows of a table without a key."""

from __future__ import annotations

OF_A_TASK = 1 << 28
"""Numbers that a task of a batch may use."""
TASKS = 1 << 12
"""Tasks that a batch may have."""


class RowNumbers:
    """Knows the number of the next row. The caller holds the turn of the table."""

    def __init__(self, first: int):
        self.next = first
        self._reserved: list[tuple[int, int]] = []

    def take(self, count: int, highest: int) -> int:
        """Returns the first of so many numbers; ``highest`` is one that is used already."""
        first = max(self.next, highest + 1)
        self.next = first + count
        return first

    def reserve(self) -> int:
        """Returns the first of the numbers that the tasks of a batch may use."""
        first = self.next
        self.next += OF_A_TASK * TASKS
        self._reserved.append((first, self.next))
        return first

    @property
    def so_far(self) -> int:
        """Returns the number of the next row, without numbers at the end that are only reserved."""
        found = self.next
        for first, end in reversed(self._reserved):
            if end == found:
                found = first
        return found

    def used(self, end: int) -> None:
        """Gives back numbers that were reserved for a batch, from ``end`` on, if nobody has taken one behind them."""
        for first, last in self._reserved:
            if first < end <= last:
                self._reserved.remove((first, last))
                self.next = end if last == self.next else self.next
                return
