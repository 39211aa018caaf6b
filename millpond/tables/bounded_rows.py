"""Implements a bounded set of rows in memory: the least recently used is evicted first."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import copy
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from millpond.alterations import TableChange
from millpond.changes import ROW, Changes, Position
from millpond.records.keys import Key, key_list
from millpond.tables.memory import MemoryTable
from millpond.types import Schema

ROW_OVERHEAD = 200
"""Bytes of a row in addition to its values: its key, its place in the index and in the order of use."""


class _Entry(NamedTuple):
    identity: tuple[Any, ...]
    bytes: int


class BoundedRows:
    """Stores rows of a memory table, at most ``max_size`` of them and ``max_memory`` bytes, each for
    ``ttl`` seconds.
    """

    def __init__(
        self,
        table: MemoryTable,
        *,
        max_size: int | None,
        max_memory: int | None = None,
        ttl: float | None = None,
    ):
        self.table = table
        self.clock: Callable[[], float] = time.monotonic
        self.lock = threading.RLock()
        self.hits = self.misses = self.evictions = self.expired = 0
        self.bytes = 0
        self._max_size, self._max_memory, self._ttl = max_size, max_memory, ttl
        self._used: OrderedDict[Key, _Entry] = OrderedDict()
        self._until: OrderedDict[Key, float] = OrderedDict()
        self.set_identity()

    @property
    def schema(self) -> Schema:
        return self.table.schema

    def set_memory(self, most: int | None) -> None:
        """Gives the rows another limit of bytes; the next write respects it."""
        self._max_memory = most

    def altered(self, change: TableChange) -> BoundedRows:
        """Returns the same rows after a change of the columns; these must not be changed any more."""
        with self.lock:
            made = copy(self)
            made.table = self.table.alter(change)
            made.set_identity()
            return made

    def emptied(self, schema: Schema) -> BoundedRows:
        """Returns rows with other columns: there are none yet."""
        table = MemoryTable(schema, null_keys=self.table.null_keys)
        made = BoundedRows(table, max_size=self._max_size, max_memory=self._max_memory, ttl=self._ttl)
        made.clock = self.clock
        return made

    def set_identity(self) -> None:
        schema = self.table.schema
        self._identity = tuple(c.name for k in schema.key if (c := schema.find(k))) or (ROW,)

    def apply(self, changes: Changes, position: Position | None = None, commit: int | None = None) -> bool:
        """Applies checked changes like Backend.apply; then evicts what exceeds the limits."""
        with self.lock:
            self.expire()
            first = self.table.next_row or 0
            if not self.table.apply(changes, position, commit=commit):
                return False
            if len(changes):
                self._note(changes, first)
                self._evict()
            return True

    def _note(self, changes: Changes, first: int) -> None:
        rows = changes.rows
        if not self.schema.key:
            rows = self._numbered(rows, first)
        named = rows.select(self._identity)
        keys = key_list(named.columns)
        identities = list(zip(*(c.to_pylist() for c in named.columns), strict=True))
        gone = [False] * len(keys) if changes.deleted is None else changes.deleted.to_pylist()
        size = (rows.nbytes // max(1, rows.num_rows)) + ROW_OVERHEAD
        until = None if self._ttl is None else self.clock() + self._ttl
        for key, identity, deleted in zip(keys, identities, gone, strict=True):
            self._forget(key)
            if not deleted:
                self._used[key] = _Entry(identity, size)
                self.bytes += size
                if until is not None:
                    self._until[key] = until

    def _numbered(self, rows: pa.Table, first: int) -> pa.Table:
        given = rows[ROW].to_pylist() if ROW in rows.column_names else [None] * rows.num_rows
        following = max([first - 1, *(n for n in given if n is not None)]) + 1
        numbers = []
        for number in given:
            numbers.append(following if number is None else number)
            following += number is None
        plain = rows.drop_columns([ROW]) if ROW in rows.column_names else rows
        return plain.append_column(ROW, pa.array(numbers, pa.int64()))

    def _forget(self, key: Key) -> None:
        entry = self._used.pop(key, None)
        if entry is not None:
            self.bytes -= entry.bytes
            self._until.pop(key, None)

    def _evict(self) -> None:
        going: list[_Entry] = []
        while self._used and self._is_full():
            key, entry = self._used.popitem(last=False)
            self.bytes -= entry.bytes
            self._until.pop(key, None)
            going.append(entry)
        self.evictions += len(going)
        self._end(going)

    def _is_full(self) -> bool:
        if self._max_size is not None and len(self._used) > self._max_size:
            return True
        return self._max_memory is not None and self.bytes > self._max_memory

    def expire(self) -> None:
        """Removes rows whose time is over."""
        if not self._until:
            return
        with self.lock:
            now, going = self.clock(), []
            while self._until and next(iter(self._until.values())) <= now:
                key, _ = self._until.popitem(last=False)
                entry = self._used.pop(key)
                self.bytes -= entry.bytes
                going.append(entry)
            self.expired += len(going)
            self._end(going)

    def _end(self, entries: Sequence[_Entry]) -> None:
        if not entries:
            return
        columns = {}
        for at, name in enumerate(self._identity):
            column = self.schema.find(name)
            dtype = pa.int64() if column is None else column.type
            columns[name] = pa.array([e.identity[at] for e in entries], dtype)
        self.table.apply(Changes(pa.table(columns), pa.array([True] * len(entries), pa.bool_())))

    def use(self, rows: pa.Table, wanted: int) -> None:
        """Records that these rows were requested by their identity, and found; ``wanted`` were requested."""
        keys = key_list([rows[name] for name in self._identity])
        with self.lock:
            self.hits += len(keys)
            self.misses += wanted - len(keys)
            for key in keys:
                if key in self._used:
                    self._used.move_to_end(key)

    def use_key(self, key: Any) -> None:
        """Records the use of one key that is a value or a tuple, like ``use``."""
        with self.lock:
            if key in self._used:
                self.hits += 1
                self._used.move_to_end(key)
            else:
                self.misses += 1

    def missing(self, keys: Sequence[pa.Array]) -> pa.Array:
        """Returns which of the keys are not here."""
        there = self._used
        return pa.array([key not in there for key in key_list(keys)], pa.bool_())

    def drop(self, changes: Changes) -> None:
        """Removes the rows that changes affect."""
        with self.lock:
            keys = key_list([changes.rows[name] for name in self._identity])
            there = np.fromiter((key in self._used for key in keys), np.bool_, len(keys))
            going = [self._used[key] for key in dict.fromkeys(compress(keys, there.tolist()))]
            for key in keys:
                self._forget(key)
            self._end(going)

    def stats(self) -> dict[str, Any]:
        asked = self.hits + self.misses
        return {
            "hits": self.hits,
            "misses": self.misses,
            "hit_rate": round(self.hits / asked, 4) if asked else None,
            "evictions": self.evictions,
            "expired": self.expired,
        }
