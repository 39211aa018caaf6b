"""An index on columns that are not the key: from values to the slots of all rows that ever had them.

It is built at first use and extended when next used, by the reader that needs it: writers do nothing for it.
Dead and later rows are in it too; the reader's snapshot knows which it sees. Most slots lie in one array,
grouped by key; those of recent rows in a dict of lists, folded into the array when they become many.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.tables._blocks import Blocks, Slots
from millpond.tables._keys import Key, key_list

_NO_SLOTS: Slots = np.empty(0, dtype=np.int64)


class SecondaryIndex:
    """``find`` may be called by many threads, with the blocks of any snapshot."""

    def __init__(self, columns: Sequence[str]):
        self._columns = tuple(columns)
        self._lock = Lock()
        self._groups = _Groups({}, _NO_SLOTS, np.zeros(1, dtype=np.int64), 0)

    def find(self, keys: Sequence[Key], blocks: Blocks, end: int) -> Slots:
        """The slots below ``end`` and some above it, in no order, of rows with one of the keys."""
        groups = self._groups
        if groups.covered < end:
            with self._lock:
                groups = self._extended(blocks, end)
        return groups.find(keys)

    def _extended(self, blocks: Blocks, end: int) -> _Groups:
        groups = self._groups
        start = groups.covered
        if start >= end:
            return groups
        if groups.recent_rows + end - start > max(1024, groups.sorted_rows // 2):
            groups = _Groups.build(blocks.between(self._columns, 0, end))
        else:
            groups.add(key_list(blocks.between(self._columns, start, end).columns), start)
        self._groups = groups
        return groups


class _Groups:
    def __init__(self, numbers: dict[Key, int], slots: Slots, offsets: Slots, covered: int):
        self._numbers = numbers
        self._slots = slots
        self._offsets = offsets
        self._recent: dict[Key, list[int]] = {}
        self.sorted_rows = covered
        self.covered = covered

    @property
    def recent_rows(self) -> int:
        return self.covered - self.sorted_rows

    @staticmethod
    def build(rows: pa.Table) -> _Groups:
        codes, keys = _encode(rows)
        numbers: dict[Key, int] = {}
        number_of_code = [numbers.setdefault(k, len(numbers)) for k in keys]
        groups = np.asarray(number_of_code, dtype=np.int64)[codes]
        slots = np.argsort(groups, kind="stable").astype(np.int64)
        counts = np.bincount(groups, minlength=len(numbers))
        return _Groups(numbers, slots, np.concatenate(([0], np.cumsum(counts))), rows.num_rows)

    def add(self, keys: list[Key], start: int) -> None:
        """Slots are added before ``covered`` says so: a reader that sees too many leaves them out."""
        for slot, key in enumerate(keys, start):
            self._recent.setdefault(key, []).append(slot)
        self.covered = start + len(keys)

    def find(self, keys: Sequence[Key]) -> Slots:
        numbers = np.fromiter(map(self._numbers.get, keys, repeat(-1)), np.int64, len(keys))
        numbers = numbers[numbers >= 0]
        starts = self._offsets[numbers]
        lengths = self._offsets[numbers + 1] - starts
        total = int(lengths.sum())
        if total:
            shift = starts - (np.cumsum(lengths) - lengths)
            found = self._slots[np.repeat(shift, lengths) + np.arange(total)]
        else:
            found = _NO_SLOTS
        if self._recent:
            recent = [slot for key in keys for slot in self._recent.get(key, ())]
            if recent:
                found = np.concatenate((found, np.asarray(recent, dtype=np.int64)))
        return found


def _encode(rows: pa.Table) -> tuple[Slots, list[Key]]:
    """A code for each row, and the key of each code; two codes may have equal keys."""
    try:
        parts = [pc.dictionary_encode(c.combine_chunks(), null_encoding="encode") for c in rows.columns]
    except pa.ArrowNotImplementedError:
        return np.arange(rows.num_rows, dtype=np.int64), key_list(rows.columns)
    parts = [p.combine_chunks() if isinstance(p, pa.ChunkedArray) else p for p in parts]
    codes = [p.indices.to_numpy().astype(np.int64) for p in parts]
    if len(parts) == 1:
        return codes[0], key_list([parts[0].dictionary])
    joint = codes[0]
    for part, code in zip(parts[1:], codes[1:], strict=True):
        _, joint = np.unique(joint * max(1, len(part.dictionary)) + code, return_inverse=True)
    _, first, joint = np.unique(joint, return_index=True, return_inverse=True)
    return joint, key_list([p.dictionary.take(pa.array(c[first])) for p, c in zip(parts, codes, strict=True)])
