"""Defines the error for a table with too many changes that its base does not have."""

from __future__ import annotations

from millpond.errors import ConnectionLost
from millpond.steps import size_text


class Unflushed(ConnectionLost):
    """Reports that too many changes wait for a flush. A running statement tries again."""

    code = "table_full"


def full(what: str, size: int, flush_error: str | None) -> Unflushed:
    """Returns the error for a table with so many bytes of changes."""
    return Unflushed(
        f"{what} has {size_text(size)} of changes that its Delta table does not have yet"
        + (f": {flush_error}" if flush_error else ""),
        hint="try again when they are written, or make 'flush.size' larger",
    )
