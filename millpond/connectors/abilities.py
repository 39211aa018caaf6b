"""Declares what a source can do beyond its four methods: each ability is a class to derive from.

    Follows       rows may come after ``latest``: a table over it continues to read
    Steps         a range can be cut after a number of rows
    Rejects       records that cannot be read become error records
    Drifts        new columns may be found while it is read
    Narrows       only what a query needs is requested from the other system
    Parallel      splits may be read in parallel
    Spreads       splits of a load may be read by executors
    Perishable    what was read may not exist a second time
    Sheds         parts may be removed while their rows remain valid
    MessageLog    a log of messages that another system stores for a while
    Keyed         the last message of each key may be the current row
    Captures      changes of rows can be captured by their key
    Adopts        reading can go on where a job of another system has ended (``job_progress``)
    Forgets       old rows are removed while others are read (``retention``)
    Pins          Spark reads rows from Parquet files of the app (``pinned_files``)

If an ability depends on the options of a source, a property of the class says whether it is available. The functions
here work for every source, with or without the ability: every reader of a source calls these.
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
from millpond.formats.read_records import Received, none_rejected
from millpond.predicates import Need
from millpond.retry import AGAIN, Patience
from millpond.types import Schema


class Follows(Source):
    """Declares that rows may come after ``latest``."""

    @property
    def announces(self) -> bool:
        """Returns whether ``changes`` yields as soon as there is something new, and costs next to nothing meanwhile."""
        return False

    @property
    def interval(self) -> float | None:
        """Returns the seconds between two polls, if a poll costs so much that somebody has set them."""
        return None

    @property
    def follows(self) -> bool:
        """Returns whether a table over it follows it. Otherwise it is loaded once."""
        return True

    @property
    def runs(self) -> bool:
        """Returns whether a query over it keeps running and emits rows, instead of running once."""
        return self.endless

    def changes(self, stop: threading.Event) -> Iterator[None]:
        """Yields whenever there may be something new, until ``stop`` is set."""
        return ticks(stop)

    def end_with(self, stop: threading.Event) -> None:
        """Cancels requests of this thread when the event is set."""
        return

    def begin(self) -> Offset | None:
        """Returns where a new query begins to read; None is the beginning."""
        return None

    def poll(self, start: Offset | None) -> Offset:
        """Returns the same as ``latest``, for frequent callers: a source whose requests are expensive returns a known
        offset for a while.
        """
        return self.latest(start)

    def replaced(self, start: Offset, end: Offset) -> bool:
        """Returns whether the rows up to ``end`` are not those up to ``start`` and some more: then the results of the
        earlier ones are computed again from all, and compared.
        """
        return False

    def settled(self, at: Offset) -> bool:
        """Returns whether an offset is the end of all that exists, also of what is not accepted yet."""
        return self.reached(at, self.latest(at))

    def reached(self, at: Offset | None, end: Offset) -> bool:
        """Returns whether nothing lies between an offset and a later one."""
        return not self.splits(at, end)


class Steps(Source):
    """Declares that a range can be cut after a number of rows."""

    @abstractmethod
    def clip(self, start: Offset | None, end: Offset, rows: int) -> Offset:
        """Returns an offset after ``start``, up to ``end``, about ``rows`` rows later; ``end`` if that is not known."""


class Rejects(Source):
    """Declares that records that cannot be read become error records."""

    @abstractmethod
    def receive(self, split: Split) -> Iterator[Received]:
        """Reads like ``read``, without ``_seq``: the places are the sequence numbers. Where ``read`` would raise
        BadData, the records that cannot be read become error records.
        """


class Drifts(Source):
    """Declares that new columns may be found while it is read."""

    @property
    def drifts(self) -> bool:
        """Returns whether ``notice`` may find new columns."""
        return True

    @abstractmethod
    def notice(self, splits: Sequence[Split]) -> None:
        """Checks whether what is to be read has columns that ``schema()`` does not have yet, and adds them."""


class Narrows(Source):
    """Declares that only what a query needs is requested from the other system."""

    @abstractmethod
    def narrowed(self, need: Need) -> Source:
        """Returns a source that reads no more than what is needed, as far as it can select that; else itself."""

    @property
    @abstractmethod
    def sent(self) -> str:
        """Returns what it requests from another system, for people."""


class Parallel(Source):
    """Declares that splits may be read in parallel."""

    @property
    @abstractmethod
    def parallel(self) -> int:
        """Returns how many threads may read splits at once, in any order."""


class Spreads(Source):
    """Declares that splits of a load may be read by executors."""

    @abstractmethod
    def divided(self, split: Split, size: int) -> list[Split]:
        """Returns parts of a split of about so many bytes. Sequence numbers may differ, their order does not."""


class Perishable(Source):
    """Declares that what was read may not exist a second time."""

    @abstractmethod
    def stands(self, end: Offset) -> bool:
        """Returns whether what lies before an offset can still be read again, unchanged."""


class Sheds(Source):
    """Declares that parts may be removed while their rows remain valid: files, if 'on.remove' says so."""

    @property
    @abstractmethod
    def leaves(self) -> bool:
        """Returns whether parts of it may be removed while their rows remain valid."""

    @abstractmethod
    def left(self, end: Offset) -> frozenset[int] | None:
        """Returns the parts whose rows remain valid, and that cannot be read any more; None if some are unknown."""

    @abstractmethod
    def part_of(self, seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns the part of each row, by its sequence number."""


