"""One measured figure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A rate beside a peer's rate, both in ``unit`` per second, or with ``per`` per something else.

    ``what`` names it: a later figure with the same name takes its place on the page. ``detail`` stands behind the rate:
    what else was measured, such as the time that each takes.
    """

    id: str
    what: str
    ours: float
    peer: float
    peer_name: str
    unit: str = "rows"
    per: str = "s"
    detail: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    def line(self) -> str:
        return (
            f"{self.id} {self.what}: {self._measured()}; "
            f"{self.peer_name}: {self.peer:,.0f} {self.unit}/{self.per}; ratio {self.ratio:.2f}"
        )

    def row(self) -> str:
        return (
            f"| {self.id} | {self.what} | {self._measured()} "
            f"| {self.peer_name}: {self.peer:,.0f} {self.unit}/{self.per} | {self.ratio:.2f} |"
        )

    def _measured(self) -> str:
        rate = f"{self.ours:,.0f} {self.unit}/{self.per}"
        return f"{rate}, {self.detail}" if self.detail else rate
