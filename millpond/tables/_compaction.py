"""Rewrites the rows of a memory table without those that no commit sees.

A table without a limit of memory is compacted in pieces, between its commits: each copies some more slots, also those
that were added meanwhile, and the last one switches to the copy. A row that dies after it was copied is dead in the
copy too, since that takes the deaths at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millpond import faults
from millpond.records.keys import Key, key_list
from millpond.tables._blocks import SIZE, Blocks, Slots
from millpond.tables._limit import Limit
from millpond.tables._numbers import Flags, RowNumbers
from millpond.tables._versions import NEVER, CommitRecord, Generation, Links, TableVersion, grown


class Compacted(NamedTuple):
    """Contains the remaining rows, in new slots, and the commits by these slots."""

    generation: Generation
    blocks: Blocks
    died: Slots
    marks: list[CommitRecord]


def compacted(
    now: TableVersion,
    marks: Sequence[CommitRecord],
    blocks: Blocks,
    limit: Limit,
    ease: Callable[[Blocks], None],
) -> Compacted:
    """Copies the rows that one of the commits sees into ``blocks``, which are empty."""
    mark = now.mark
    died = now.died[: mark.slots]
    keep = died > marks[0].version
    kept = np.flatnonzero(keep)
    # Part by part if memory is limited: the old rows are on disk.
    limit.ease(now.blocks, limit.most or 0, mark.slots)
    step = len(kept) if limit.most is None else SIZE
    for start in range(0, len(kept), max(1, step)):
        blocks.append(start, now.blocks.take(kept[start : start + step]))
        ease(blocks)
    kept_before = np.concatenate(([0], np.cumsum(keep)))
    moved = [CommitRecord(m.commit, m.version, int(kept_before[m.slots]), m.alive) for m in marks]
    faults.reach("table: copied")
    generation = now.generation.kept(keep)
    generation.replaced = limit.spilled_array(generation.replaced, -1)
    return Compacted(generation, blocks, limit.spilled_array(died[keep], NEVER), moved)


class Compaction:
    """Copies the rows of a table into empty ``blocks``, piece by piece. The writer of the table calls it."""

    def __init__(self, key: tuple[str, ...], now: TableVersion, blocks: Blocks):
        self._key = key
        self._blocks = blocks
        self._old = now.generation
        self._newest: dict[Key, int] = {}
        self._numbers = RowNumbers()
        self._replaced: Slots = np.full(1024, -1, dtype=np.int64)
        self._number: Slots = np.empty(0, dtype=np.int64)
        self._followed: Flags = np.zeros(0, dtype=np.bool_)
        self._seen = 0
        self._kept: list[Slots] = []
        self._count = 0
        self._gone: list[Key] = []
        self.done = 0
        """How many slots are copied, or not needed."""

    def deleted(self, keys: Iterable[Key]) -> None:
        """Records that rows with these keys were deleted."""
        self._gone.extend(keys)

    def copy(self, now: TableVersion, oldest: int, count: int) -> None:
        """Copies up to ``count`` slots more, as far as the version ``oldest`` or a later one sees them."""
        start, end = self.done, min(now.mark.slots, self.done + count)
        died = now.died[start:end]
        kept = start + np.flatnonzero(died > oldest)
        first, after = self._count, self._count + len(kept)
        rows = now.blocks.take(kept)
        self._blocks.append(first, rows)
        self._number = grown(self._number, end, -1)
        self._number[start:end] = -1
        self._number[kept] = np.arange(first, after)
        before = now.generation.replaced[kept]
        self._replaced = grown(self._replaced, after, -1)
        # A slot replaces one with a lower number, which was copied, or dropped, before.
        self._replaced[first:after] = np.where(before >= 0, self._number[before], -1)
        if self._key:
            self._point(now, kept, rows, first)
        else:
            self._numbers.add(len(kept), now.generation.numbers.of(kept))
        self._kept.append(kept)
        self._count, self.done = after, end

    def _point(self, now: TableVersion, kept: Slots, rows: pa.Table, first: int) -> None:
        """Adds copied rows to the index of keys, the newest of each key at last."""
        died = now.died[kept]
        keys = key_list([rows.column(name) for name in self._key])
        alive = died == NEVER
        self._newest.update(
            zip(compress(keys, alive.tolist()), (first + np.flatnonzero(alive)).tolist(), strict=True)
        )
        # A row that is dead and that no other replaces was deleted; one that replaces it later comes after it.
        ended = np.flatnonzero(~alive & ~self._followers(now)[kept])
        self._newest.update({keys[at]: -2 - (first + at) for at in ended.tolist()})

    def _followers(self, now: TableVersion) -> Flags:
        """Returns for each slot whether another one replaces it."""
        end = now.mark.slots
        if end > len(self._followed):
            larger = np.zeros(end * 3 // 2, dtype=np.bool_)
            larger[: len(self._followed)] = self._followed
            self._followed = larger
        before = now.generation.replaced[self._seen : end]
        self._followed[before[before >= 0]] = True
        self._seen = end
        return self._followed

    def finished(self, now: TableVersion, marks: Sequence[CommitRecord]) -> Compacted:
        """Returns the copy of all slots, as the commits of these marks see it."""
        old, number = now.generation, self._number
        kept = np.concatenate(self._kept)
        for key in self._gone:
            slot = old.newest.get(key, -1)
            if slot < -1:
                moved = int(number[-2 - slot])
                if moved >= 0:
                    self._newest[key] = -2 - moved
                else:
                    self._newest.pop(key, None)
        self._numbers.next = old.numbers.next
        generation = Generation(self._newest, self._numbers, Links(self._replaced), ways=old.ways)
        if old.ages is not None:
            stay = np.zeros(self.done, dtype=np.bool_)
            stay[kept] = True
            generation.ages = old.ages.moved(stay)
        others = list(old.others.items())
        generation.others.update({columns: index.renumbered(number, kept) for columns, index in others})
        moved_marks = [
            CommitRecord(m.commit, m.version, int(np.searchsorted(kept, m.slots)), m.alive) for m in marks
        ]
        faults.reach("table: copied")
        died = grown(now.died[kept], max(1024, len(kept)), NEVER)
        return Compacted(generation, self._blocks, died, moved_marks)
