"""Reads all tables of an app as of one commit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from millpond.store.external import copied
from millpond.tables.base import Backend, Database, Reading, Snapshot, Writing
from millpond.tables.versioned_table import VersionedSnapshot


class StoreSnapshot:
    """Contains a snapshot of each table as of one commit.

    Tables of a database are read as of the first access to one of them.
    """

    def __init__(
        self,
        snapshots: Mapping[str, Snapshot],
        outside: Mapping[str, Backend],
        readings: Mapping[Database, Reading],
        *,
        steady: bool = False,
    ):
        self._snapshots = dict(snapshots)
        self._outside = outside
        self._readings = dict(readings)
        self._steady = steady

    @classmethod
    def of(
        cls,
        tables: Mapping[str, Backend],
        writing: Mapping[Database, Reading] | None = None,
        *,
        steady: bool = False,
    ) -> StoreSnapshot:
        """Returns a snapshot of these tables."""
        snapshots = {n: t.snapshot() for n, t in tables.items() if t.database is None}
        outside = {n: t for n, t in tables.items() if t.database is not None}
        return cls(snapshots, outside, writing or {}, steady=steady)

    def snapshot(self, table: str) -> Snapshot:
        name = table.lower()
        found = self._snapshots.get(name)
        if found is None:
            found = self._snapshots[name] = self._read(self._outside[name])
        return found

    def _read(self, backend: Backend) -> Snapshot:
        database = backend.database
        assert database is not None

        def below() -> Snapshot:
            if database not in self._readings:
                self._readings[database] = database.read()
            return self._readings[database].snapshot(backend.behind)

        if database in self._readings and isinstance(self._readings[database], Writing):
            return below()
        if self._steady:
            return below() if "held" in backend.behind.abilities else copied(below())
        return backend.through(below)

    def at(self, table: str, version: int | datetime) -> Snapshot:
        """Returns a table as of an earlier version. Only for a ``VersionedTable``."""
        found = self.snapshot(table)
        assert isinstance(found, VersionedSnapshot)
        return found.at(version)

    def version(self, table: str) -> int:
        return self.snapshot(table).version