class MessageLog(Source):
    """Declares a log of messages that another system stores for a while, and that may be created again."""

    @abstractmethod
    def resume(self, at: Offset) -> Offset:
        """Returns where reading continues after a stored offset. Raises what prevents that."""

    @abstractmethod
    def comparable(self, one: Offset, other: Offset) -> bool:
        """Returns whether two offsets are of the same thing, which was not created again in between."""

    @abstractmethod
    def lost(self, start: Offset | None, end: Offset) -> int:
        """Returns how many rows between two offsets were removed. Raises if the offsets do not match the source."""

    @abstractmethod
    def lag(self, at: Offset | None) -> dict[str, int]:
        """Returns the rows after an offset, by the part of the source that they are in."""

    @abstractmethod
    def patience(self, error: Error) -> Patience:
        """Returns how long reading is retried after an error that may be temporary."""


class Keyed(Source):
    """Declares that the last message of each key may be the current row."""

    @abstractmethod
    def keyed(self, *, wait: bool) -> str | None:
        """Returns why the last message of each key is the current row, if so: a table without other options is then
        keyed. ``wait`` says whether to wait for a missing topic.
        """


class Captures(Source):
    """Declares that changes of rows can be captured by their key: see ``cdc/source.py``."""

    @property
    @abstractmethod
    def captures(self) -> bool:
        """Returns whether a table over it follows changes of rows."""

    @property
    @abstractmethod
    def enveloped(self) -> Schema | None:
        """Returns the columns of the changes, one by one, as in a stream of them; None if there is no such stream."""

    @property
    @abstractmethod
    def log_bytes(self) -> int | None:
        """Returns the bytes of log that the other system retains for its follower; None if unknown."""


def follows(source: Source) -> bool:
    """Returns whether rows may come after ``latest()``."""
    return source.follows if isinstance(source, Follows) else source.endless


def runs(source: Source) -> bool:
    """Returns whether a query over a source keeps running."""
    return source.runs if isinstance(source, Follows) else source.endless


def changes(source: Source, stop: threading.Event) -> Iterator[None]:
    """Yields whenever there may be something new, until ``stop`` is set."""
    return source.changes(stop) if isinstance(source, Follows) else ticks(stop)


def interval(source: Source) -> float | None:
    """Returns the seconds between two polls of a source, if they are set."""
    return source.interval if isinstance(source, Follows) else None


def end_with(source: Source, stop: threading.Event) -> None:
    """Cancels requests of this thread to a source when the event is set."""
    if isinstance(source, Follows):
        source.end_with(stop)


def announcements(source: Source, stop: threading.Event) -> Iterator[None] | None:
    """Returns what yields as soon as there is something new; None for a source that must be polled."""
    return source.changes(stop) if isinstance(source, Follows) and source.announces else None


def poll(source: Source, start: Offset | None) -> Offset:
    """Returns the known end of the source, for frequent callers."""
    return source.poll(start) if isinstance(source, Follows) else source.latest(start)


def replaced(source: Source, start: Offset, end: Offset) -> bool:
    """Returns whether the rows up to ``end`` are not those up to ``start`` and some more."""
    return isinstance(source, Follows) and source.replaced(start, end)


