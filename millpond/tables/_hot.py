"""Records that were read by key, kept as they were handed out: the next reader of the key gets a copy.

A record that is made of the cells of a large table waits for the memory once for each cell. One that was read before
waits only for its dict, so that a table is read by key about as fast as a dict of dicts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any

from millpond.options import Option

if TYPE_CHECKING:
    from millpond.tables._versions import Live

HOT_OPTION = Option(
    "hot.records",
    "int",
    "How many records that were read by key stay cached as Python dicts; about 400 bytes "
    "each. A table with max_memory, or with nested columns, caches none.",
    default=100_000,
)
_REST = 10
"""After the room was filled in vain, so many times as many reads go by before it is tried again."""


class HotRecords:
    """``records`` are by key, and only ever of the newest version.

    A writer makes the key lead to the new version, then forgets the record, then shows the new version. A reader keeps
    a record only while the key leads to the version that it read. Both hold the lock, so that no old record stays.
    """

    __slots__ = ("_lock", "_most", "_seen", "_skip", "_step", "active", "records")

    def __init__(self, most: int):
        self.records: dict[Any, dict[str, Any]] = {}
        self.active = False
        """Whether a reader has ever wanted to keep one: if not, a writer has nothing to forget."""
        self._most = most
        self._lock = Lock()
        self._step: Iterator[int] = iter(())
        self._seen = 0
        self._skip = 0

    @property
    def wanted(self) -> bool:
        return self._most > 0

    def count_by(self, step: Iterator[int]) -> None:
        """Tells what counts the reads, to know whether it is worth the memory."""
        self._step = step

    def keep(self, live: Live, key: Any, slot: int, record: dict[str, Any]) -> None:
        """Keeps a copy of the record that was read from the slot, if it is still the newest."""
        if self._skip:
            self._skip -= 1
            return
        self.active = True  # before the look at the key: a writer looks here after it has changed the key
        with self._lock:
            if live.current and live.newest.get(key) == slot:
                if len(self.records) >= self._most:
                    self._renew()
                self.records[key] = record.copy()

    def _renew(self) -> None:
        """Begins anew. If fewer than half of the reads since the last time found their record, it rests."""
        reads = int(repr(self._step)[len("count(") : -1])
        if reads - self._seen < 2 * self._most:
            self._skip = _REST * self._most
        self._seen = reads
        self.records.clear()

    def forget(self, key: Any) -> None:
        with self._lock:
            self.records.pop(key, None)

    def forget_all(self, keys: Iterable[Any]) -> None:
        with self._lock:
            records = self.records
            if records:
                for key in keys:
                    records.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self.records.clear()

    def nbytes(self) -> int:
        """The bytes that they take, about: a dict each, and numbers of its own."""
        records = self.records
        try:
            some = list(islice(records.values(), 1))
        except RuntimeError:  # a reader adds one meanwhile
            some = []
        return len(records) * sum(sys.getsizeof(r) + 32 * len(r) for r in some) + sys.getsizeof(records)
