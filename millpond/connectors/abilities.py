"""What a source may be able to do beyond its four methods: each ability is a class to derive from.

    Follows       rows may come after ``latest``: a table over it goes on reading
    Steps         a range can be cut after a number of rows
    Rejects       records that cannot be read are put aside
    Drifts        new columns may be found while it is read
    Narrows       only what a query needs is asked of the other system
    Parallel      splits may be read side by side
    Perishable    what was read may not be there a second time
    Sheds         parts may be removed while their rows count on
    MessageLog    a log of messages that another system keeps for a while
    Keyed         the last message of each key may be what counts
    Captures      changes of rows can be followed by their key

An ability may depend on the options of a source: then a property of the class says whether it is there. The functions
here hold for every source, with or without the ability: whoever reads a source calls these.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from millpond.changes import Offset
from millpond.connectors.source import SEQ, Source, Split, ticks
from millpond.errors import Error
from millpond.formats.received import Received, none_spoiled
from millpond.predicates import Need
from millpond.retry import AGAIN, Patience
from millpond.types import Schema


class Follows(Source):
    """Rows may come after ``latest``."""

    @property
    def follows(self) -> bool:
        """Whether a table over it follows it. Else it is loaded once."""
        return True

    @property
    def runs(self) -> bool:
        """Whether a query over it runs on and emits rows, rather than to answer once."""
        return self.endless

    def changes(self, stop: threading.Event) -> Iterator[None]:
        """Comes whenever there may be something new, until ``stop`` is set."""
        return ticks(stop)

    def poll(self, start: Offset | None) -> Offset:
        """As ``latest``, for those who ask all the time: a source that is asked at a price tells for a while what is
        known."""
        return self.latest(start)

    def replaced(self, start: Offset, end: Offset) -> bool:
        """Whether the rows up to ``end`` are not those up to ``start`` and some more: what was made of the earlier ones
        is made again from all, and compared."""
        return False

    def settled(self, at: Offset) -> bool:
        """Whether an offset is the end of all that is there, also of what is not believed yet."""
        return self.reached(at, self.latest(at))

    def reached(self, at: Offset | None, end: Offset) -> bool:
        """Whether nothing lies between an offset and a later one."""
        return not self.splits(at, end)


class Steps(Source):
    """A range can be cut after a number of rows."""

    @abstractmethod
    def clip(self, start: Offset | None, end: Offset, rows: int) -> Offset:
        """An offset after ``start``, up to ``end``, about ``rows`` rows on; ``end`` if it cannot tell."""


class Rejects(Source):
    """Records that cannot be read are put aside."""

    @abstractmethod
    def receive(self, split: Split) -> Iterator[Received]:
        """As ``read``, without ``_seq``: the places are the sequence numbers. Where ``read`` would raise BadData, the
        records that cannot be read are put aside."""


class Drifts(Source):
    """New columns may be found while it is read."""

    @property
    def drifts(self) -> bool:
        """Whether ``notice`` may find new columns."""
        return True

    @abstractmethod
    def notice(self, splits: Sequence[Split]) -> None:
        """Looks whether what is to be read has columns that ``schema()`` does not have yet, and takes them in."""


class Narrows(Source):
    """Only what a query needs is asked of the other system."""

    @abstractmethod
    def narrowed(self, need: Need) -> Source:
        """A source that gives no more than what is needed, as far as it can look for that; else itself."""

    @property
    @abstractmethod
    def sent(self) -> str:
        """What it asks another system for, for people."""


class Parallel(Source):
    """Splits may be read side by side."""

    @property
    @abstractmethod
    def parallel(self) -> int:
        """How many may read splits at once, in any order."""


class Perishable(Source):
    """What was read may not be there a second time."""

    @abstractmethod
    def stands(self, end: Offset) -> bool:
        """Whether what lies before an offset can still be read, a second time, as it was."""


class Sheds(Source):
    """Parts may be removed while their rows count on: files, where 'on.remove' says so."""

    @property
    @abstractmethod
    def leaves(self) -> bool:
        """Whether parts of it may go while their rows count on."""

    @abstractmethod
    def left(self, end: Offset) -> frozenset[int] | None:
        """The parts whose rows count on, and that cannot be read any more; None if there are some, and it is not known
        which."""

    @abstractmethod
    def part_of(self, seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The part that each row is of, by its sequence number."""


class MessageLog(Source):
    """A log of messages that another system keeps for a while, and that may be made anew."""

    @abstractmethod
    def begin(self) -> Offset | None:
        """Where a query that is new begins to read; None is the beginning."""

    @abstractmethod
    def resume(self, at: Offset) -> Offset:
        """Where reading goes on after an offset that was kept. Raises what stands in the way."""

    @abstractmethod
    def comparable(self, one: Offset, other: Offset) -> bool:
        """Whether two offsets are of one and the same thing, which was not made anew in between."""

    @abstractmethod
    def lost(self, start: Offset | None, end: Offset) -> int:
        """How many rows between two offsets are not kept any more. Raises if the offsets are not of what is there."""

    @abstractmethod
    def lag(self, at: Offset | None) -> dict[str, int]:
        """The rows after an offset, by the part of the source that they are in."""

    @abstractmethod
    def patience(self, error: Error) -> Patience:
        """How long reading is tried again after an error that may pass."""


class Keyed(Source):
    """The last message of each key may be what counts."""

    @abstractmethod
    def keyed(self, *, wait: bool) -> str | None:
        """Why the last message of each key is what counts, if so: a table that says nothing else is keyed so.
        ``wait`` says whether to have patience with what is not there."""


