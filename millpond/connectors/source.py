"""The contract of a source, and how one is found.

A source holds no cursor. ``latest(start)`` names the end of what is there, ``splits(start, end)`` divides
what lies between two offsets, ``read(split)`` gives its rows: the same rows each time, from any process.
A start of None is the beginning, so that the bulk load and what comes later are on one line of offsets.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.changes import Offset
from millpond.errors import Error, NotSupported
from millpond.extensions import by_scheme, classes_of, offered_classes
from millpond.formats.received import Received, none_spoiled
from millpond.options import Option, defaults
from millpond.predicates import Need
from millpond.retry import AGAIN, Issues, Patience
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
    def follows(self) -> bool:
        """Whether rows may come after ``latest()``: a table over it follows it. Else it is loaded once."""
        return self.endless

    @property
    def captures(self) -> bool:
        """Whether a table over it follows changes of rows, by their key: see ``Captured``."""
        return False

    @property
    def enveloped(self) -> Schema | None:
        """The columns of the changes, one by one, as a stream of them has them; None if there is no such stream."""
        return None

    @property
    def runs(self) -> bool:
        """Whether a query over it runs on and emits rows, rather than to answer once."""
        return self.endless

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

    def keyed(self, *, wait: bool) -> str | None:
        """Why the last message of each key is what counts, if so: a table that says nothing else is keyed so.
        ``wait`` says whether to have patience with what is not there."""
        return None

    @abstractmethod
    def schema(self) -> Schema:
        """The columns: declared, or discovered."""

    @abstractmethod
    def latest(self, start: Offset | None) -> Offset:
        """The end of what is there now; never before ``start``."""

    def poll(self, start: Offset | None) -> Offset:
        """As ``latest``, for those who ask all the time: a source that is asked at a price tells for a while what is
        known."""
        return self.latest(start)

    @abstractmethod
    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        """What lies after ``start`` up to ``end``, in the order of its rows; nothing when they are equal."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of a split: the columns in the order of ``schema()``, and ``_seq``."""

    @property
    def drifts(self) -> bool:
        """Whether ``notice`` may find new columns."""
        return False

    def notice(self, splits: Sequence[Split]) -> None:
        """Looks whether what is to be read has columns that ``schema()`` does not have yet, and takes them in."""
        return

    sifts: ClassVar[bool] = False
    """Whether there may be records that cannot be read, which ``receive`` puts aside."""

    def receive(self, split: Split) -> Iterator[Received]:
        """As ``read``, without ``_seq``: the places are the sequence numbers. Where ``read`` would raise BadData, the
        records that cannot be read are put aside."""
        for batch in self.read(split):
            yield Received(batch.drop_columns([SEQ]), batch.column(SEQ), none_spoiled())

    def changes(self, stop: threading.Event) -> Iterator[None]:
        """Comes whenever there may be something new, until ``stop`` is set."""
        return ticks(stop)

    def replaced(self, start: Offset, end: Offset) -> bool:
        """Whether the rows up to ``end`` are not those up to ``start`` and some more: what was made of the earlier ones
        is made again from all, and compared."""
        return False

    def stands(self, end: Offset) -> bool:
        """Whether what lies before an offset can still be read, a second time, as it was."""
        return True

    leaves = False
    """Whether parts of it may go while their rows count on."""

    def left(self, end: Offset) -> frozenset[int] | None:
        """The parts whose rows count on, and that cannot be read any more; None if there are some, and it is not known
        which."""
        return frozenset()

    def part_of(self, seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The part that each row is of, by its sequence number."""
        return np.zeros(len(seqs), np.int64)

    def settled(self, at: Offset) -> bool:
        """Whether an offset is the end of all that is there, also of what is not believed yet."""
        return self.reached(at, self.latest(at))

    def clip(self, start: Offset | None, end: Offset, rows: int) -> Offset:
        """An offset after ``start``, up to ``end``, about ``rows`` rows on; ``end`` if it cannot tell."""
        return end

    def reached(self, at: Offset | None, end: Offset) -> bool:
        """Whether nothing lies between an offset and a later one."""
        return not self.splits(at, end)

    def begin(self) -> Offset | None:
        """Where a query that is new begins to read; None is the beginning."""
        return None

    def resume(self, at: Offset) -> Offset:
        """Where reading goes on after an offset that was kept. Raises what stands in the way."""
        return at

    def comparable(self, one: Offset, other: Offset) -> bool:
        """Whether two offsets are of one and the same thing, which was not made anew in between."""
        return True

    def lost(self, start: Offset | None, end: Offset) -> int:
        """How many rows between two offsets are not kept any more. Raises if the offsets are not of what is there."""
        return 0

    def lag(self, at: Offset | None) -> dict[str, int]:
        """The rows after an offset, by the part of the source that they are in; nothing where it cannot tell."""
        return {}

    @property
    def log_bytes(self) -> int | None:
        """The bytes of log that another system keeps for whoever follows it; None where it does not."""
        return None

    def patience(self, error: Error) -> Patience:
        """How long reading is tried again after an error that may pass."""
        return AGAIN

    @property
    def parallel(self) -> int:
        """How many may read splits at once, in any order."""
        return 1

    def narrowed(self, need: Need) -> Source:
        """A source that gives no more than what is needed, as far as it can look for that; else itself."""
        return self

    @property
    def sent(self) -> str | None:
        """What it asks another system for, for people."""
        return None

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
