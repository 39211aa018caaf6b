"""Restores a memory table, with the times of its rows if they are to be known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.changes import Changes, Position
from millpond.clock import Clock
from millpond.tables._ages import at_their_times
from millpond.tables._blocks import Blocks
from millpond.tables._limit import Limit
from millpond.tables._versions import Generation


class AgedRows:
    """Knows when the rows of a memory table were last changed, if its options need that."""

    _generation: Generation
    _blocks: Blocks
    _limit: Limit

    if TYPE_CHECKING:

        def apply(
            self, changes: Changes, position: Position | None = None, *, commit: int | None = None
        ) -> bool: ...
        def _ease(self, blocks: Blocks) -> None: ...

    def go_by(self, clock: Clock) -> None:
        if self._generation.ages is not None:
            self._generation.ages.time.now = clock.seconds

    def restore(self, changes: Changes) -> None:
        self._limit.enforced = False
        try:
            for part in at_their_times(changes, self._generation.ages):
                self.apply(part)
        finally:
            self._limit.enforced = True
        self._ease(self._blocks)
