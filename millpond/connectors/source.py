"""Defines the contract of a source, and finds sources.

A source has no cursor. ``latest(start)`` names the end of the available rows, ``splits(start, end)`` divides what lies
between two offsets, ``read(split)`` returns its rows: the same rows each time, from any process. A start of None is the
beginning, so that the backfill and later rows are on one line of offsets.

That is all that a source needs. What it can do beyond is declared, ability by ability: see ``abilities.py``.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.changelog import DELETED as DELETED
from millpond.changes import Offset
from millpond.errors import NotSupported
from millpond.extensions import by_scheme, classes_of, offered_classes
from millpond.formats.read_records import Received
from millpond.options import Option, defaults
from millpond.retry import Issues
from millpond.types import Schema

SEQ = "_seq"
"""The column with the order of rows: int64, unique and increasing along a source's line of offsets."""


MESSAGE = ("_key", "_partition", "_offset", "_timestamp", "_headers", DELETED)
"""Columns that a message has in addition to those of its value."""


BYTES_OF_A_ROW = 64
"""The assumed bytes of a row if only bytes are known."""
LOOK = 0.5
"""Seconds between two polls of a source that cannot notify of new rows."""


@dataclass(frozen=True, slots=True)
class Split:
    """Describes what one task reads. Picklable. ``rows`` and ``bytes`` are None if they are not known before."""

    rows: int | None
    bytes: int | None

    @property
    def about(self) -> float:
        """Returns the number of rows, estimated from the bytes if it is not known."""
        return self.rows if self.rows is not None else (self.bytes or 0) / BYTES_OF_A_ROW

    @property
    def file(self) -> str | None:
        """Returns the file that it is a piece of, if there are files."""
        return None


class Source(ABC):
    """Reads rows from outside, at a URI. Picklable."""

    kind: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[Option, ...]] = ()
    local: ClassVar[bool] = False
    """Whether only the process that created the source can read it."""

    staged: ClassVar[bool] = False
    """Whether its rows lie on the disk of the app. The app reads them and copies them for Spark, whose executors may be
    elsewhere; where they are not, that costs less than Python workers that read them.
    """

    endless: ClassVar[bool] = False
    """Whether it is a stream: statements that read it keep running."""

    @property
    def guesses(self) -> bool:
        """Returns whether the types of ``schema()`` were inferred from text: declared ones read it better."""
        return False

    patient: bool = True
    """Whether to wait for what does not exist."""

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        self.issues = Issues()
        self.uri = uri
        self.values = defaults(self.options) | dict(values)
        self.declared = declared
        self.found: Schema | None = None
        """Columns that were discovered before: ``schema()`` then returns these and does not discover again."""

    @property
    def address(self) -> str:
        """Returns where its columns are discovered, without secrets."""
        return self.uri.partition("?")[0]

    @abstractmethod
    def schema(self) -> Schema:
        """Returns the columns: declared, or discovered."""

    @abstractmethod
    def latest(self, start: Offset | None) -> Offset:
        """Returns the end of what is available now; never before ``start``."""

    @abstractmethod
    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        """Returns what lies after ``start`` up to ``end``, in the order of its rows; nothing when they are equal."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a split: the columns in the order of ``schema()``, and ``_seq``."""

    def close(self) -> None:
        """Releases the resources of the source. It may be called twice."""
        return


class Order(Protocol):
    """Numbers messages, the same wherever they are read. Picklable."""

    def __call__(self, raw: pa.Table) -> npt.NDArray[np.int64]:
        """Returns the sequence number of each message, whichever of a range they are."""


class NativeSource(Source):
    """Describes a source that a Spark format or this process reads; ``decode`` decodes here or on the executors."""

    endless = True
    format: ClassVar[str]

    def prepare(self) -> None:
        """Raises what prevents reading; called before a statement reads it."""

    @abstractmethod
    def stream_settings(self, start: Offset | None) -> dict[str, str]:
        """Returns Spark's options to read on from an offset."""

    @abstractmethod
    def range_settings(self, start: Offset | None, end: Offset, most: int) -> dict[str, str]:
        """Returns Spark's options to read what lies between two offsets, at most so many messages of it in a task: a
        split that is larger is read by several tasks.
        """

    @abstractmethod
    def offset_of(self, noted: str) -> Offset:
        """Returns the offset that Spark notes in the progress of a query."""

    def begun(self, start: Offset | None, end: Offset) -> Offset | None:
        """Returns the offset that a range begins at: for None, what is the beginning now."""
        return start

    @abstractmethod
    def fetch(self, start: Offset | None, end: Offset) -> pa.Table:
        """Reads what lies between two offsets in this process, without Spark, in the form that Spark returns."""

    @abstractmethod
    def order(self, start: Offset | None, end: Offset, raw: pa.Table | None = None) -> Order:
        """Returns the order of the messages between two offsets; ``raw`` are these messages, if they were read."""

    @abstractmethod
    def decode(self, raw: pa.Table) -> Received:
        """Decodes messages; places are their indexes. New fields of them become columns, of the result too."""

    @abstractmethod
    def flat(self, columns: Collection[str] | None) -> tuple[str, ...]:
        """Returns what Spark passes to Python of the messages that its format returns, if only these of its columns
        are needed: as expressions without lists, since at each row of a batch Spark goes through the lists of all rows
        before it.
        """

    @abstractmethod
    def decode_known(self, raw: pa.Table) -> tuple[Received, bool]:
        """Decodes messages to the columns of ``schema()``, with NULL where what it needs of the messages was not
        passed; also returns whether ``decode`` would find new columns.
        """

    @abstractmethod
    def first_seq(self, start: Offset | None) -> int:
        """Returns the sequence number of the first row after an offset."""

    def tasks(self) -> int:
        """Returns how many tasks of Spark read it at once."""
        return 1

    def decoding_sql(self, view: str) -> str:
        """Returns a Spark query that decodes the rows of the view ``view``. Raises NotSupported if only
        ``decode`` can.
        """
        raise NotSupported(f"{self.kind}:// cannot be decoded by Spark")

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        raise NotSupported(f"{self.kind}:// is not read split by split")


@cache
def sources() -> tuple[type[Source], ...]:
    """Returns every source of this package, by kind."""
    found = classes_of("source", Source)
    return tuple(sorted(found, key=lambda s: s.kind))


def every_source() -> tuple[type[Source], ...]:
    """Returns every source of this package and of others."""
    return (*sources(), *offered_classes("source", Source))


def find_source(uri: str) -> type[Source]:
    """Returns the source for the scheme of a URI."""
    return by_scheme(uri, "source", Source, sources(), 'there is no source for "{scheme}://"')


def ticks(stop: threading.Event) -> Iterator[None]:
    """Yields from time to time, until ``stop`` is set."""
    while not stop.wait(LOOK):
        yield


def with_seq(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Returns the batch with consecutive sequence numbers from ``first``."""
    numbers = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
    return batch.append_column(pa.field(SEQ, pa.int64()), numbers)