def settled(source: Source, at: Offset) -> bool:
    """Returns whether an offset is the end of all that exists."""
    return source.settled(at) if isinstance(source, Follows) else reached(source, at, source.latest(at))


def clip(source: Source, start: Offset | None, end: Offset, rows: int) -> Offset:
    """Returns an offset after ``start``, up to ``end``, about ``rows`` rows later if the source knows it."""
    return source.clip(start, end, rows) if isinstance(source, Steps) else end


def reached(source: Source, at: Offset | None, end: Offset) -> bool:
    """Returns whether nothing lies between an offset and a later one."""
    return source.reached(at, end) if isinstance(source, Follows) else not source.splits(at, end)


def rejects(source: Source) -> bool:
    """Returns whether there may be records that cannot be read, which become error records."""
    return isinstance(source, Rejects)


def receive(source: Source, split: Split) -> Iterator[Received]:
    """Yields the rows of a split, with error records for records that cannot be read if the source supports that."""
    if isinstance(source, Rejects):
        yield from source.receive(split)
        return
    for batch in source.read(split):
        yield Received(batch.drop_columns([SEQ]), batch.column(SEQ), none_rejected())


def drifts(source: Source) -> bool:
    """Returns whether new columns may be found while a source is read."""
    return isinstance(source, Drifts) and source.drifts


def notice(source: Source, splits: Sequence[Split]) -> None:
    """Adds the new columns of what is to be read."""
    if isinstance(source, Drifts):
        source.notice(splits)


def narrowed(source: Source, need: Need) -> Source:
    """Returns a source that reads no more than what is needed, as far as it can."""
    return source.narrowed(need) if isinstance(source, Narrows) else source


def sent(source: Source) -> str | None:
    """Returns what a source requests from another system, for people."""
    return source.sent if isinstance(source, Narrows) else None


def parallel(source: Source) -> int:
    """Returns how many threads may read splits at once."""
    return source.parallel if isinstance(source, Parallel) else 1


def stands(source: Source, end: Offset) -> bool:
    """Returns whether what lies before an offset can still be read unchanged."""
    return source.stands(end) if isinstance(source, Perishable) else True


def leaves(source: Source) -> bool:
    """Returns whether parts of a source may be removed while their rows remain valid."""
    return isinstance(source, Sheds) and source.leaves


def left(source: Source, end: Offset) -> frozenset[int] | None:
    """Returns the parts whose rows remain valid, and that cannot be read any more."""
    return source.left(end) if isinstance(source, Sheds) else frozenset()


def part_of(source: Source, seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the part of each row."""
    return source.part_of(seqs) if isinstance(source, Sheds) else np.zeros(len(seqs), np.int64)


def begin(source: Source) -> Offset | None:
    """Returns where a new query begins to read."""
    return source.begin() if isinstance(source, Follows) else None


def resume(source: Source, at: Offset) -> Offset:
    """Returns where reading continues after a stored offset."""
    return source.resume(at) if isinstance(source, MessageLog) else at


def comparable(source: Source, one: Offset, other: Offset) -> bool:
    """Returns whether two offsets are of the same thing."""
    return source.comparable(one, other) if isinstance(source, MessageLog) else True


def lost(source: Source, start: Offset | None, end: Offset) -> int:
    """Returns how many rows between two offsets were removed."""
    return source.lost(start, end) if isinstance(source, MessageLog) else 0


def lag(source: Source, at: Offset | None) -> dict[str, int]:
    """Returns the rows after an offset, by part; nothing if a source does not know."""
    return source.lag(at) if isinstance(source, MessageLog) else {}


def patience(source: Source, error: Error) -> Patience:
    """Returns how long reading is retried after an error that may be temporary."""
    return source.patience(error) if isinstance(source, MessageLog) else AGAIN


def keyed(source: Source, *, wait: bool) -> str | None:
    """Returns why the last message of each key is the current row, if so."""
    return source.keyed(wait=wait) if isinstance(source, Keyed) else None


def captures(source: Source) -> bool:
    """Returns whether a table over a source follows changes of rows, by their key."""
    return isinstance(source, Captures) and source.captures


def enveloped(source: Source) -> Schema | None:
    """Returns the columns of the changes, one by one, as in a stream of them."""
    return source.enveloped if isinstance(source, Captures) else None


def log_bytes(source: Source) -> int | None:
    """Returns the bytes of log that another system retains for its follower."""
    return source.log_bytes if isinstance(source, Captures) else None
