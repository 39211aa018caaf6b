"""Declares what the generated functions of a memory table read of it."""

from __future__ import annotations

from typing import Protocol

from millpond.tables._hot import HotRecords
from millpond.tables._snapshot import MemorySnapshot, Settled
from millpond.tables._versions import Live
from millpond.types import Schema


class LiveTable(Protocol):
    """Represents a memory table to its readers: commits replace ``live`` and ``settled``, which are read again each
    time.
    """

    schema: Schema
    live: Live
    settled: Settled
    hot: HotRecords
    declared: set[tuple[str, ...]]

    @property
    def key(self) -> tuple[str, ...]: ...
    def snapshot(self, commit: int | None = None) -> MemorySnapshot: ...
