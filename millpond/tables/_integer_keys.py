"""Upserts many rows of a memory table whose key is one integer column, without a hash of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millpond import faults
from millpond.tables._blocks import Blocks, Slots
from millpond.tables._hot import HotRecords
from millpond.tables._lagging_keys import LaggingKeys, distinct_integers
from millpond.tables._limit import Limit
from millpond.tables._versions import Generation, Live, Mark, TableVersion
from millpond.types import Schema

MANY = 4_096
"""Fewer rows are added to the index of keys at once."""


class IntegerKeys:
    """Upserts many rows at once, if their keys are different, dense integers."""

    schema: Schema
    live: Live
    hot: HotRecords
    _key: tuple[str, ...]
    _blocks: Blocks
    _generation: Generation
    _limit: Limit
    _mark: Mark
    _now: TableVersion

    if TYPE_CHECKING:

        @property
        def held(self) -> bool: ...
        def _link(self, before: Slots, ended: Slots) -> int: ...
        def _publish(self, made: int, ended: int, commit: int) -> None: ...
        def _compact(self, *, forced: bool = False) -> None: ...

    def _upsert_integers(self, rows: pa.Table, commit: int) -> bool:
        """Adds the rows, or those that replace others; returns False, having changed nothing, if it cannot."""
        if len(self._key) > 1 or rows.num_rows < MANY or self._limit.most is not None:
            return False
        column, slots, generation = self._key[0], self._mark.slots, self._generation
        keys = distinct_integers(rows.column(column), slots)
        if keys is None:
            return False
        before = generation.newest_of_ints(keys, column, self._blocks, slots)
        if before is None:
            return False
        ended = self._now.alive(before)
        self._blocks.append(slots, rows)
        faults.reach("table: appended")
        first = self._link(before, ended)
        self.live.end = 0
        faults.reach("table: linked")
        generation.point_later(column, self._blocks, first, first + len(keys))
        newest = generation.newest
        if not self.held and isinstance(newest, LaggingKeys):
            newest.read_by(self.live)
        if self.hot.active:
            self.hot.forget_all(keys.tolist())
        faults.reach("table: pointed")
        self._publish(len(keys), len(ended), commit)
        faults.reach("table: published")
        self._compact()
        return True
