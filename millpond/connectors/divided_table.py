"""Defines tables of which tasks of executors may write the rows of a batch, before the driver makes them visible."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.changes import Position
from millpond.connectors.sink import TaskWriter
from millpond.tables.flushed_table import FlushedTable
from millpond.types import Schema


@dataclass(frozen=True, slots=True)
class Written:
    """Describes what the tasks of a batch have written, its ``rows``, and the files of ``version`` that it replaces."""

    files: pa.Table
    rows: int
    removed: tuple[str, ...] = ()
    version: int | None = None

    @property
    def bytes(self) -> int:
        return int(sum(self.files["bytes"].to_pylist()))


class Merging(ABC):
    """Describes a version of a base, with files of Parquet that executors read and write anew."""

    version: int
    columns: Schema
    """The columns of the files, with their key."""

    @property
    @abstractmethod
    def fitting(self) -> Callable[[pa.Table], pa.Table]:
        """Returns a function, which is picklable, that returns rows with ``columns``, and raises a DataError for those
        that the table refuses.
        """

    @property
    @abstractmethod
    def writer(self) -> TaskWriter:
        """Returns what writes rows with ``columns``."""

    @abstractmethod
    def files(self, low: Any, high: Any) -> dict[str, str]:
        """Returns where the files are that may have a value from ``low`` to ``high`` in the first column of the key, by
        their names without folders.
        """

    @abstractmethod
    def removed(self, names: Sequence[str]) -> tuple[str, ...]:
        """Returns the files with these names as ``Written`` has them."""


class DividedTable(FlushedTable):
    """Represents a table with a base that may also get the rows of a batch from executors, past the journal.

    Whoever publishes such batches gives them numbers that grow. The base has the number of the last one, and gets it in
    the commit of the rows.
    """

    @classmethod
    @abstractmethod
    def divides(cls, values: Mapping[str, Any], schema: Schema) -> bool:
        """Returns whether executors may write to a table with these options and columns, for EXPLAIN."""

    @property
    @abstractmethod
    def own(self) -> str:
        """Returns a name that no other table has, and that stays when the table is renamed."""

    @abstractmethod
    def undisturbed(self) -> AbstractContextManager[object]:
        """Keeps other threads from writing to the base until the end of the block."""

    @abstractmethod
    def task_writer(self, *, local: bool) -> TaskWriter | None:
        """Returns what tasks write with, for a table without a key; None if rows have to go through ``apply``. Tasks
        are ``local`` if this machine runs them.
        """

    @abstractmethod
    def merging(self, *, local: bool) -> Merging | None:
        """Returns what tasks merge a batch with, for a table with a key; None if rows have to go through ``apply``. The
        base has all changes that are there before it.
        """

    @abstractmethod
    def has_changed(self, version: int) -> bool:
        """Returns whether there are changes that this version of the base does not have."""

    @abstractmethod
    def publish(self, written: Written, state: str, number: int, positions: Sequence[Position]) -> None:
        """Makes visible what the tasks of a batch have written, all or nothing, unless the base has it. Raises an error
        that says to try again if the base has changed since the version that was read.
        """

    @abstractmethod
    def published(self, state: str) -> int | None:
        """Returns the number of the last batch of a state directory that the base contains."""
