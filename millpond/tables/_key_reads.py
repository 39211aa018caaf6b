"""Compiles the reads of a memory table by its key and by indexes, and keeps the indexes that were created by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from millpond.lookup import Lookup, Made, Run
from millpond.tables._codec import is_plain, make_reads
from millpond.tables._hot import HotRecords
from millpond.tables._limit import Limit
from millpond.tables._lookup import compile_lookup
from millpond.tables._snapshot import MemorySnapshot, Settled
from millpond.tables._versions import Generation, Live, TableVersion
from millpond.tables.base import Get, Has
from millpond.types import Schema


class KeyReads:
    """Compiles reads of a memory table."""

    schema: Schema
    live: Live
    hot: HotRecords
    settled: Settled
    declared: set[tuple[str, ...]]
    _key: tuple[str, ...]
    _now: TableVersion
    _generation: Generation
    _limit: Limit

    if TYPE_CHECKING:

        def _check_open(self) -> None: ...
        def snapshot(self, commit: int | None = None) -> MemorySnapshot: ...

    @property
    def key(self) -> tuple[str, ...]:
        """Returns the key columns, as the schema spells them."""
        return self._key

    def quick_reads(self, step: Iterator[int], get: Get, has: Has) -> tuple[Get, Has]:
        if not self._key or not all(is_plain(c.type) for k in self._key if (c := self.schema.find(k))):
            return get, has
        return make_reads(self, step, get, has)

    def create_index(self, columns: Sequence[str]) -> bool:
        names = self._spelled(columns)
        self.declared.add(names)
        if set(names) != set(self._key):
            self._check_open()
            if not self._now.make_index(names):
                self.declared.discard(names)
                raise self._limit.no_room(f"an index on {', '.join(names)}")
        return True

    def drop_index(self, columns: Sequence[str]) -> bool:
        names = self._spelled(columns)
        self.declared.discard(names)
        self._generation.others.pop(names, None)
        self.settled = {}
        return True

    def compile_lookup(self, lookup: Lookup, step: Iterator[int], made: Made) -> Run:
        return compile_lookup(self, lookup, step, made)

    def _spelled(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Returns the columns of an index as the table spells them, sorted."""
        found = (self.schema.find(name) for name in columns)
        return tuple(sorted(name if c is None else c.name for c, name in zip(found, columns, strict=True)))
