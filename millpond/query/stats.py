"""Reports the statistics and the health of a table, without a lock that a writer holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any, Literal

Status = Literal["healthy", "loading", "static", "stale", "missing", "disconnected"]


class Counter:
    """Counts without a lock: threads add with ``next(counter.step)``, which costs 30 ns and loses nothing."""

    __slots__ = ("step",)

    def __init__(self) -> None:
        self.step = count()

    @property
    def value(self) -> int:
        return int(repr(self.step)[len("count(") : -1])


@dataclass(frozen=True, slots=True)
class Health:
    """Says whether a table can be relied on, and why."""

    status: Status
    reason: str

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}"


@dataclass(frozen=True)
class TableStats:
    """Contains statistics of a table. They are also available by name: ``stats["rows"]``, ``dict(stats)``."""

    rows: int
    bytes: int
    last_update: float | None
    """Seconds since 1970; None before the first change."""
    source: str
    """Where its rows come from: program, or the kind of the source."""
    lookups: int
    """Lookups by key or by equal values."""
    queries: int
    """Scans of all rows."""
    query_cache_hits: int = 0
    """Queries that ran with a cached plan."""
    query_cache_misses: int = 0
    """Plans that had to be made."""
    evictions: int = 0
    spilled_bytes: int = 0
    more: dict[str, Any] = field(default_factory=dict)
    """Further statistics of the backend."""

    @classmethod
    def of(cls, about: dict[str, Any], followed: dict[str, Any], **counted: Any) -> TableStats:
        """Combines what a backend reports, what is known of its source, and what was counted."""
        return cls(
            rows=about.pop("rows"),
            bytes=about.pop("bytes"),
            last_update=about.pop("changed_at", None),
            evictions=about.pop("evictions", 0),
            spilled_bytes=about.pop("spilled_bytes", 0),
            more=about | followed,
            **counted,
        )

    def __getitem__(self, name: str) -> Any:
        if name in self.more:
            return self.more[name]
        if name in _NAMES:
            return getattr(self, name)
        raise KeyError(name)

    def keys(self) -> list[str]:
        return [*_NAMES, *self.more]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


_NAMES = tuple(f.name for f in fields(TableStats) if f.name != "more")
