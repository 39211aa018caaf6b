"""Runs statements whose batches depend on the rows at their commit, and are evaluated before it if they are large.

Spark evaluates such a batch with the rows of a moment before, while other commits go on. If one of them has changed
what the batch depends on, it is evaluated again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millpond.changes import Changes, Position
from millpond.store.snapshot import StoreSnapshot
from millpond.streaming.statement import RunningStatement

if TYPE_CHECKING:
    from millpond.engine.batch import Batch

TRIES = 3
"""How often Spark evaluates a batch. If other commits change its rows each time, it is evaluated in this process, while
no other commit can happen.
"""


_REST, _LONGEST_REST = 2, 64
"""Batches that are evaluated here after one that Spark has evaluated in vain: twice as many each time."""


class Moved(Exception):
    """Says that another commit has changed rows since Spark has evaluated a batch with them."""


@dataclass(kw_only=True, eq=False, repr=False)
class AheadStatement(RunningStatement):
    """Represents a statement that is evaluated again when ``commit`` raises Moved. With ``here`` this process evaluates
    it, at the commit.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.here = False
        self._rest = 0
        """Batches that are evaluated here, before Spark is asked again."""
        self._next_rest = _REST

    def _run(
        self,
        batch: Batch,
        snapshots: StoreSnapshot,
        position: Position | None,
        more: Callable[[], Mapping[str, Changes]],
    ) -> int:
        for _ in range(TRIES if self._rest == 0 else 0):
            try:
                done = super()._run(batch, snapshots, position, more)
            except Moved:
                snapshots = self.store.snapshots()
            else:
                self._next_rest = _REST
                return done
        if self._rest == 0:
            self._rest, self._next_rest = self._next_rest, min(2 * self._next_rest, _LONGEST_REST)
        else:
            self._rest -= 1
        self.here = True
        try:
            return super()._run(batch, snapshots, position, more)
        finally:
            self.here = False

    @property
    @abstractmethod
    def read_tables(self) -> tuple[str, ...]:
        """Returns the tables that it reads in addition to the rows that it changes."""

    def versions(self, snapshots: StoreSnapshot) -> dict[str, int]:
        """Returns the versions of the tables that it reads."""
        return {name: snapshots.version(name) for name in self.read_tables}
