"""Defines tables that keep earlier versions of their rows, as files that somebody has to compact and to remove."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime

import pyarrow as pa

from millpond.tables.base import Backend, Snapshot


class VersionedSnapshot(Snapshot):
    """Represents a snapshot of such a table."""

    @abstractmethod
    def at(self, version: int | datetime) -> Snapshot:
        """Returns the rows of an earlier version, or of the one that was the newest at a time. Raises an Error if there
        is none, or if its files are gone.
        """


class VersionedTable(Backend):
    """Represents a table whose versions can be read, listed and removed."""

    @abstractmethod
    def history(self) -> pa.Table:
        """Returns the versions that are known, the newest first."""

    @abstractmethod
    def optimize(self) -> pa.Table:
        """Writes small files together; the rows stay as they are. Returns what it did, in one row. Nothing flushes
        meanwhile.
        """

    @abstractmethod
    def vacuum(self, hours: int | None) -> pa.Table:
        """Removes files that no version of the last ``hours`` has, by default of the time that an option sets, and no
        reader of this table. Returns what it did, in one row. Nothing flushes meanwhile.
        """

    @abstractmethod
    def care(self) -> None:
        """Does what is due of both, after a flush."""
