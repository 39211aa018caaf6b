"""Stores the rows of tables. A backend is found by its name: a file here, or ``table.py`` of a connector."""

from __future__ import annotations

from millpond.tables.base import Backend, Snapshot
from millpond.tables.registry import backend_names, find_backend

__all__ = ["Backend", "Snapshot", "backend_names", "find_backend"]
