"""Counts the rows and bytes of a memory table."""

from __future__ import annotations

from typing import Any

from millpond.tables._hot import HotRecords
from millpond.tables._limit import Limit, fixed_bytes
from millpond.tables._versions import TableVersion


def stats_of(now: TableVersion, limit: Limit, hot: HotRecords) -> dict[str, Any]:
    """Returns the statistics of ``Backend.stats``, except for the time of the last change."""
    generation, blocks, died, mark, _ = now
    limited = {} if limit.most is None else {"max_memory": limit.most}
    return {
        "rows": mark.alive,
        "bytes": blocks.nbytes() + fixed_bytes(generation, died, as_is=True) + hot.nbytes(),
        "spilled_bytes": blocks.spilled_bytes + getattr(generation.newest, "spilled_bytes", 0),
        **limited,
        "dead": mark.slots - mark.alive,
        "indexes": [list(columns) for columns in generation.indexes()],
        "version": mark.version,
    }
