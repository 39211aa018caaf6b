"""Compacts a memory table while it is changed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar

from millpond.tables._blocks import Blocks, Slots
from millpond.tables._compaction import Compaction, compacted
from millpond.tables._limit import Limit
from millpond.tables._snapshot import Settled
from millpond.tables._versions import Generation, Live, Mark, TableVersion


class Compacting:
    """Decides when a memory table is compacted. The writer of the table calls it."""

    idle_dead: ClassVar[int] = 10_000
    """How many dead rows, beyond the number of live ones, trigger a compaction."""
    kept_commits: ClassVar[int] = 64
    """How many commits before the newest that changed the table can still be read."""
    piece: ClassVar[int] = 1 << 15
    """The least number of slots that a piece of a compaction copies."""

    live: Live
    settled: Settled
    _key: tuple[str, ...]
    _blocks: Blocks
    _generation: Generation
    _died: Slots
    _mark: Mark
    _marks: deque[Mark]
    _now: TableVersion
    _limit: Limit
    _compaction: Compaction | None
    _changes_since: int

    if TYPE_CHECKING:

        def _no_rows(self) -> Blocks: ...
        def _begin_reads(self) -> None: ...
        def _ease(self, blocks: Blocks) -> None: ...

    def _compact(self, *, forced: bool = False) -> None:
        """Removes rows that no stored commit sees, once they are as many as those alive: in pieces, of which each call
        does one. If it is ``forced``, all but those alive, at once; so is a table with limited memory compacted.

        Existing snapshots continue with the old slots, which are freed with the last of them.
        """
        mark = self._mark
        if self._limit.most is None and not forced:
            self._compact_more()
            return
        if mark.slots <= 2 * mark.alive + self.idle_dead and not forced:
            return
        if forced:
            self._marks = deque([mark], maxlen=self.kept_commits + 1)
        made = compacted(self._now, self._marks, self._no_rows(), self._limit, self._ease)
        self._stand_on(
            made.generation, made.blocks, made.died, deque(made.marks, maxlen=self.kept_commits + 1)
        )

    def _compact_more(self) -> None:
        mark, oldest, compaction = self._mark, self._marks[0], self._compaction
        if compaction is None:
            if oldest.slots - oldest.alive <= mark.alive + self.idle_dead:
                return
            compaction = self._compaction = Compaction(self._key, self._now, self._no_rows())
            self._changes_since = 0
        elif self._changes_since < self.piece >> 3:
            return
        # Faster than slots are added: so it comes to an end.
        compaction.copy(self._now, oldest.version, max(4 * self._changes_since, self.piece))
        self._changes_since = 0
        if compaction.done == mark.slots:
            made = compaction.finished(self._now, self._marks)
            self._stand_on(
                made.generation, made.blocks, made.died, deque(made.marks, maxlen=self.kept_commits + 1)
            )

    def _stand_on(self, generation: Generation, blocks: Blocks, died: Slots, marks: deque[Mark]) -> None:
        """Switches readers to other slots with the same rows; existing snapshots continue with the old ones."""
        self._generation, self._blocks, self._died = generation, blocks, died
        self._marks, self._mark = marks, marks[-1]
        self._now = TableVersion(generation, blocks, died, self._mark, marks)
        self._begin_reads()
        self._compaction = None
