"""Maps the row numbers of a table without a key: from a slot to its row, and from a row to its newest version.

Numbers grow, so almost every row is found by search in the order of the slots. Only a row that was replaced, or
restored under an old number, is in a dict.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import repeat

import numpy as np
import numpy.typing as npt

_FEW = 64
"""Rows up to which each is searched for alone."""
Slots = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class RowNumbers:
    """Stores row numbers. Only the writer changes it. Readers of earlier commits may see later entries, as in
    ``Generation``.
    """

    __slots__ = ("_ends", "_firsts", "_moved", "_numbers", "_starts", "next", "slots")

    def __init__(self) -> None:
        self.slots = 0
        """How many slots there are."""
        self.next = 0
        """The number of the next new row."""
        # While no row was replaced and no number skipped, a slot is its row's number and nothing is stored.
        self._numbers: Slots | None = None
        # Runs of slots whose numbers grow: the first number, the first slot, the slot after the last.
        self._firsts: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._moved: dict[int, int] = {}

    def add(self, count: int, numbers: Slots | None = None) -> None:
        """Records that the next ``count`` slots are versions of these rows, each row once; without numbers, of new
        rows.
        """
        if not count:
            return
        if numbers is None:
            if self._numbers is None and self.next == self.slots:
                self.slots = self.next = self.next + count
                return
            numbers = np.arange(self.next, self.next + count)
        plain = self._numbers is None and self.next == self.slots and numbers[0] == self.next
        if not (plain and (numbers[1:] - numbers[:-1] == 1).all()):
            self._store(numbers)
        self.slots += count
        self.take(int(numbers.max()))

    def given(self, numbers: Slots) -> tuple[Slots, Flags]:
        """Gives rows that have none, which is -1, a number; returns also which is the last of its number."""
        fresh = numbers < 0
        highest = max(self.next, int(numbers.max(initial=-1)) + 1)
        numbers[fresh] = np.arange(highest, highest + int(np.count_nonzero(fresh)))
        last = np.zeros(len(numbers), dtype=np.bool_)
        last[len(numbers) - 1 - np.unique(numbers[::-1], return_index=True)[1]] = True
        return numbers, last

    def take(self, number: int) -> None:
        """Reserves the number, and those before it: no new row gets them."""
        self.next = max(self.next, number + 1)

    def of(self, slots: Slots) -> Slots:
        """Returns the rows that these slots are versions of."""
        numbers = self._numbers
        return slots if numbers is None else numbers[slots]

    @property
    def ordered(self) -> bool:
        """Returns whether the slots are in the order of their rows."""
        return not self._moved

    def newest(self, rows: Slots) -> Slots:
        """Returns the newest slot of each row, -1 if there is none."""
        if self._numbers is None:
            return np.where((rows >= 0) & (rows < self.slots), rows, -1)
        if len(rows) <= _FEW:
            return np.fromiter(map(self._find, rows.tolist()), np.int64, len(rows))
        found = np.full(len(rows), -1)
        if self._moved:
            found = np.fromiter(map(self._moved.get, rows.tolist(), repeat(-1)), np.int64, len(rows))
        left = np.flatnonzero(found < 0)
        if len(left):
            found[left] = self._search(self._numbers, rows[left])
        return found

    def kept(self, keep: Flags) -> RowNumbers:
        """Returns the numbers of only the remaining slots."""
        other = RowNumbers()
        slots = np.flatnonzero(keep)
        if len(slots):
            other._store(self.of(slots))
        other.slots, other.next = len(slots), self.next
        return other

    def nbytes(self) -> int:
        return 0 if self._numbers is None else int(self._numbers.nbytes) + 100 * len(self._moved)

    def _find(self, row: int) -> int:
        slot = self._moved.get(row)
        if slot is not None:
            return slot
        at = bisect_right(self._firsts, row) - 1
        if at < 0:
            return -1
        assert self._numbers is not None
        start, end = self._starts[at], self._ends[at]
        slot = start + int(np.searchsorted(self._numbers[start:end], row))
        return slot if slot < end and self._numbers[slot] == row else -1

    def _search(self, numbers: Slots, rows: Slots) -> Slots:
        """Returns the slots of many rows in the runs, -1 for those that are in none: halves the places of all of them
        at once.
        """
        if not self._firsts:
            return np.full(len(rows), -1)
        run = np.searchsorted(np.array(self._firsts), rows, side="right") - 1
        low, end = np.array(self._starts)[run], np.array(self._ends)[run]
        high, last = end.copy(), len(numbers) - 1
        while (open_ := low < high).any():
            middle = (low + high) // 2
            less = numbers[np.minimum(middle, last)] < rows
            low = np.where(open_ & less, middle + 1, low)
            high = np.where(open_ & ~less, middle, high)
        there = (run >= 0) & (low < end)
        there &= numbers[np.minimum(low, last)] == rows
        return np.where(there, low, -1)

    def _store(self, numbers: Slots) -> None:
        first, after = self.slots, self.slots + len(numbers)
        if self._numbers is None:
            self._numbers = np.arange(max(1024, after * 3 // 2))
            if first:
                self._add_run(0, 0, first)
        elif after > len(self._numbers):
            larger = np.empty(after * 3 // 2, dtype=np.int64)
            larger[:first] = self._numbers[:first]
            self._numbers = larger
        self._numbers[first:after] = numbers
        grows = numbers >= self.next
        grows[1:] &= numbers[1:] > np.maximum.accumulate(numbers)[:-1]
        for start, end in _runs(grows):
            self._add_run(int(numbers[start]), first + start, first + end)
        odd = np.flatnonzero(~grows)
        self._moved.update(zip(numbers[odd].tolist(), (first + odd).tolist(), strict=True))

    def _add_run(self, number: int, start: int, end: int) -> None:
        if self._ends and self._ends[-1] == start:
            self._ends[-1] = end
        else:
            self._firsts.append(number)
            self._starts.append(start)
            self._ends.append(end)


def _runs(flags: Flags) -> Iterator[tuple[int, int]]:
    """Yields where the runs of true values begin and end."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