class Captures(Source):
    """Changes of rows can be followed by their key: see ``cdc/source.py``."""

    @property
    @abstractmethod
    def captures(self) -> bool:
        """Whether a table over it follows changes of rows."""

    @property
    @abstractmethod
    def enveloped(self) -> Schema | None:
        """The columns of the changes, one by one, as a stream of them has them; None if there is no such stream."""

    @property
    @abstractmethod
    def log_bytes(self) -> int | None:
        """The bytes of log that the other system keeps for whoever follows it; None if it cannot tell."""


def follows(source: Source) -> bool:
    """Whether rows may come after ``latest()``."""
    return source.follows if isinstance(source, Follows) else source.endless


def runs(source: Source) -> bool:
    """Whether a query over a source runs on."""
    return source.runs if isinstance(source, Follows) else source.endless


def changes(source: Source, stop: threading.Event) -> Iterator[None]:
    """Comes whenever there may be something new, until ``stop`` is set."""
    return source.changes(stop) if isinstance(source, Follows) else ticks(stop)


def poll(source: Source, start: Offset | None) -> Offset:
    """The end of what is known to be there, for those who ask all the time."""
    return source.poll(start) if isinstance(source, Follows) else source.latest(start)


def replaced(source: Source, start: Offset, end: Offset) -> bool:
    """Whether the rows up to ``end`` are not those up to ``start`` and some more."""
    return isinstance(source, Follows) and source.replaced(start, end)


def settled(source: Source, at: Offset) -> bool:
    """Whether an offset is the end of all that is there."""
    return source.settled(at) if isinstance(source, Follows) else reached(source, at, source.latest(at))


def clip(source: Source, start: Offset | None, end: Offset, rows: int) -> Offset:
    """An offset after ``start``, up to ``end``, about ``rows`` rows on where the source can tell."""
    return source.clip(start, end, rows) if isinstance(source, Steps) else end


def reached(source: Source, at: Offset | None, end: Offset) -> bool:
    """Whether nothing lies between an offset and a later one."""
    return source.reached(at, end) if isinstance(source, Follows) else not source.splits(at, end)


def rejects(source: Source) -> bool:
    """Whether there may be records that cannot be read, which are put aside."""
    return isinstance(source, Rejects)


def receive(source: Source, split: Split) -> Iterator[Received]:
    """The rows of a split, with the records that cannot be read put aside where the source does that."""
    if isinstance(source, Rejects):
        yield from source.receive(split)
        return
    for batch in source.read(split):
        yield Received(batch.drop_columns([SEQ]), batch.column(SEQ), none_spoiled())


def drifts(source: Source) -> bool:
    """Whether new columns may be found while a source is read."""
    return isinstance(source, Drifts) and source.drifts


def notice(source: Source, splits: Sequence[Split]) -> None:
    """Takes in the columns of what is to be read that are new."""
    if isinstance(source, Drifts):
        source.notice(splits)


def narrowed(source: Source, need: Need) -> Source:
    """A source that gives no more than what is needed, as far as it can."""
    return source.narrowed(need) if isinstance(source, Narrows) else source


def sent(source: Source) -> str | None:
    """What a source asks another system for, for people."""
    return source.sent if isinstance(source, Narrows) else None


def parallel(source: Source) -> int:
    """How many may read splits at once."""
    return source.parallel if isinstance(source, Parallel) else 1


def stands(source: Source, end: Offset) -> bool:
    """Whether what lies before an offset can still be read as it was."""
    return source.stands(end) if isinstance(source, Perishable) else True


def leaves(source: Source) -> bool:
    """Whether parts of a source may go while their rows count on."""
    return isinstance(source, Sheds) and source.leaves


def left(source: Source, end: Offset) -> frozenset[int] | None:
    """The parts whose rows count on, and that cannot be read any more."""
    return source.left(end) if isinstance(source, Sheds) else frozenset()


def part_of(source: Source, seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The part that each row is of."""
    return source.part_of(seqs) if isinstance(source, Sheds) else np.zeros(len(seqs), np.int64)


def begin(source: Source) -> Offset | None:
    """Where a query that is new begins to read."""
    return source.begin() if isinstance(source, MessageLog) else None


def resume(source: Source, at: Offset) -> Offset:
    """Where reading goes on after an offset that was kept."""
    return source.resume(at) if isinstance(source, MessageLog) else at


def comparable(source: Source, one: Offset, other: Offset) -> bool:
    """Whether two offsets are of one and the same thing."""
    return source.comparable(one, other) if isinstance(source, MessageLog) else True


def lost(source: Source, start: Offset | None, end: Offset) -> int:
    """How many rows between two offsets are not kept any more."""
    return source.lost(start, end) if isinstance(source, MessageLog) else 0


def lag(source: Source, at: Offset | None) -> dict[str, int]:
    """The rows after an offset, by part; nothing where a source cannot tell."""
    return source.lag(at) if isinstance(source, MessageLog) else {}


def patience(source: Source, error: Error) -> Patience:
    """How long reading is tried again after an error that may pass."""
    return source.patience(error) if isinstance(source, MessageLog) else AGAIN


def keyed(source: Source, *, wait: bool) -> str | None:
    """Why the last message of each key is what counts, if so."""
    return source.keyed(wait=wait) if isinstance(source, Keyed) else None


def captures(source: Source) -> bool:
    """Whether a table over a source follows changes of rows, by their key."""
    return isinstance(source, Captures) and source.captures


def enveloped(source: Source) -> Schema | None:
    """The columns of the changes, one by one, as a stream of them has them."""
    return source.enveloped if isinstance(source, Captures) else None


def log_bytes(source: Source) -> int | None:
    """The bytes of log that another system keeps for whoever follows it."""
    return source.log_bytes if isinstance(source, Captures) else None
