"""``memory``: rows in immutable Arrow chunks, a hash index on the key, others on what is asked for.

Readers never wait: a snapshot is an immutable view, published by the writer when all of a commit is in place.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import compress
from threading import Lock
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from millpond.changes import ROW, Changes, Position
from millpond.errors import Closed
from millpond.tables._checks import checked
from millpond.tables._chunks import Chunks, Slots
from millpond.tables._keys import key_list
from millpond.tables._snapshot import MemorySnapshot
from millpond.tables._versions import NEVER, Generation, Mark, grown
from millpond.tables.base import Backend
from millpond.types import Schema

_KEPT_COMMITS = 64


class MemoryTable(Backend):
    """A table in this process. It works alone, without an app."""

    aliases = ("inMemory",)
    abilities: ClassVar[frozenset[str]] = frozenset({"snapshot", "index", "null_keys"})
    idle_dead: ClassVar[int] = 10_000
    """How many dead rows, beyond as many as are alive, wait for a compaction."""

    def __init__(self, schema: Schema, *, name: str = "", null_keys: bool = False):
        self.schema = schema
        self._what = f'table "{name}"' if name else "the table"
        self._null_keys = null_keys
        self._key = tuple(c.name for c in map(schema.find, schema.key) if c is not None)
        self._died: Slots = np.full(1024, NEVER, dtype=np.int64)
        self._generation = Generation()
        self._marks: tuple[Mark, ...] = (Mark(-1, 0, 0, 0),)
        self._latest = self._view(Chunks(schema.arrow()), self._marks[-1])
        self._positions: dict[str, Position] = {}
        self._writing = Lock()
        self._closed = False
        self._changed_at: float | None = None

    @classmethod
    def open(cls, name: str, schema: Schema, values: Mapping[str, Any], *, null_keys: bool = False) -> Self:
        return cls(schema, name=name, null_keys=null_keys)

    def apply(self, changes: Changes, position: Position | None = None, *, commit: int | None = None) -> bool:
        with self._writing:
            if self._closed:
                raise Closed(f"{self._what} is closed")
            if position is not None:
                known = self._positions.get(position.pipeline)
                if known is not None and known.covers(position):
                    return False
            last = self._marks[-1].commit
            if commit is not None and commit < last:
                raise ValueError(f"commit {commit} of {self._what} after commit {last}")
            number = last if commit is None else commit
            changes = self.check(changes)
            if self._key:
                self._upsert(changes.rows, changes.deleted, number)
            elif len(changes.rows.schema) > len(self.schema):
                self._replace(changes.rows, changes.deleted, number)
            elif len(changes):
                self._generation.numbers.add(len(changes))
                self._publish(self._latest.chunks.append(changes.rows), len(changes), number)
            if position is not None:
                self._positions[position.pipeline] = position
            return True

    def check(self, changes: Changes) -> Changes:
        return checked(self.schema, changes, what=self._what, null_keys=self._null_keys)

    def _upsert(self, rows: pa.Table, deleted: pa.BooleanArray | None, commit: int) -> None:
        keys = key_list([rows.column(name) for name in self._key])
        last = dict(zip(keys, range(len(keys)), strict=True))
        gone = None if deleted is None else np.asarray(deleted)
        if len(last) < len(keys):
            pick = np.sort(np.fromiter(last.values(), np.int64, len(last)))
            rows = rows.take(pa.array(pick))
            keys = [keys[i] for i in pick.tolist()]
            gone = None if gone is None else gone[pick]
        before = self._generation.newest_slots(keys)
        ended = self._alive(before)
        if gone is not None:
            stay = ~gone
            rows = rows.filter(pa.array(stay))
            keys = list(compress(keys, stay.tolist()))
            before = before[stay]
        if keys or len(ended):
            chunks = self._latest.chunks.append(rows)
            first = self._link(before, ended)
            self._generation.newest.update(zip(keys, range(first, first + len(keys)), strict=True))
            self._publish(chunks, len(keys) - len(ended), commit)
            self._compact()

    def _replace(self, rows: pa.Table, deleted: pa.BooleanArray | None, commit: int) -> None:
        """Rows of a table without a key, by their numbers; those that have none are new."""
        known = self._generation.numbers
        given = rows.column(ROW).combine_chunks()
        rows = rows.drop_columns(ROW)
        numbers = given.fill_null(-1).to_numpy(zero_copy_only=False).copy()
        fresh = numbers < 0
        highest = max(known.next, int(numbers.max(initial=-1)) + 1)
        numbers[fresh] = np.arange(highest, highest + int(np.count_nonzero(fresh)))
        stay = np.zeros(len(numbers), dtype=np.bool_)
        stay[len(numbers) - 1 - np.unique(numbers[::-1], return_index=True)[1]] = True
        before = known.newest(numbers)
        ended = self._alive(before[stay])
        if deleted is not None:
            stay &= ~np.asarray(deleted)
            known.take(int(numbers.max(initial=-1)))
        count = int(np.count_nonzero(stay))
        if count or len(ended):
            chunks = self._latest.chunks.append(rows.filter(pa.array(stay)))
            self._link(before[stay], ended)
            known.add(count, numbers[stay])
            self._publish(chunks, count - len(ended), commit)
            self._compact()

    def _alive(self, slots: Slots) -> Slots:
        there: Slots = slots[slots >= 0]
        alive: Slots = there[self._died[there] == NEVER]
        return alive

    def _link(self, before: Slots, ended: Slots) -> int:
        """Notes what the next slots replace and which slots end; answers the first of the next slots. Readers of
        earlier commits are not disturbed."""
        first = self._marks[-1].slots
        after = first + len(before)
        self._died = grown(self._died, after, NEVER)
        self._died[ended] = self._marks[-1].version + 1
        self._generation.replaced = grown(self._generation.replaced, after, -1)
        self._generation.replaced[first:after] = before
        return first

    def _publish(self, chunks: Chunks, more_alive: int, commit: int) -> None:
        mark = self._marks[-1]
        self._died = grown(self._died, chunks.rows, NEVER)
        mark = Mark(commit, mark.version + 1, chunks.rows, mark.alive + more_alive)
        self._marks = (*self._marks[-_KEPT_COMMITS:], mark)
        self._latest = self._view(chunks, mark)
        self._changed_at = time.time()

    def _view(self, chunks: Chunks, mark: Mark) -> MemorySnapshot:
        return MemorySnapshot(self.schema, self._key, self._generation, chunks, self._died, mark, self._marks)

    def _compact(self) -> None:
        """Leaves out rows that no kept commit sees, once they are as many as those alive.

        Snapshots that are held go on with the old slots, which are freed with the last of them.
        """
        mark = self._marks[-1]
        if mark.slots <= 2 * mark.alive + self.idle_dead:
            return
        died = self._died[: mark.slots]
        keep = died > self._marks[0].version
        chunks = Chunks(self.schema.arrow()).append(self._latest.chunks.take(np.flatnonzero(keep)))
        kept_before = np.concatenate(([0], np.cumsum(keep)))
        self._generation = self._generation.kept(keep)
        self._died = died[keep]
        self._marks = tuple(
            Mark(m.commit, m.version, int(kept_before[m.slots]), m.alive) for m in self._marks
        )
        self._latest = self._view(chunks, self._marks[-1])

    def snapshot(self, commit: int | None = None) -> MemorySnapshot:
        """As Backend.snapshot; the last 64 commits that changed the table are kept."""
        if self._closed:
            raise Closed(f"{self._what} is closed")
        latest = self._latest
        return latest if commit is None else latest.as_of(commit)

    @property
    def version(self) -> int:
        return self._latest.mark.version

    @property
    def next_row(self) -> int | None:
        return None if self._key else self._generation.numbers.next

    def position(self, pipeline: str) -> Position | None:
        return self._positions.get(pipeline)

    def stats(self) -> dict[str, Any]:
        return {**self._latest.stats(), "version": self.version, "changed_at": self._changed_at}

    def close(self) -> None:
        with self._writing:
            self._closed = True
            self._latest = self._view(Chunks(self.schema.arrow()), Mark(-1, self.version, 0, 0))


BACKEND = MemoryTable
