"""Frees memory in a table with ``max_memory``, before rows and indexes are added."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from millpond.changes import Changes
from millpond.errors import TableFull
from millpond.locks import WriteLock
from millpond.records.keys import key_list
from millpond.tables._index import SecondaryIndex
from millpond.tables._limit import Limit, fixed_bytes
from millpond.tables._versions import TableVersion


class Room:
    """Keeps a table within its limit. ``now`` returns what its readers see, ``compact`` removes dead rows."""

    def __init__(
        self,
        limit: Limit,
        key: tuple[str, ...],
        now: Callable[[], TableVersion],
        compact: Callable[[], None],
        writing: WriteLock,
    ):
        self._limit = limit
        self._key = key
        self._now = now
        self._compact = compact
        self._writing = writing

    def admit(self, changes: Changes) -> None:
        """Frees memory for changes. Raises TableFull if there is none."""
        added = len(changes) - (0 if changes.deleted is None else changes.deleted.true_count)
        if not added:
            return
        try:
            self.make(*self._coming(changes, added if self._key else 0))
        except TableFull:
            if not self._key:
                raise
            # Most keys may exist already: that is worth a check now.
            keys = set(key_list([changes.rows.column(name) for name in self._key]))
            added = len(keys) - int(np.count_nonzero(self._now().generation.newest_slots(list(keys)) >= 0))
            self.make(*self._coming(changes, added))

    def make(self, fixed: int, rows: int) -> None:
        """Frees memory for so many bytes of keys and of rows; rows that nobody needs are removed first."""
        try:
            self._admit(fixed, rows)
        except TableFull:
            mark = self._now().mark
            if mark.slots == mark.alive:
                raise
            self._compact()
            self._admit(fixed, rows)

    def admit_index(self, index: SecondaryIndex) -> bool:
        """Returns whether a reader may keep an index; rows are spilled for it, now or, while somebody writes, then."""
        now = self._now()
        fixed = fixed_bytes(now.generation, now.died) + index.nbytes()
        if not self._limit.has_room(now.blocks, fixed):
            return False
        if self._writing.try_enter():
            try:
                now = self._now()
                self._limit.ease(now.blocks, fixed, now.mark.slots)
            finally:
                self._writing.__exit__()
        return True

    def _coming(self, changes: Changes, keys: int) -> tuple[int, int]:
        fixed, rows = self._limit.coming(changes, keys)
        if self._limit.shelf is None:
            return fixed, rows
        now = self._now()
        return fixed, rows + now.blocks.cells_for(now.mark.slots + len(changes))

    def _admit(self, fixed: int, rows: int) -> None:
        now = self._now()
        fixed += fixed_bytes(now.generation, now.died)
        self._limit.admit(now.blocks, now.mark, now.generation.newest, fixed, rows)
