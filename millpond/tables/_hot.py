"""Caches records that were read by key: the next reader of the key gets a copy.

Building a record from the cells of a large table causes a cache miss for each cell. A record that was read before costs
only the access to its dict, so a table is read by key about as fast as a dict of dicts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.options import Option
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.tables._versions import Live

HOT_OPTION = Option(
    "hot.records",
    "int",
    "How many records that were read by key stay cached as Python dicts; about 400 bytes "
    "each. A table with max_memory, or with nested columns, caches none.",
    default=100_000,
    live=True,
)
_REST = 10
"""After the cache was filled in vain, this many times as many reads pass before it is tried again."""


def may_stay(schema: Schema) -> bool:
    """Returns whether records may be cached: copies share their values, which a caller must not be able to change."""
    return all(c.type is not None and not pa.types.is_nested(c.type) for c in schema)


class HotRecords:
    """Stores ``records`` by key, and only of the newest version.

    A writer points the key to the new version, then drops the record, then publishes the new version. A reader caches a
    record only while the key points to the version that it read. Both hold the lock, so that no old record remains.
    """

    __slots__ = ("_lock", "_most", "_seen", "_skip", "_step", "active", "records")

    def __init__(self, most: int):
        self.records: dict[Any, dict[str, Any]] = {}
        self.active = False
        """Whether a reader ever wanted to cache one: if not, a writer has nothing to drop."""
        self._most = most
        self._lock = Lock()
        self._step: Iterator[int] = iter(())
        self._seen = 0
        self._skip = 0

    @property
    def wanted(self) -> bool:
        return self._most > 0

    def count_by(self, step: Iterator[int]) -> None:
        """Sets what counts the reads, to know whether the cache is worth the memory."""
        self._step = step

    def keep(self, live: Live, key: Any, slot: int, record: dict[str, Any]) -> None:
        """Caches a copy of the record that was read from the slot, if it is still the newest."""
        if self._skip:
            self._skip -= 1
            return
        self.active = True  # before the key is checked: a writer checks this after it has changed the key
        with self._lock:
            if live.current and live.newest.get(key) == slot:
                if len(self.records) >= self._most:
                    self._renew()
                self.records[key] = record.copy()

    def _renew(self) -> None:
        """Clears the cache. If fewer than half of the reads since the last time found their record, it pauses."""
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
        """Returns the approximate bytes that they use: a dict each, and its own numbers."""
        records = self.records
        try:
            some = list(islice(records.values(), 1))
        except RuntimeError:  # a reader adds one meanwhile
            some = []
        return len(records) * sum(sys.getsizeof(r) + 32 * len(r) for r in some) + sys.getsizeof(records)
