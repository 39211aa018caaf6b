"""Shows readers of several memory tables the same commit: they see old rows until all tables have the new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.locks import Turns
from millpond.tables._blocks import Blocks
from millpond.tables._coldkeys import Keys
from millpond.tables._reshape import MovedKeys
from millpond.tables._snapshot import Settled
from millpond.tables._versions import Generation, Live, Mark, TableVersion


class Hold:
    """Is shared by the tables of a commit. Setting ``over`` shows the new rows of all of them in one step."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False


class Unsettled(dict[tuple[str, ...], Any]):
    """Is in the place of settled indexes while readers see old rows: stores none."""

    def __setitem__(self, columns: tuple[str, ...], index: Any) -> None:
        return None


class HeldRows:
    """Keeps the readers of a memory table at its rows while commits are applied. They do not wait: those by key take
    the general path meanwhile, which reads a snapshot.
    """

    live: Live
    settled: Settled
    _generation: Generation
    _blocks: Blocks
    _mark: Mark
    _now: TableVersion
    _writing: Turns
    _held: tuple[Hold, TableVersion] | None = None

    if TYPE_CHECKING:

        @property
        def closed(self) -> bool: ...

    @property
    def held(self) -> bool:
        """Returns whether readers see older rows."""
        return self._held is not None

    def hold(self, hold: Hold) -> None:
        """Shows the current rows until the hold is over."""
        with self._writing:
            self._held = hold, self._now
            self._begin_reads()

    def release(self) -> None:
        """Returns readers by key to the fast path; the hold is over."""
        with self._writing:
            self._held = None
            if not self.closed:
                self._begin_reads()

    def _begin_reads(self) -> None:
        """Gives readers what finds the newest rows, or, while they are held, nothing that finds them."""
        self.live.current = False
        held = self._held is not None
        newest: Keys = MovedKeys() if held else self._generation.newest
        self.live = Live(newest, self._blocks, 0 if held else self._mark.slots)
        self.settled = self._unsettled()

    def _unsettled(self) -> Settled:
        return {} if self._held is None else Unsettled()
