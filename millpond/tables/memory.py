"""Implements ``memory``: rows in blocks of columns, a hash index on the key, and secondary indexes on demand.

Readers never wait: the writer publishes what they see in one step, when all of a commit is in place.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from millpond import faults
from millpond.alterations import TableChange
from millpond.changes import ROW, Changes, Position
from millpond.errors import Closed, Error
from millpond.locks import Turns
from millpond.records.checks import checked
from millpond.tables._aged import AgedRows
from millpond.tables._ages import Ages, ages_of
from millpond.tables._blocks import SHIFT, Blocks, Slots
from millpond.tables._closed import ClosedKeys
from millpond.tables._coldkeys import Keys
from millpond.tables._compacting import Compacting
from millpond.tables._compaction import Compaction
from millpond.tables._free_memory import Room
from millpond.tables._held import HeldRows, Hold
from millpond.tables._hot import HOT_OPTION, HotRecords, may_stay
from millpond.tables._integer_keys import IntegerKeys
from millpond.tables._key_reads import KeyReads
from millpond.tables._keyed import last_of_each
from millpond.tables._limit import Limit, fixed_bytes
from millpond.tables._options import OPTIONS
from millpond.tables._reshape import MovedKeys, Reshaped, copied, reshaped, sources_of
from millpond.tables._rewind import Point, broken, rebuilt
from millpond.tables._single import NOTHING, Edit, SingleRows
from millpond.tables._snapshot import MemorySnapshot, Settled
from millpond.tables._stats import stats_of
from millpond.tables._versions import NEVER, Generation, Live, Mark, TableVersion
from millpond.tables.base import Backend
from millpond.types import Schema

__all__ = ["BACKEND", "NOTHING", "Edit", "Hold", "MemoryTable", "Point"]


class MemoryTable(KeyReads, HeldRows, IntegerKeys, SingleRows, AgedRows, Compacting, Backend):
    """Stores a table in this process. It works alone, without an app."""

    aliases = ("inMemory",)
    inside = True
    abilities = frozenset("held commits own lookup null_keys every_key every_float widen alter".split())
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
        self._what = f'table "{name}"' if name else "the table"
        self.null_keys = null_keys
        self.declared: set[tuple[str, ...]] = set()
        """The columns of indexes that were created by name, sorted."""
        self._key = tuple(c.name for c in map(schema.find, schema.key) if c is not None)
        self._limit = limit or Limit("", {}, None)
        if self._limit.shelf is not None:
            self.abilities = self.abilities - {"widen"}  # it would be copied with every new field
        self._blocks = self._no_rows()
        self._died: Slots = np.full(1024, NEVER, dtype=np.int64)
        self._generation = Generation(self._no_keys(), ages=ages)
        self.timed = ages is not None
        self._mark = Mark(-1, 0, 0, 0)
        self._marks = deque([self._mark], maxlen=self.kept_commits + 1)
        self.live = Live(self._generation.newest, self._blocks, 0)
        self.settled: Settled = {}
        """Indexes that readers may use without checking versions; replaced by every commit."""
        self._now = TableVersion(self._generation, self._blocks, self._died, self._mark, self._marks)
        self._latest = MemorySnapshot(schema, self._key, self._now)
        self._most_hot = hot
        self.hot = self._hot_records()
        self._positions: dict[str, Position] = {}
        self._writing = Turns()
        self._room: Room | None = None
        if self._limit.most is not None:
            compact = partial(self._compact, forced=True)
            self._room = Room(self._limit, self._key, lambda: self._now, compact, self._writing)
            self._generation.admit = self._room.admit_index
        self._compaction: Compaction | None = None
        self._changes_since = 0
        self._closed: Error | None = None
        self._changed_at: float | None = None
        self._set_up_single_rows()

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

    def apply(self, changes: Changes, position: Position | None = None, *, commit: int | None = None) -> bool:
        with self._writing:
            self._check_open()
            if position is not None:
                known = self._positions.get(position.pipeline)
                if known is not None and known.covers(position):
                    return False
            last = self._mark.commit
            if commit is not None and commit < last:
                raise ValueError(f"commit {commit} of {self._what} after commit {last}")
            changes = self.check(changes)
            with self._whole():
                if commit is None:
                    self.admit(changes)
                self._apply(changes, last if commit is None else commit)
                if position is not None:
                    self._positions[position.pipeline] = position
            return True

    def _apply(self, changes: Changes, commit: int) -> None:
        if self._key:
            self._upsert(changes.rows, changes.deleted, commit)
        elif len(changes.rows.schema) > len(self.schema):
            self._replace(changes.rows, changes.deleted, commit)
        elif len(changes):
            self._blocks.append(self._mark.slots, changes.rows)
            faults.reach("table: appended")
            self._generation.numbers.add(len(changes))
            self._publish(len(changes), 0, commit)

    def _no_keys(self) -> Keys:
        """Returns an empty index of keys."""
        types = [c.type for k in self._key if (c := self.schema.find(k)) is not None]
        return self._limit.keys(types, self.null_keys)

    def point(self) -> Point:
        """Returns what ``rewind`` needs to return to the current rows."""
        return Point(self._now, self._generation.numbers.next)

    def rewind(self, point: Point) -> None:
        """Undoes everything since the point, also unfinished changes. If that fails, the table is unusable."""
        try:
            blocks = self._no_rows()
            made = rebuilt(self._key, point, blocks, self._no_keys(), self._ease)
            mark = Mark(point.table_version.mark.commit, self._mark.version + 1, made.slots, made.slots)
            made.generation.admit = self._generation.admit
            made.generation.replaced = self._limit.spilled_array(made.generation.replaced, -1)
            died = self._limit.spilled_array(made.died, NEVER)
            self._stand_on(made.generation, blocks, died, deque([mark], maxlen=self.kept_commits + 1))
            self.hot.clear()
        except BaseException as error:
            self.fail(broken(self._what, error))
            raise

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Runs the code inside completely or, if it raises, undoes it."""
        point = self.point()
        try:
            yield
        except BaseException:
            self.rewind(point)
            raise

    def check(self, changes: Changes) -> Changes:
        return checked(self.schema, changes, what=self._what, null_keys=self.null_keys)

    def admit(self, changes: Changes) -> None:
        if self._room is not None:
            self._room.admit(changes)

    def _no_rows(self) -> Blocks:
        """Returns empty blocks of this table, which respect the limit."""
        copies = self._limit.copies
        return Blocks(self.schema.arrow(), copies, None if copies is None else self._ease)

    def alter(self, change: TableChange) -> MemoryTable:
        """Returns another object, which shares the cells: functions that were compiled for the columns of this one find
        them here as they were, and send those who read by key to the general path.
        """
        with self._writing:
            self._check_open()
            after, ages = change.schema(self.schema), self._generation.ages
            made = type(self)(
                after, null_keys=self.null_keys, limit=self._limit, hot=self._most_hot, ages=ages
            )
            made.take_over(self, change)
            self.live.current = False
            self.live = Live(MovedKeys(), self._blocks, 0)
            self.hot.clear()
            return made

    def take_over(self, old: MemoryTable, change: TableChange) -> None:
        """Takes the rows of the table as it was before the change."""
        now, version = old._now, old._mark.version + 1
        sources = sources_of(old.schema, self.schema, change)
        made: Reshaped
        if self._limit.most is None:
            made = reshaped(now, old.schema, self.schema, sources)
        else:
            made = copied(now, self.schema, sources, self._no_rows())
            made.generation.admit = self._generation.admit
        marks = deque([*old._marks, old._mark._replace(version=version)], maxlen=self.kept_commits + 1)
        self._stand_on(made.generation, made.blocks, made.died, marks)
        self._latest = MemorySnapshot(self.schema, self._key, self._now)
        self._what, self.declared, self._positions = old._what, old.declared, old._positions
        self._changed_at = old._changed_at

    def rename(self, name: str) -> None:
        self._what = f'table "{name}"'

    def set_options(self, values: Mapping[str, Any]) -> None:
        self.hot.clear()
        self._most_hot = values.get("hot.records", HOT_OPTION.default)
        self.hot = self._hot_records()
        if self._generation.ages is not None and values.get("ttl"):
            self._generation.ages.ttl = values["ttl"]

    def _hot_records(self) -> HotRecords:
        return HotRecords(self._most_hot if may_stay(self.schema) and self._limit.most is None else 0)

    def _ease(self, blocks: Blocks) -> None:
        """Respects the limit while rows are being added: rows that are not visible yet may be spilled too."""
        self._limit.ease(blocks, fixed_bytes(self._generation, self._died), len(blocks.blocks) - 1 << SHIFT)

    def _upsert(self, rows: pa.Table, deleted: pa.BooleanArray | None, commit: int) -> None:
        if deleted is None and self._upsert_integers(rows, commit):
            return
        rows, keys, gone, last = last_of_each(self._key, rows, deleted)
        if keys and not self._mark.slots and gone is None:
            self._load(rows, last, commit)
            return
        before = self._generation.newest_slots(keys)
        ended = self._now.alive(before)
        put = keys
        if gone is not None:
            stay = ~gone
            rows = rows.filter(pa.array(stay))
            put = list(compress(keys, stay.tolist()))
        if put or len(ended):
            self._blocks.append(self._mark.slots, rows)
            faults.reach("table: appended")
            first = self._link(before if gone is None else before[~gone], ended)
            self.live.end = 0
            faults.reach("table: linked")
            self._generation.point(put, range(first, first + len(put)))
            if gone is not None:
                there = gone & (before >= 0)
                dropped = list(compress(keys, there.tolist()))
                self._generation.point(dropped, (-2 - before[there]).tolist())
                if self._compaction is not None:
                    self._compaction.deleted(dropped)
            if self.hot.active:
                self.hot.forget_all(keys)
            faults.reach("table: pointed")
            self._publish(len(put), len(ended), commit)
            faults.reach("table: published")
            self._compact()

    def _load(self, rows: pa.Table, keys: dict[Any, int], commit: int) -> None:
        """Loads the first rows of a table: they replace nothing, and ``keys`` maps to their slots."""
        self._blocks.append(0, rows)
        self._generation.replaced = self._limit.grown(self._generation.replaced, len(keys), -1)
        self._generation.newest.update(keys)
        self._publish(len(keys), 0, commit)

    def _replace(self, rows: pa.Table, deleted: pa.BooleanArray | None, commit: int) -> None:
        """Replaces rows of a table without a key, by their numbers; those that have none are new."""
        known = self._generation.numbers
        given = rows.column(ROW).combine_chunks()
        rows = rows.drop_columns(ROW)
        numbers, stay = known.given(given.fill_null(-1).to_numpy(zero_copy_only=False).copy())
        before = known.newest(numbers)
        ended = self._now.alive(before[stay])
        if deleted is not None:
            stay &= ~np.asarray(deleted)
            known.take(int(numbers.max(initial=-1)))
        count = int(np.count_nonzero(stay))
        if count or len(ended):
            self._blocks.append(self._mark.slots, rows.filter(pa.array(stay)))
            self._link(before[stay], ended)
            known.add(count, numbers[stay])
            self._publish(count, len(ended), commit)
            self._compact()

    def _link(self, before: Slots, ended: Slots) -> int:
        """Records what the next slots replace and which slots are deleted; returns the first of the next slots. Readers
        of earlier commits are not affected.
        """
        first = self._mark.slots
        after = first + len(before)
        self._died = self._limit.grown(self._died, after, NEVER)
        self._died[ended] = self._mark.version + 1
        self._generation.replaced = self._limit.grown(self._generation.replaced, after, -1)
        self._generation.replaced[first:after] = before
        return first

    def _publish(self, made: int, ended: int, commit: int) -> None:
        """Shows readers the next slots, and that others are deleted."""
        _, version, slots, alive = self._mark
        after = slots + made
        if after > len(self._died):
            self._died = self._limit.grown(self._died, after, NEVER)
        self._mark = mark = Mark(commit, version + 1, after, alive + made - ended)
        self._marks.append(mark)
        if made and self._generation.ages is not None:
            self._generation.ages.note(after)
        self._now = TableVersion(self._generation, self._blocks, self._died, mark, self._marks)
        self.live.end = after
        self.settled = {} if self._held is None else self._unsettled()
        self._changed_at = time.time()
        self._changes_since += made + ended

    def snapshot(self, commit: int | None = None) -> MemorySnapshot:
        """Returns a snapshot, as Backend.snapshot does; the last 64 commits that changed the table are stored."""
        self._check_open()
        now, held, latest = (
            self._now,
            self._held,
            self._latest,
        )  # in this order: a hold precedes the rows under it
        if held is not None and not held[0].over:
            now = held[1]
        if latest.table_version is not now:
            latest = self._latest = MemorySnapshot(self.schema, self._key, now)
        if commit is None or now.mark.commit <= commit:
            return latest
        return MemorySnapshot(self.schema, self._key, now.at(commit))

    @property
    def last_commit(self) -> int:
        return self._mark.commit

    @property
    def version(self) -> int:
        return self._mark.version

    @property
    def next_row(self) -> int | None:
        return None if self._key else self._generation.numbers.next

    def position(self, pipeline: str) -> Position | None:
        return self._positions.get(pipeline)

    def stats(self) -> dict[str, Any]:
        return stats_of(self._now, self._limit, self.hot) | {"changed_at": self._changed_at}

    def close(self) -> None:
        with self._writing:
            self.fail(Closed(f"{self._what} is closed"))

    def fail(self, error: Error) -> None:
        """Drops all rows; every later read or write raises the error. The caller is the writer."""
        self._closed = error
        self._compaction = None
        self._generation = Generation()
        self._blocks = Blocks(self.schema.arrow())
        self._mark = Mark(-1, self.version, 0, 0)
        self._now = TableVersion(self._generation, self._blocks, self._died[:0], self._mark, self._marks)
        self._latest = MemorySnapshot(self.schema, self._key, self._now)
        self.live.current = False
        self.hot.clear()
        self.settled = {}
        self.live = Live(ClosedKeys(error), self._blocks, 0)
        self._limit.close()

    @property
    def closed(self) -> bool:
        return self._closed is not None

    def _check_open(self) -> None:
        if self._closed is not None:
            raise copy(self._closed)


BACKEND = MemoryTable
