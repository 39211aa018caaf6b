"""Converts records of programs to Arrow and back: defines the valid values of each type, and how they are returned."""

from __future__ import annotations

from millpond.records.cast import conform
from millpond.records.incoming import to_arrow
from millpond.records.outgoing import to_rows

__all__ = ["conform", "to_arrow", "to_rows"]
