"""Defines the changelog of a table in a database: the rows that represent changes, and the contract of its readers.

Each kind of log is a ``Log``. A position in it is an offset, always the end of a transaction, so that whole
transactions lie between two offsets.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from millpond.changes import Offset
from millpond.types import Schema

OP = "_op"
"""The column that contains the operation of a row of a log: int8, one of the following."""
PUT = 0
"""The row exists from now on, and replaces the one with its key."""
ADDED = 4
"""Like ``PUT``, if the log says that there was none with its key."""
ENDED = 1
"""The row with this key is deleted; in a table without a key, one row that equals this one."""
MOVED = 2
"""The row with this key is deleted: the next row of the log, a ``PUT``, continues it under another key."""
EMPTIED = 3
"""All rows are deleted: TRUNCATE."""
KEPT = "_kept"
"""The column that lists the unchanged columns of a ``PUT``, whose values the log does not contain: a list of int16,
indexes in the schema; NULL for none.
"""


CHANGES = 50_000
"""Approximate number of changes that are read at once: a transaction is never divided."""
LogPosition = tuple[int, ...]
"""A position in the log of a whole database: the same one for all of its tables, and later ones are greater."""


def log_schema(schema: Schema) -> pa.Schema:
    """Returns the columns of the result of ``Log.read``."""
    return schema.arrow().append(pa.field(OP, pa.int8())).append(pa.field(KEPT, pa.list_(pa.int16())))


class Log(ABC):
    """Reads the log of one table, for one follower. Its methods are called by one thread at a time, except ``news`` and
    ``close``. It opens its connections on demand, and again after one was lost: a call that fails raises ConnectionLost
    and may be repeated.
    """

    schema: Schema
    """The columns that ``read`` returns. The owner of the log may set others, as ``fresh`` reports them."""

    @abstractmethod
    def check(self) -> None:
        """Raises CaptureRefused if changes cannot be captured, with what must be done in the database for it."""

    @abstractmethod
    def begin(self) -> tuple[Offset, str | None]:
        """Creates what is needed in the database, again if it exists. Returns the position from which changes are to be
        read, and the name of the database snapshot at exactly that position, for the load of the rows before it; the
        snapshot can be used until ``begun``.
        """

    @abstractmethod
    def begun(self) -> None:
        """Releases the snapshot of ``begin``."""

    @abstractmethod
    def start(self, where: str) -> Offset:
        """Creates what is needed in the database, without a snapshot: to read from ``earliest``, ``latest`` or a
        position as the database writes it.
        """

    def latest(self, start: Offset, rows: int) -> Offset:
        """Returns the end of what is available after ``start``: whole transactions, at least one and about ``rows``
        changes of the table, as ``horizon`` and ``until`` have it.
        """
        return self.until(start, self.horizon(start, rows))

    @abstractmethod
    def horizon(self, start: Offset, rows: int) -> LogPosition:
        """Returns a position up to which all changes of the table after ``start`` are available: whole transactions, at
        least one and about ``rows`` changes; all there are by now if those are fewer. Everything up to ``start`` is
        stored elsewhere by now: the database need not retain it. Raises CaptureLost if what comes after ``start`` is
        gone.
        """

    @abstractmethod
    def until(self, start: Offset, position: LogPosition) -> Offset:
        """Returns the end of the last change of the table after ``start`` that is not after a position, which
        ``horizon`` has reached; ``start`` itself if there is none, or a later position without one between, so that the
        database need not retain what is of other tables.
        """

    @abstractmethod
    def fresh(self, start: Offset, end: Offset) -> Schema:
        """Returns columns that were added to the table between two offsets, and are not in ``schema``. One whose type
        has changed raises SourceChanged, unless ``schema`` can represent its values.
        """

    @abstractmethod
    def read(self, start: Offset, end: Offset) -> Iterator[pa.RecordBatch]:
        """Yields what lies between two offsets, in order: the same each time, until ``latest`` was called with ``end``.
        The columns are those of ``log_schema``. A dropped column of the table is NULL.
        """

    def news(self, stop: threading.Event) -> Iterator[None]:
        """Yields whenever the log has grown, until ``stop`` is set; soon, as that is the delay of every change."""
        while not stop.wait(0.1):
            yield

    def lag(self) -> int | None:
        """Returns the bytes of log that the database retains for this one; None if it does not."""
        return None

    @abstractmethod
    def drop(self) -> None:
        """Removes what ``begin`` created in the database, if it exists."""

    @abstractmethod
    def close(self) -> None:
        """Closes connections. It may be called twice."""
