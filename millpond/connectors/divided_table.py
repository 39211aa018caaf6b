"""Defines tables of which tasks of executors may write the rows of a batch, before the driver makes them visible."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager

import pyarrow as pa

from millpond.changes import Position
from millpond.connectors.sink import TaskWriter
from millpond.tables.flushed import FlushedTable


class DividedTable(FlushedTable):
    """Represents a table with a base that may also get the rows of a batch from executors, past the journal.

    Whoever publishes such batches gives them numbers that grow. The base has the number of the last one, and gets it in
    the commit of the rows.
    """

    @property
    @abstractmethod
    def own(self) -> str:
        """Returns a name that no other table has, and that stays when the table is renamed."""

    @abstractmethod
    def undisturbed(self) -> AbstractContextManager[object]:
        """Keeps other threads from writing to the base until the end of the block."""

    @abstractmethod
    def task_writer(self, *, local: bool) -> TaskWriter | None:
        """Returns what tasks write with; None if rows have to go through ``apply``. Tasks are ``local`` if this machine
        runs them.
        """

    @abstractmethod
    def publish(self, written: pa.Table, state: str, number: int, positions: Sequence[Position]) -> None:
        """Makes visible what the tasks of a batch have written, all or nothing, unless the base has it."""

    @abstractmethod
    def published(self, state: str) -> int | None:
        """Returns the number of the last batch of a state directory that the base contains."""
