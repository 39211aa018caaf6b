"""Records of programs to Arrow and back: what a value of each type may be, and how it is handed out."""

from __future__ import annotations

from millpond.records.cast import conform
from millpond.records.incoming import to_arrow
from millpond.records.outgoing import to_rows

__all__ = ["conform", "to_arrow", "to_rows"]
