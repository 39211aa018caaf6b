"""Keeps the columns of a block as a reader last saw them: after a small change, a scan makes only what is new.

A column as Arrow is a copy if it has decimals, texts or dead rows. The next reader has the same rows except for a few
that died, and some at the end of the last block; slices leave the dead ones out without another copy.
"""

from __future__ import annotations

import weakref
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.tables._block import Block

Flags = npt.NDArray[np.bool_]
Slices = list[tuple[int, int]]

_MOST_GONE, _MOST_NEW = 16, 4096
"""The dead and the new rows of a block up to which what was made before is used."""


class Shown:
    """Contains columns of the first ``end`` rows of a block, of those that were ``seen``. Readers keep it alive."""

    __slots__ = ("__weakref__", "_block", "_columns", "_seen", "end")

    def __init__(self, block: Block, seen: Flags):
        self._block = block
        self._seen = seen
        self._columns: dict[int, pa.Array] = {}
        self.end = len(seen)

    def slices(self, seen: Flags) -> Slices | None:
        """Returns which of its rows a reader of other rows sees, as start and end; None if too many are different."""
        gone = self._gone(seen)
        if gone is None or len(gone) > _MOST_GONE or len(seen) - self.end > _MOST_NEW:
            return None
        places = [int(np.count_nonzero(self._seen[:slot])) for slot in gone]
        ends = [-1, *places, int(np.count_nonzero(self._seen))]
        return [(a + 1, b) for a, b in pairwise(ends) if a + 1 < b]

    def is_older(self, seen: Flags) -> bool:
        """Returns whether a reader of other rows came later than this one."""
        return self._gone(seen) is not None

    def _gone(self, seen: Flags) -> npt.NDArray[np.int64] | None:
        """Returns the slots of rows that have died since; None for a reader who sees less, or dead rows."""
        if len(seen) < self.end:
            return None
        other = np.flatnonzero(self._seen != seen[: self.end])
        return other if self._seen[other].all() else None

    def column(self, at: int) -> pa.Array:
        found = self._columns.get(at)
        if found is None:
            mask = None if self._seen.all() else pa.array(self._seen)
            found = self._columns.setdefault(at, self._block.column(at, 0, self.end, mask))
        return found


class ShownRows:
    """Reads the columns of those rows of a block that one reader sees."""

    __slots__ = ("_base", "_block", "_more", "_slices")

    def __init__(self, block: Block, seen: Flags):
        base = block.shown()
        slices = None if base is None else base.slices(seen)
        if base is None or slices is None:
            made = Shown(block, seen)
            if base is None or base.is_older(seen):
                block.shown = weakref.ref(made)
            base, slices = made, [(0, int(np.count_nonzero(seen)))]
        self._block = block
        self._base = base
        self._slices = slices
        self._more = seen[base.end :]

    def column(self, at: int) -> list[pa.Array]:
        """Returns the pieces of a column."""
        whole = self._base.column(at)
        found = [whole.slice(start, end - start) for start, end in self._slices if end > start]
        if len(self._more):
            start = self._base.end
            mask = None if self._more.all() else pa.array(self._more)
            rows = self._block.column(at, start, start + len(self._more), mask)
            found += [rows] if len(rows) else []
        return found
