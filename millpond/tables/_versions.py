"""Determines which rows a reader sees.

A slot is one version of a row; slots are numbered in the order of their creation. A reader of version v, with n slots,
sees the slots below n that were alive at v. So a snapshot is two numbers, and rows that are added or deleted later do
not affect it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import repeat
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millpond.records.keys import Key
from millpond.tables._ages import Ages
from millpond.tables._blocks import Blocks, Slots
from millpond.tables._coldkeys import ColdKeys, Keys, renumber
from millpond.tables._dense import DenseKeys
from millpond.tables._index import SecondaryIndex
from millpond.tables._lagging_keys import LaggingKeys
from millpond.tables._numbers import Flags, RowNumbers

NEVER = np.iinfo(np.int64).max
_DENSE = 32
"""Of so many slots one or more is requested where it costs less to mark them than to sort them."""

Way = tuple[tuple[str, ...], tuple[type, ...], list[int] | None]
"""The columns of an index, in its order; the Python types of the requested values; and where among these each column of
the index is, None if they are in its order.
"""


class CommitRecord(NamedTuple):
    """Describes the table after a commit: its version, its number of slots, and how many of them were alive."""

    commit: int
    version: int
    slots: int
    alive: int


class TableVersion(NamedTuple):
    """Contains all that a reader needs, published by one assignment."""

    generation: Generation
    blocks: Blocks
    died: Slots
    mark: CommitRecord
    marks: deque[CommitRecord]
    """The last few commits in the same numbering of the slots; the writer adds to it."""

    def at(self, commit: int) -> TableVersion:
        """Returns what was visible after an earlier commit. Raises ValueError for one that is not stored."""
        marks = list(self.marks)
        past = [m for m in marks if m.version < self.mark.version and m.commit <= commit]
        if not past:
            raise ValueError(f"commit {commit} is no longer kept; the oldest is {marks[0].commit}")
        return self._replace(mark=past[-1])

    def alive(self, slots: Slots) -> Slots:
        """Returns those of the slots that exist, and that no commit has deleted."""
        there: Slots = slots[slots >= 0]
        found: Slots = there[self.died[there] == NEVER]
        return found

    def make_index(self, columns: tuple[str, ...]) -> bool:
        """Makes an index of all rows; returns False if there is no memory to keep it."""
        index = self.generation.index_on(columns, self.blocks, self.mark.slots)
        index.extended(self.blocks, self.mark.slots)
        return columns in self.generation.others


@dataclass(slots=True)
class Links:
    """Maps a slot to the one that had its key before, or to -1. The array is replaced when it grows."""

    slots: Slots = field(default_factory=lambda: np.full(1024, -1, dtype=np.int64))


@dataclass(slots=True)
class Generation:
    """Contains the indexes over one numbering of the slots. Compaction creates another; readers of the old one continue
    to use it. Other columns of the same slots are another one too, which shares ``newest``, ``numbers`` and ``links``.

    ``newest`` maps a key to its newest slot s, or to -2 - s if the row was deleted, and ``replaced`` a slot to the one
    that had its key before, or -1. Only the writer changes them, and readers may see changes of later commits: they go
    back from slots that are too new. A table without a key has ``numbers`` for ``newest``.
    """

    newest: Keys = field(default_factory=dict)
    numbers: RowNumbers = field(default_factory=RowNumbers)
    """For a table without a key."""
    links: Links = field(default_factory=Links)
    others: dict[tuple[str, ...], SecondaryIndex] = field(default_factory=dict)
    admit: Callable[[SecondaryIndex], bool] | None = None
    """With limited memory, whether there is memory for an index."""
    ages: Ages | None = None
    """When the slots were made, if that is to be known."""
    dense: DenseKeys = field(default_factory=DenseKeys)
    ways: dict[tuple[str, ...], Way] = field(default_factory=dict)
    """How rows are found by values of some columns; this depends on the columns alone."""
    _lock: Lock = field(default_factory=Lock)

    @property
    def replaced(self) -> Slots:
        return self.links.slots

    @replaced.setter
    def replaced(self, slots: Slots) -> None:
        self.links.slots = slots

    def newest_slots(self, keys: list[Key]) -> Slots:
        """Returns the newest slot of each key, dead or alive, -1 if there is none."""
        newest = self.all_keys()
        if isinstance(newest, ColdKeys):
            found = newest.find(keys, -1)
        else:
            found = np.fromiter(map(newest.get, keys, repeat(-1)), np.int64, len(keys))
        return np.where(found < -1, -2 - found, found)

    def all_keys(self) -> Keys:
        """Returns ``newest`` with all slots that are written."""
        newest = self.newest  # a reader may complete it meanwhile
        return newest.complete() if isinstance(newest, LaggingKeys) else newest

    def present_keys(self) -> Keys:
        """Returns ``newest`` as far as it is in memory: to measure it adds nothing to it."""
        newest = self.newest
        return newest.present if isinstance(newest, LaggingKeys) else newest

    def point_later(self, column: str, blocks: Blocks, start: int, end: int) -> None:
        """Makes these slots, which are written, the newest of their keys, in one step; ``newest`` gets them when
        somebody uses it.
        """
        newest = self.newest
        assert not isinstance(newest, ColdKeys)
        lagging = newest if isinstance(newest, LaggingKeys) else LaggingKeys(self, newest, column)
        lagging.lag(blocks, start, end)

    def point(self, keys: Iterable[Key], slots: Iterable[int]) -> None:
        """Makes these slots the newest of their keys, in one step for other threads."""
        self.newest.update(zip(keys, slots, strict=True))

    def slots_before(self, keys: list[Key], end: int) -> Slots:
        """Returns the newest slot below ``end`` of each key that has one."""
        return self._before(self.newest_slots(keys), end)

    def int_slots_before(
        self, keys: npt.NDArray[np.int64], column: str, blocks: Blocks, end: int
    ) -> Slots | None:
        """Returns the same as ``slots_before``, for a key that is one integer column, in ascending order and each slot
        once; None if the other method is to be used.
        """
        found = self.newest_of_ints(keys, column, blocks, end)
        return None if found is None else ascending(self._before(found, end), end)

    def newest_of_ints(
        self, keys: npt.NDArray[np.int64], column: str, blocks: Blocks, end: int
    ) -> Slots | None:
        """Returns the same as ``newest_slots``, for a key that is one integer column, of which the slots below ``end``
        or more are known; None if the other method is to be used.
        """
        return None if self.admit is not None else self.dense.find(keys, column, blocks, end)

    def _before(self, slots: Slots, end: int) -> Slots:
        late = np.flatnonzero(slots >= end)
        while len(late):
            slots[late] = self.replaced[slots[late]]
            late = late[slots[late] >= end]
        return slots[slots >= 0]

    def index_on(self, columns: tuple[str, ...], blocks: Blocks, end: int) -> SecondaryIndex:
        """Returns the index on the columns, which is built at first use. If memory is limited it is built here; if
        there is no memory for it, it is for its one reader only.
        """
        index = self.others.get(columns)
        if index is None:
            index = SecondaryIndex(columns)
            if self.admit is not None:
                index.extended(blocks, end)
                if not self.admit(index):
                    return index
            with self._lock:
                index = self.others.setdefault(columns, index)
        return index

    def indexes(self) -> list[tuple[str, ...]]:
        return list(self.others)

    def kept(self, keep: Flags) -> Generation:
        """Returns the key index over only the remaining slots, numbered again.

        A remaining slot has died later than all that it replaced, so of a chain only the old end is cut off.
        """
        made = self._kept(keep)
        made.ages = None if self.ages is None else self.ages.moved(keep)
        return made

    def _kept(self, keep: Flags) -> Generation:
        number = np.cumsum(keep, dtype=np.int64) - 1
        number[~keep] = -1
        before = self.replaced[: len(keep)][keep]
        replaced = np.where(before >= 0, number[before], -1)
        if self.numbers.slots:
            return Generation(numbers=self.numbers.kept(keep), links=Links(replaced), admit=self.admit)
        old = self.all_keys()
        if isinstance(old, ColdKeys):
            return Generation(old.renumbered(number), links=Links(replaced), admit=self.admit)
        moved, there = renumber(np.fromiter(old.values(), np.int64, len(old)), number)
        pairs = zip(old, moved.tolist(), there.tolist(), strict=True)
        newest: Keys = {key: slot for key, slot, is_there in pairs if is_there}
        return Generation(newest, links=Links(replaced), admit=self.admit)


class Live:
    """Contains the newest rows for readers of single keys: they use the slot in ``newest`` if it is below ``end``, else
    a snapshot. While several keys are changed ``end`` is 0, so that nobody sees half of a commit. It is ``current``
    until a compaction replaces it.
    """

    __slots__ = ("blocks", "current", "end", "newest")

    def __init__(self, newest: Keys, blocks: Blocks, end: int):
        self.newest = newest
        self.blocks = blocks.blocks
        self.end = end
        self.current = True
        if isinstance(newest, LaggingKeys):
            newest.read_by(self)


def ascending(slots: Slots, end: int) -> Slots:
    """Returns each of the slots, which are below ``end``, once, in ascending order."""
    if len(slots) * _DENSE < end:
        return np.unique(slots)
    there = np.zeros(end, dtype=np.bool_)
    there[slots] = True
    return np.flatnonzero(there)


def grown(array: Slots, size: int, fill: int) -> Slots:
    """Returns the array with room for ``size`` items: itself, or a larger copy. Readers of the old one lose nothing,
    since they need nothing that is written later.
    """
    if size <= len(array):
        return array
    larger = np.full(max(size, len(array) * 3 // 2, 1024), fill, dtype=np.int64)
    larger[: len(array)] = array
    return larger
