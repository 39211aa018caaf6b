"""Changes of a table in a database, as the database logs them: the rows in which they come, and what reads them.

Each kind of log (PostgreSQL's, MySQL's) is a ``Log``. A place in it is an offset, always the end of a transaction, so
that what lies between two offsets is whole transactions.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from millpond.changes import Offset
from millpond.types import Column, Schema

OP = "_op"
"""The column that says what a row of a log does: int8, one of the following."""
PUT = 0
"""The row is there from now on, in the place of the one with its key."""
ADDED = 4
"""As ``PUT``, where the log tells that there was none with its key."""
ENDED = 1
"""The row with this key is gone; of a table without a key, one row that is like this one."""
MOVED = 2
"""The row with this key is gone: it goes on as the next one of the log, which is a ``PUT``, under another key."""
EMPTIED = 3
"""All rows are gone: TRUNCATE."""
KEPT = "_kept"
"""The column that lists the columns of a ``PUT`` that are as they were, whose values the log does not have: a list of
int16, places in the schema; NULL for none."""


def log_schema(schema: Schema) -> pa.Schema:
    """The columns of what ``Log.read`` gives."""
    return schema.arrow().append(pa.field(OP, pa.int8())).append(pa.field(KEPT, pa.list_(pa.int16())))


ORIGIN = pa.struct(
    [(name, pa.string()) for name in ("connector", "db", "schema", "table", "position", "snapshot")]
)
"""Where a change comes from."""


def envelope(schema: Schema) -> Schema:
    """The columns of Debezium's envelopes of changes of a table."""
    row = pa.struct([pa.field(c.name, c.type) for c in schema])
    kinds = {"before": row, "after": row, "op": pa.string(), "ts_ms": pa.int64(), "source": ORIGIN}
    return Schema(tuple(Column(name, kind) for name, kind in kinds.items()))


class Log(ABC):
    """The log of one table, for one who follows it. Its methods are called by one thread at a time, except ``news``
    and ``close``. It opens its connections when it needs them, and again after one was lost: what fails raises
    ConnectionLost and may be called again."""

    schema: Schema
    """The columns that ``read`` gives. Whoever owns the log may set others, as ``fresh`` tells of them."""

    @abstractmethod
    def check(self) -> None:
        """Raises CaptureRefused if changes cannot be followed, with what must be done in the database for it."""

    @abstractmethod
    def begin(self) -> tuple[Offset, str | None]:
        """Makes what is needed in the database, anew if it is there. Answers the place from which changes are to be
        read, and the name of the moment of the database at exactly that place, for whoever loads the rows before it;
        the moment can be entered until ``begun``."""

    @abstractmethod
    def begun(self) -> None:
        """The moment of ``begin`` is not needed any longer."""

    @abstractmethod
    def start(self, where: str) -> Offset:
        """Makes what is needed in the database, without a moment: to read from ``earliest``, ``latest`` or a place as
        the database writes it."""

    @abstractmethod
    def latest(self, start: Offset, rows: int) -> Offset:
        """The end of what is there after ``start``: whole transactions, at least one and about ``rows`` changes of the
        table; ``start`` itself if there is no change of it, or a later place without one between, so that the
        database need not keep what is of other tables. Everything up to ``start`` is kept elsewhere by now: the
        database need not keep it. Raises CaptureLost if what comes after ``start`` is gone."""

    @abstractmethod
    def fresh(self, start: Offset, end: Offset) -> Schema:
        """Columns that came to the table between two offsets, and are not in ``schema``. One that has become another
        type raises SourceChanged, unless ``schema`` can hold its values."""

    @abstractmethod
    def read(self, start: Offset, end: Offset) -> Iterator[pa.RecordBatch]:
        """What lies between two offsets, in order: the same each time, until ``latest`` was asked with ``end``. The
        columns are those of ``log_schema``. A column that the table has lost is NULL."""

    def news(self, stop: threading.Event) -> Iterator[None]:
        """Comes whenever the log has grown, until ``stop`` is set; soon, as that is the delay of every change."""
        while not stop.wait(0.1):
            yield

    def lag(self) -> int | None:
        """The bytes of log that the database keeps for this one; None where it does not."""
        return None

    @abstractmethod
    def drop(self) -> None:
        """Removes what ``begin`` made in the database, if it is there."""

    @abstractmethod
    def close(self) -> None:
        """Frees connections. It may be called twice."""
