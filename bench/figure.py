"""One measured figure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A rate beside a peer's rate, both in ``unit`` per second."""

    id: str
    what: str
    ours: float
    peer: float
    peer_name: str
    unit: str = "rows"

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    def line(self) -> str:
        return (
            f"{self.id} {self.what}: {self.ours:,.0f} {self.unit}/s; "
            f"{self.peer_name}: {self.peer:,.0f} {self.unit}/s; ratio {self.ratio:.2f}"
        )

    def row(self) -> str:
        return (
            f"| {self.id} | {self.what} | {self.ours:,.0f} {self.unit}/s "
            f"| {self.peer_name}: {self.peer:,.0f} {self.unit}/s | {self.ratio:.2f} |"
        )
