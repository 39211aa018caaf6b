"""Indexes columns that are not the key: maps values to the slots of all rows that ever had them.

It is built at first use and extended at the next use, by the reader that needs it: writers do nothing for it. It
contains dead and later rows too; the reader's snapshot knows which it sees. Most slots are in one array, grouped by
key; those of recent rows in a dict of lists, which is merged into the array when it becomes large.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import repeat
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.records.keys import Key, average_size, key_list
from millpond.tables._blocks import MASK, SHIFT, Blocks, Slots
from millpond.tables._columns import store_of
from millpond.tables._rows import MakeReader, compile_reader

MANY = 256
"""More slots than this are handled by numpy."""
_FEW = 64
_NO_SLOTS: Slots = np.empty(0, dtype=np.int64)
_KEPT_KEYS = 1024
"""Keys that an index keeps, whether they have rows or not."""


class SecondaryIndex:
    """Finds slots by values. ``find`` may be called by many threads, with the blocks of any snapshot."""

    def __init__(self, columns: Sequence[str]):
        self._columns = tuple(columns)
        self._lock = Lock()
        self.groups = Groups({}, _NO_SLOTS, _NO_SLOTS, 0)
        self._reader: tuple[MakeReader | None] | None = None

    def nbytes(self) -> int:
        """Returns the approximate bytes that it uses."""
        groups = self.groups
        keys = len(groups.found) * (32 + average_size(groups.found)) + 150 * groups.recent_rows
        return sys.getsizeof(groups.found) + keys + groups.nbytes()

    def renumbered(self, number: Slots, kept: Slots) -> SecondaryIndex:
        """Returns the index over other slots: ``number`` has the new one of each, -1 if it is gone, and ``kept`` the
        old ones that are left. It does not wait for readers that extend this one. If most keys have no rows any more,
        it is empty: the next reader builds it.
        """
        index, groups = SecondaryIndex(self._columns), self.groups
        covered = int(np.searchsorted(kept, groups.sorted_rows))
        if len(groups.found) <= max(_KEPT_KEYS, 4 * covered):
            index.groups = groups.renumbered(number, covered)
        return index

    def find(self, keys: Sequence[Key], blocks: Blocks, end: int) -> Slots:
        """Returns the slots below ``end`` and some above it, in no order, of rows with one of the keys."""
        return self.extended(blocks, end).find(keys)

    def extended(self, blocks: Blocks, end: int) -> Groups:
        """Returns the groups of at least the slots below ``end``."""
        groups = self.groups
        if groups.covered >= end:
            return groups
        with self._lock:
            groups = self.groups
            start = groups.covered
            if start >= end:
                return groups
            if groups.recent_rows + end - start > max(1024, groups.sorted_rows // 2):
                groups = Groups.build(blocks.between(self._columns, 0, end))
            else:
                groups.add(self._keys(blocks, start, end), start)
            self.groups = groups
            return groups

    def _keys(self, blocks: Blocks, start: int, end: int) -> list[Key]:
        """Returns the keys of these slots; of few slots by single cells."""
        if end - start <= _FEW:
            if self._reader is None:
                self._reader = (_key_reader(blocks, self._columns),)
            make = self._reader[0]
            if make is not None:
                return [blocks.blocks[s >> SHIFT].reader(make)(s & MASK) for s in range(start, end)]
        return key_list(blocks.between(self._columns, start, end).columns)


class Groups:
    """Maps keys to slots: ``found`` returns the number n of a key's group, and ``places[n]`` its slot, or a number
    below 0 if it does not have one: then ``several(n)`` returns its slots.

    Slots change when the table is compacted, and the numbers of groups do not: so ``found`` stays.
    """

    def __init__(self, found: dict[Key, int], slots: Slots, counts: Slots, covered: int):
        self.found = found
        self._slots = slots
        self._offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        places = np.full(len(counts), -1, dtype=np.int64)
        alone = np.flatnonzero(counts == 1)
        places[alone] = slots[self._offsets[alone]]
        self._places = places
        self.places = places.data
        self.recent: dict[Key, list[int]] = {}
        self.sorted_rows = self.covered = covered

    def nbytes(self) -> int:
        return int(self._slots.nbytes) + int(self._offsets.nbytes) + int(self._places.nbytes)

    def renumbered(self, number: Slots, covered: int) -> Groups:
        """Returns the groups with other slots, -1 for those that are gone, without recent rows: the next reader adds
        them, from the slot ``covered`` on.
        """
        slots = number[self._slots]
        stay = slots >= 0
        kept_before = np.concatenate(([0], np.cumsum(stay, dtype=np.int64)))
        return Groups(self.found, slots[stay], np.diff(kept_before[self._offsets]), covered)

    @property
    def recent_rows(self) -> int:
        return self.covered - self.sorted_rows

    @staticmethod
    def build(rows: pa.Table) -> Groups:
        codes, keys = _encode(rows)
        numbers: dict[Key, int] = dict(zip(keys, range(len(keys)), strict=True))
        groups = codes
        if len(numbers) < len(keys):
            numbers = {}
            groups = np.asarray([numbers.setdefault(k, len(numbers)) for k in keys], dtype=np.int64)[codes]
        counts = np.bincount(groups, minlength=len(numbers)).astype(np.int64)
        return Groups(numbers, _sorted(groups, len(numbers)), counts, len(groups))

    def add(self, keys: list[Key], start: int) -> None:
        """Adds slots before ``covered`` includes them: a reader that sees too many leaves them out."""
        for slot, key in enumerate(keys, start):
            self.recent.setdefault(key, []).append(slot)
        self.covered = start + len(keys)

    def several(self, number: int) -> Sequence[int] | Slots:
        """Returns the slots of a group, in ascending order; many as an array."""
        found = self._slots[self._offsets[number] : self._offsets[number + 1]]
        return found if len(found) > MANY else found.tolist()

    def with_recent(self, key: Key, found: Sequence[int] | Slots) -> Sequence[int] | Slots:
        """Returns the slots of a key, with those of recent rows."""
        recent = self.recent.get(key)
        if recent is None:
            return found
        return np.concatenate((found, recent)) if len(found) > MANY else [*found, *recent]

    def find(self, keys: Sequence[Key]) -> Slots:
        numbers = np.fromiter(map(self.found.get, keys, repeat(-1)), np.int64, len(keys))
        numbers = numbers[numbers >= 0]
        places = self._places[numbers]
        parts = [places[places >= 0]]
        numbers = numbers[places < 0]
        if len(numbers):
            starts = self._offsets[numbers]
            lengths = self._offsets[numbers + 1] - starts
            shift = starts - (np.cumsum(lengths) - lengths)
            parts.append(self._slots[np.repeat(shift, lengths) + np.arange(int(lengths.sum()))])
        if self.recent:
            recent = [slot for key in keys for slot in self.recent.get(key, ())]
            if recent:
                parts.append(np.asarray(recent, dtype=np.int64))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _key_reader(blocks: Blocks, columns: Sequence[str]) -> MakeReader | None:
    """Returns a function that reads a key from the cells of a row, like ``key_list``; None for types that only that
    supports.
    """
    places = [blocks.schema.get_field_index(name) for name in columns]
    t = pa.types
    known = (t.is_integer, t.is_string, t.is_decimal128, t.is_date32, t.is_timestamp, t.is_boolean)
    if not all(any(is_so(blocks.schema.field(at).type) for is_so in known) for at in places):
        return None

    def write(cells: Sequence[str], _: Sequence[bool]) -> str:
        return cells[0] if len(cells) == 1 else f"({', '.join(cells)})"

    forms = [store_of(f.type) for f in blocks.schema]
    return compile_reader(forms, places, write, times=False)


def _encode(rows: pa.Table) -> tuple[Slots, list[Key]]:
    """Returns a code for each row, and the key of each code; two codes may have equal keys."""
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


def _sorted(groups: Slots, count: int) -> Slots:
    """Returns the places of the numbers of groups, in the order of the numbers. Small numbers need no comparisons."""
    return np.argsort(groups.astype(np.uint16) if count <= 1 << 16 else groups, kind="stable")
