"""Looks up many integer keys at once: an array maps a key to its newest slot, if the keys are dense.

The dict of the key index causes three cache misses for each key, one key after the other; an array finds all keys in
one step. It is built when a batch of keys first needs it, and extended by the batch that needs it.
"""

from __future__ import annotations

from threading import Lock

import numpy as np
import numpy.typing as npt

from millpond.records.keys import whole_numbers
from millpond.tables._blocks import Blocks, Slots

_SPARSE = 4
"""Maximum number of array elements per row."""
_NO_SLOTS: Slots = np.empty(0, dtype=np.int64)


class DenseKeys:
    """Maps a key that is one integer column. Thread-safe, with the blocks of any snapshot."""

    __slots__ = ("_first", "_lock", "_slots", "_sparse_at", "covered")

    def __init__(self) -> None:
        self._lock = Lock()
        self._first = 0
        self._slots = _NO_SLOTS
        self._sparse_at = 0
        self.covered = 0

    def nbytes(self) -> int:
        return int(self._slots.nbytes)

    def find(self, keys: npt.NDArray[np.int64], column: str, blocks: Blocks, end: int) -> Slots | None:
        """Returns for each key its newest slot, below ``end`` or above it, or -1; None if the keys are not dense."""
        if self.covered < end and not self._extend(column, blocks, end):
            return None
        with self._lock:
            first, slots = self._first, self._slots
        places = keys - first
        inside = (places >= 0) & (places < len(slots))
        if inside.all():
            return slots[places]
        found = np.full(len(keys), -1, dtype=np.int64)
        found[inside] = slots[places[inside]]
        return found

    def _extend(self, column: str, blocks: Blocks, end: int) -> bool:
        with self._lock:
            start = self.covered
            if start >= end:
                return True
            if end < self._sparse_at:
                return False
            added = blocks.between([column], start, end).column(0).combine_chunks()
            if added.null_count:
                self._sparse_at = 2 * end
                return False
            keys = whole_numbers(added)
            low, high = int(keys.min()), int(keys.max()) + 1
            if len(self._slots):
                low, high = min(low, self._first), max(high, self._first + len(self._slots))
            if high - low > _SPARSE * end + 1024:
                self._sparse_at = 2 * end
                return False
            if low < self._first or high > self._first + len(self._slots):
                larger = np.full(high - low + (high - low) // 4, -1, dtype=np.int64)
                at = self._first - low if len(self._slots) else 0
                larger[at : at + len(self._slots)] = self._slots
                self._first, self._slots = low, larger
            # Of equal keys the last one stays.
            self._slots[keys - self._first] = np.arange(start, end)
            self.covered = end
            return True
