"""Where tables keep their rows. A backend is one file here, found by its name."""

from __future__ import annotations

from millpond.tables.base import Backend, Snapshot, backend_names, find_backend

__all__ = ["Backend", "Snapshot", "backend_names", "find_backend"]
