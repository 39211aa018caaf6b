"""Implements ``memory``: rows in blocks of columns, a hash index on the key, and secondary indexes on demand.

Readers never wait: the writer publishes what they see in one step, when all of a commit is in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from millpond.alterations import TableChange
from millpond.changes import Changes, Position
from millpond.clock import Clock
from millpond.errors import Closed, Error
from millpond.lookup import Lookup, Made, Run
from millpond.records.checks import checked
from millpond.tables._ages import Ages, ages_of, at_their_times
from millpond.tables._batches import apply_batch
from millpond.tables._codec import is_plain, make_reads
from millpond.tables._edits import NOTHING, Edit, RowEdits
from millpond.tables._free_memory import Room
from millpond.tables._hot import HOT_OPTION, HotRecords, may_stay
from millpond.tables._limit import Limit
from millpond.tables._lookup import compile_lookup
from millpond.tables._options import OPTIONS
from millpond.tables._publication import Publication
from millpond.tables._reshape import Reshaped, copied, reshaped, sources_of
from millpond.tables._rewind import Point
from millpond.tables._snapshot import MemorySnapshot
from millpond.tables._stats import stats_of
from millpond.tables._storage import RowStorage
from millpond.tables.base import Backend, Get, Has, Patch
from millpond.types import Schema

__all__ = ["BACKEND", "NOTHING", "Edit", "MemoryTable", "Point", "Publication"]


class MemoryTable(Backend):
    """Stores a table in this process. It works alone, without an app."""

    aliases = ("inMemory",)
    inside = True
    abilities = frozenset("held commits own lookup null_keys every_key every_float widen alter times".split())
    options = OPTIONS

    def __init__(
        self,
        schema: Schema,
        *,
        name: str = "",
        null_keys: bool = False,
        limit: Limit | None = None,
        hot: int = HOT_OPTION.default,
        ages: Ages | None = None,
    ):
        self.schema = schema
        self.null_keys = null_keys
        self._limit = limit or Limit("", {}, None)
        if self._limit.shelf is not None:
            self.abilities = self.abilities - {"widen"}  # it would be copied with every new field
        self.timed = ages is not None
        self._most_hot = hot
        what = f'table "{name}"' if name else "the table"
        self.storage = RowStorage(schema, what, self._limit, ages, self._hot_records(), null_keys=null_keys)
        self._positions: dict[str, Position] = {}
        self._writing = self.storage.writing
        self._room: Room | None = None
        if self._limit.most is not None:
            compact = partial(self.storage.compact, forced=True)
            self._room = Room(self._limit, self.key, lambda: self.storage.now, compact, self._writing)
            self.storage.generation.admit = self._room.admit_index
        self.edits = RowEdits(self.storage, self._room)

    @classmethod
    def open(
        cls,
        name: str,
        schema: Schema,
        values: Mapping[str, Any],
        *,
        null_keys: bool = False,
        home: Path | None = None,
    ) -> Self:
        limit = Limit(f'table "{name}"', values, home)
        hot, ages = values.get("hot.records", HOT_OPTION.default), ages_of(values)
        return cls(schema, name=name, null_keys=null_keys, limit=limit, hot=hot, ages=ages)

    @property
    def key(self) -> tuple[str, ...]:
        """Returns the key columns, as the schema spells them."""
        return self.storage.key

    @property
    def limited(self) -> bool:
        """Returns whether memory is limited; then preparing an edit may free memory, which moves rows."""
        return self._limit.most is not None

    @property
    def arrow_schema(self) -> pa.Schema:
        """Returns the schema of rows as they are stored."""
        return self.storage.blocks.schema

    # batches

    def apply(self, changes: Changes, position: Position | None = None, *, commit: int | None = None) -> bool:
        storage = self.storage
        with self._writing:
            storage.check_open()
            if position is not None:
                known = self._positions.get(position.pipeline)
                if known is not None and known.covers(position):
                    return False
            last = storage.mark.commit
            if commit is not None and commit < last:
                raise ValueError(f"commit {commit} of {storage.what} after commit {last}")
            changes = self.check(changes)
            with storage.whole():
                if commit is None:
                    self.admit(changes)
                apply_batch(storage, changes, last if commit is None else commit)
                if position is not None:
                    self._positions[position.pipeline] = position
            return True

    def change(self, find: Callable[[MemorySnapshot], tuple[Changes | None, int]]) -> int:
        """Applies what ``find`` computes on the newest snapshot, with no other change in between; returns its count."""
        storage = self.storage
        with self._writing:
            changes, count = find(storage.snapshot())
            if changes is not None:
                changes = self.check(changes)
                with storage.whole():
                    self.admit(changes)
                    apply_batch(storage, changes, storage.mark.commit)
            return count

    def check(self, changes: Changes) -> Changes:
        return checked(self.schema, changes, what=self.storage.what, null_keys=self.null_keys)

    def admit(self, changes: Changes) -> None:
        if self._room is not None:
            self._room.admit(changes)

    def restore(self, changes: Changes) -> None:
        self._limit.enforced = False
        try:
            for part in at_their_times(changes, self.storage.generation.ages):
                self.apply(part)
        finally:
            self._limit.enforced = True
        self.storage.ease()

    def go_by(self, clock: Clock) -> None:
        ages = self.storage.generation.ages
        if ages is not None:
            ages.time.now = clock.seconds

    # single rows

    def put_record(self, record: Mapping[str, Any], fresh: bool = False) -> bool | None:
        """Adds the record, or replaces the one with its key."""
        with self._writing:
            edit = self.edits.put(record, fresh)
            if edit is None:
                return None
            self._apply_alone(edit)
        return True

    def patch_record(self, key: Any, record: Patch) -> int | None:
        """Changes fields of the record with the key, which are not of the key; returns how many records there were."""
        with self._writing:
            edit = self.edits.patch(key, record)
            if edit is None or edit is NOTHING:
                return None if edit is None else 0
            self._apply_alone(edit)
        return 1

    def drop_record(self, key: Any) -> int | None:
        """Deletes the record with the key; returns how many there were."""
        with self._writing:
            edit = self.edits.drop(key)
            if edit is None or edit is NOTHING:
                return None if edit is None else 0
            self._apply_alone(edit)
        return 1

    def _apply_alone(self, edit: Edit) -> None:
        """Applies the edit, or, if that raises, nothing."""
        storage = self.storage
        point = storage.point()
        try:
            self.edits.apply(edit, storage.mark.commit)
            storage.compact()
        except BaseException:
            storage.rewind(point)
            raise

    # reading

    def snapshot(self, commit: int | None = None) -> MemorySnapshot:
        """Returns a snapshot, as Backend.snapshot does; the last 64 commits that changed the table are stored."""
        return self.storage.snapshot(commit)

    def quick_reads(self, step: Iterator[int], get: Get, has: Has) -> tuple[Get, Has]:
        if not self.key or not all(is_plain(c.type) for k in self.key if (c := self.schema.find(k))):
            return get, has
        return make_reads(self.storage, step, get, has)

    def compile_lookup(self, lookup: Lookup, step: Iterator[int], made: Made) -> Run:
        return compile_lookup(self.storage, lookup, step, made)

    def create_index(self, columns: Sequence[str]) -> bool:
        self.storage.create_index(columns)
        return True

    def drop_index(self, columns: Sequence[str]) -> bool:
        self.storage.drop_index(columns)
        return True

    # other columns and options

    def alter(self, change: TableChange) -> MemoryTable:
        """Returns another object, which shares the cells: functions that were compiled for the columns of this one find
        them here as they were, and send those who read by key to the general path.
        """
        with self._writing:
            self.storage.check_open()
            after, ages = change.schema(self.schema), self.storage.generation.ages
            made = type(self)(
                after, null_keys=self.null_keys, limit=self._limit, hot=self._most_hot, ages=ages
            )
            made.take_over(self, change)
            self.storage.give_up()
            return made

    def take_over(self, old: MemoryTable, change: TableChange) -> None:
        """Takes the rows of the table as it was before the change."""
        storage, before = self.storage, old.storage
        sources = sources_of(old.schema, self.schema, change)
        made: Reshaped
        if self._limit.most is None:
            made = reshaped(before.now, old.schema, self.schema, sources)
        else:
            made = copied(before.now, self.schema, sources, storage.no_rows())
            made.generation.admit = storage.generation.admit
        marks = [*before.marks, before.mark._replace(version=before.mark.version + 1)]
        storage.stand_on(made.generation, made.blocks, made.died, marks)
        storage.what, storage.declared, storage.changed_at = before.what, before.declared, before.changed_at
        self._positions = old._positions

    def rename(self, name: str) -> None:
        self.storage.what = f'table "{name}"'

    def set_options(self, values: Mapping[str, Any]) -> None:
        self.storage.hot.clear()
        self._most_hot = values.get("hot.records", HOT_OPTION.default)
        self.storage.hot = self._hot_records()
        ages = self.storage.generation.ages
        if ages is not None and values.get("ttl"):
            ages.ttl = values["ttl"]
        if values.get("max_memory"):
            self._limit.change(values["max_memory"])

    def _hot_records(self) -> HotRecords:
        return HotRecords(self._most_hot if may_stay(self.schema) and self._limit.most is None else 0)

    # state

    @property
    def last_commit(self) -> int:
        return self.storage.mark.commit

    @property
    def version(self) -> int:
        return self.storage.mark.version

    @property
    def next_row(self) -> int | None:
        return None if self.key else self.storage.generation.numbers.next

    def position(self, pipeline: str) -> Position | None:
        return self._positions.get(pipeline)

    def stats(self) -> dict[str, Any]:
        storage = self.storage
        return stats_of(storage.now, self._limit, storage.hot) | {"changed_at": storage.changed_at}

    def close(self) -> None:
        with self._writing:
            self.fail(Closed(f"{self.storage.what} is closed"))

    def fail(self, error: Error) -> None:
        """Drops all rows; every later read or write raises the error. The caller is the writer."""
        self.storage.fail(error)

    @property
    def closed(self) -> bool:
        return self.storage.closed is not None


BACKEND = MemoryTable
