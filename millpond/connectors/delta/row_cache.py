"""Holds rows of the newest version of a Delta table that were looked up by their key, up to a size.

A row is valid for one version. A flush moves the rows to its version, without those that it changed; older versions,
which readers may still have, are read from their files.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Changes
from millpond.tables.base import Found
from millpond.tables.bounded_rows import BoundedRows
from millpond.tables.memory import MemoryTable
from millpond.types import Column, Schema

_MOST = 100_000
"""The largest number of rows that one lookup adds."""


class RowCache:
    """Stores rows for ``version``, any object. Threads may use it at once."""

    def __init__(self, schema: Schema, size: int, version: object = None):
        key = [c for name in schema.key if (c := schema.find(name)) is not None]
        self._names = [c.name for c in key]
        whole = Schema(tuple(Column(c.name, c.type) for c in schema.columns), tuple(self._names))
        plain = all(pa.types.is_integer(c.type) or pa.types.is_string(c.type) for c in key)
        self._rows = BoundedRows(MemoryTable(whole), max_size=None, max_memory=size)
        self._used = bool(size and key and plain)
        self._version = version
        self._lock = threading.RLock()
        """Held while version and rows are read or change: both belong together."""

    def moved(self, version: object, changed: pa.Table | None) -> None:
        """Keeps the rows for another version, without those that have the keys of ``changed``; None may be all."""
        with self._lock:
            self._version = version
            if changed is None:
                self._rows = self._rows.emptied(self._rows.schema)
            elif self._used:
                self._rows.drop(Changes(changed.select(self._names)))

    def find(self, version: object, columns: Sequence[str], keys: Sequence[Any]) -> Found | None:
        """Returns the rows with these keys, which have the types of the columns; None if some are not here."""
        if not self._used or version is not self._version or list(columns) != self._names:
            return None
        with self._lock:
            rows = self._rows
            if version is not self._version:
                return None
            found = rows.table.snapshot().find(tuple(columns), keys)
            if found is None or len(found) < len(keys):
                return None
            for key in keys:
                rows.use_key(key)
        return found

    def get(self, version: object, names: Sequence[str], keys: pa.Table) -> tuple[pa.Table | None, pa.Table]:
        """Returns the rows with some of the keys, and the other keys."""
        if not self._used or set(names) != set(self._names):
            return None, keys
        with self._lock:
            rows = self._rows
            if version is not self._version:
                return None, keys
            missing = rows.missing([keys[name].combine_chunks() for name in self._names])
            here = keys.filter(pc.invert(missing)).select(self._names)
            found = rows.table.get(self._names, here)
            rows.use(found, keys.num_rows)
        return found, keys.filter(missing)

    def add(self, version: object, names: Sequence[str], found: pa.Table) -> None:
        """Stores rows of a version that were found by these columns."""
        if not self._used or set(names) != set(self._names) or not 0 < found.num_rows <= _MOST:
            return
        with self._lock:
            if version is self._version:
                self._rows.apply(Changes(found))

    def stats(self) -> dict[str, Any]:
        rows = self._rows
        return {"cached_rows": len(rows.table), "cached_bytes": rows.bytes} | rows.stats()
