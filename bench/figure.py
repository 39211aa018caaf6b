"""One measured figure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A rate beside a peer's rate, both in ``unit`` per second, or with ``per`` per something else."""

    id: str
    what: str
    ours: float
    peer: float
    peer_name: str
    unit: str = "rows"
    per: str = "s"

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    def line(self) -> str:
        return (
            f"{self.id} {self.what}: {self.ours:,.0f} {self.unit}/{self.per}; "
            f"{self.peer_name}: {self.peer:,.0f} {self.unit}/{self.per}; ratio {self.ratio:.2f}"
        )

    def row(self) -> str:
        return (
            f"| {self.id} | {self.what} | {self.ours:,.0f} {self.unit}/{self.per} "
            f"| {self.peer_name}: {self.peer:,.0f} {self.unit}/{self.per} | {self.ratio:.2f} |"
        )
