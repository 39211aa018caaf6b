"""Makes commits durable, in one SQLite file and the files that it names."""

from __future__ import annotations

from millpond.journal.catalog import Entry
from millpond.journal.journal import Journal
from millpond.journal.state import StateDirectory

__all__ = ["Entry", "Journal", "StateDirectory"]
