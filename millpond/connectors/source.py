"""The contract of a source, and how one is found.

A source holds no cursor. ``latest(start)`` names the end of what is there, ``splits(start, end)`` divides
what lies between two offsets, ``read(split)`` gives its rows: the same rows each time, from any process.
A start of None is the beginning, so that the bulk load and what comes later are on one line of offsets.

That is all that a source needs. What one may do beyond it is declared, ability by ability: see ``abilities.py``.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millpond.changes import Offset
from millpond.errors import NotSupported
from millpond.extensions import by_scheme, classes_of, offered_classes
from millpond.formats.received import Received
from millpond.options import Option, defaults
from millpond.retry import Issues
from millpond.types import Schema

SEQ = "_seq"
"""The column that gives the order of rows: int64, unique and increasing along a source's line of offsets."""


DELETED = "_deleted"
"""The column of a source that says whether a message has no value: in a keyed table it ends the row of its key."""
MESSAGE = ("_key", "_partition", "_offset", "_timestamp", "_headers", DELETED)
"""Columns that a message has beside those of its value."""


BYTES_OF_A_ROW = 64
"""What a row is taken for where only bytes are known."""
LOOK = 0.5
"""Seconds between two looks at a source that cannot tell when there is something new."""


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads. Picklable. ``rows`` and ``bytes`` are None where they are not known before."""

    rows: int | None
    bytes: int | None

    @property
    def file(self) -> str | None:
        """The file that it is a piece of, where there are files."""
        return None


class Source(ABC):
    """Rows from outside, at a URI. Picklable."""

    kind: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[Option, ...]] = ()
    local: ClassVar[bool] = False
    """Whether only the process that made the source can read it."""

    endless: ClassVar[bool] = False
    """Whether it is a stream: whatever reads it runs on."""

    @property
    def guesses(self) -> bool:
        """Whether the types of ``schema()`` were found by looking at text: declared ones read it better."""
        return False

    patient: bool = True
    """Whether what is not there is waited for."""

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        self.issues = Issues()
        self.uri = uri
        self.values = defaults(self.options) | dict(values)
        self.declared = declared
        self.found: Schema | None = None
        """Columns that were discovered before: ``schema()`` then gives these and does not look again."""

    @property
    def address(self) -> str:
        """What its columns are discovered at, without secrets."""
        return self.uri.partition("?")[0]

    @abstractmethod
    def schema(self) -> Schema:
        """The columns: declared, or discovered."""

    @abstractmethod
    def latest(self, start: Offset | None) -> Offset:
        """The end of what is there now; never before ``start``."""

    @abstractmethod
    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        """What lies after ``start`` up to ``end``, in the order of its rows; nothing when they are equal."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of a split: the columns in the order of ``schema()``, and ``_seq``."""

    def close(self) -> None:
        """Frees what the source holds. It may be called twice."""
        return


class NativeSource(Source):
    """Read by a format of Spark. What Spark gives is decoded by ``decode``, here or on the executors."""

    endless = True
    format: ClassVar[str]

    def prepare(self) -> None:
        """Called before Spark reads: raises what stands in the way."""

    @abstractmethod
    def stream_settings(self, start: Offset | None, rows: int) -> dict[str, str]:
        """Spark's options to read on from an offset, about ``rows`` rows at a time."""

    @abstractmethod
    def range_settings(self, start: Offset | None, end: Offset) -> dict[str, str]:
        """Spark's options to read what lies between two offsets."""

    @abstractmethod
    def offset_of(self, noted: str) -> Offset:
        """The offset that Spark has noted in its checkpoint."""

    @abstractmethod
    def decode(self, raw: pa.Table) -> Received:
        """The rows of what Spark gives, in their order."""

    @abstractmethod
    def first_seq(self, start: Offset | None) -> int:
        """The sequence number of the first row after an offset."""

    def tasks(self) -> int:
        """How many tasks of Spark read it at once."""
        return 1

    def decoding_sql(self, view: str) -> str:
        """The rows of what Spark gives, under the name ``view``, as a query of Spark. Raises NotSupported if only
        ``decode`` can tell."""
        raise NotSupported(f"{self.kind}:// cannot be decoded by Spark")

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        raise NotSupported(f"{self.kind}:// is read by Spark only")


@cache
def sources() -> tuple[type[Source], ...]:
    """Every source of this package, by kind."""
    found = classes_of("source", Source)
    return tuple(sorted(found, key=lambda s: s.kind))


def every_source() -> tuple[type[Source], ...]:
    """Every source of this package and of others."""
    return (*sources(), *offered_classes("source", Source))


def find_source(uri: str) -> type[Source]:
    """The source for the scheme of a URI."""
    return by_scheme(uri, "source", Source, sources(), 'there is no source for "{scheme}://"')


def ticks(stop: threading.Event) -> Iterator[None]:
    """Comes now and then, until ``stop`` is set."""
    while not stop.wait(LOOK):
        yield


def with_seq(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """The batch with consecutive sequence numbers from ``first``."""
    numbers = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
    return batch.append_column(pa.field(SEQ, pa.int64()), numbers)
