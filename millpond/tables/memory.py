"""``memory``: rows in blocks of columns, a hash index on the key, others on what is asked for.

Readers never wait: what they see is published by the writer, in one step, when all of a commit is in place.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import pyarrow as pa

from millpond import faults
from millpond.changes import ROW, Changes, Position
from millpond.errors import Closed, Error, TableFull
from millpond.locks import Turns
from millpond.lookup import Lookup, Made, Run
from millpond.options import Option
from millpond.records.cast import conform
from millpond.records.checks import checked
from millpond.records.keys import key_list
from millpond.tables._blocks import SHIFT, SIZE, Blocks, Slots
from millpond.tables._codec import is_plain, make_reads
from millpond.tables._coldkeys import Keys
from millpond.tables._hot import HOT_OPTION, HotRecords
from millpond.tables._index import SecondaryIndex
from millpond.tables._limit import LIMIT_OPTIONS, Limit, fixed_bytes
from millpond.tables._lookup import compile_lookup
from millpond.tables._rewind import Point, broken, rebuilt
from millpond.tables._single import NOTHING, Edit, SingleRows
from millpond.tables._snapshot import MemorySnapshot, Settled
from millpond.tables._versions import NEVER, Generation, Live, Mark, Moment
from millpond.tables.base import Backend, Get, Has
from millpond.types import Schema

__all__ = ["BACKEND", "NOTHING", "Edit", "MemoryTable", "Point"]

_KEPT_COMMITS = 64


class MemoryTable(SingleRows, Backend):
    """A table in this process. It works alone, without an app."""

    aliases = ("inMemory",)
    abilities = frozenset({"held", "commits", "own", "lookup", "null_keys", "every_key", "widen"})
    options = (
        Option(
            "durability",
            "choice",
            "What a commit waits for, with a state directory. commit: it is on disk. batch: it is "
            "written, and on disk at most 100 ms later, and after drain and close. none: nothing is "
            "stored, the table is empty after a restart.",
            default="commit",
            choices=("commit", "batch", "none"),
        ),
        *LIMIT_OPTIONS,
        HOT_OPTION,
    )
    idle_dead: ClassVar[int] = 10_000
    """How many dead rows, beyond as many as are alive, wait for a compaction."""

    def __init__(
        self,
        schema: Schema,
        *,
        name: str = "",
        null_keys: bool = False,
        limit: Limit | None = None,
        hot: int = HOT_OPTION.default,
    ):
        self.schema = schema
        self._what = f'table "{name}"' if name else "the table"
        self._null_keys = null_keys
        self.declared: set[tuple[str, ...]] = set()
        """The columns of indexes that were asked for by name, sorted."""
        self._key = tuple(c.name for c in map(schema.find, schema.key) if c is not None)
        self._limit = limit or Limit("", {}, None)
        if self._limit.shelf is not None:
            self.abilities = self.abilities - {"widen"}
        self._blocks = self._no_rows()
        self._died: Slots = np.full(1024, NEVER, dtype=np.int64)
        self._generation = Generation(self._no_keys())
        if self._limit.most is not None:
            self._generation.admit = self._admit_index
        self._mark = Mark(-1, 0, 0, 0)
        self._marks = deque([self._mark], maxlen=_KEPT_COMMITS + 1)
        self.live = Live(self._generation.newest, self._blocks, 0)
        self.settled: Settled = {}
        """Indexes that readers may ask without a look at versions; replaced by every commit."""
        self._now = Moment(self._generation, self._blocks, self._died, self._mark, self._marks)
        self._latest = MemorySnapshot(schema, self._key, self._now)
        # Copies of records share what they hold, which a caller must not be able to change.
        flat = all(c.type is not None and not pa.types.is_nested(c.type) for c in schema)
        self.hot = HotRecords(hot if flat and self._limit.most is None else 0)
        self._positions: dict[str, Position] = {}
        self._writing = Turns()
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
        hot = values.get("hot.records", HOT_OPTION.default)
        return cls(schema, name=name, null_keys=null_keys, limit=limit, hot=hot)

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
        """An index of keys that has none yet."""
        types = [c.type for k in self._key if (c := self.schema.find(k)) is not None]
        return self._limit.keys(types, self._null_keys)

    def point(self) -> Point:
        """What ``rewind`` needs to come back to the rows of now."""
        return Point(self._now, self._generation.numbers.next)

    def rewind(self, point: Point) -> None:
        """Takes back everything since the point, also what was only begun. If that fails, the table is of no use."""
        try:
            blocks = self._no_rows()
            made = rebuilt(self._key, point, blocks, self._no_keys(), self._ease)
            commit, version = point.moment.mark.commit, self._mark.version + 1
            rows = made.slots
            mark = Mark(commit, version, rows, rows)
            made.generation.admit = self._generation.admit
            made.generation.replaced = self._limit.put_aside(made.generation.replaced, -1)
            died = self._limit.put_aside(made.died, NEVER)
            self._stand_on(made.generation, blocks, died, deque([mark], maxlen=_KEPT_COMMITS + 1))
            self.hot.clear()
        except BaseException as error:
            self.fail(broken(self._what, error))
            raise

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """What happens inside happens, or, if it raises, has not happened."""
        point = self.point()
        try:
            yield
        except BaseException:
            self.rewind(point)
            raise

    def _stand_on(self, generation: Generation, blocks: Blocks, died: Slots, marks: deque[Mark]) -> None:
        """Shows readers other slots with the same rows; snapshots that are held go on with the old ones."""
        self._generation, self._blocks, self._died = generation, blocks, died
        self._marks, self._mark = marks, marks[-1]
        self._now = Moment(generation, blocks, died, self._mark, marks)
        self.live.current = False
        self.live = Live(generation.newest, blocks, self._mark.slots)
        self.settled = {}

    def check(self, changes: Changes) -> Changes:
        return checked(self.schema, changes, what=self._what, null_keys=self._null_keys)

    def admit(self, changes: Changes) -> None:
        if self._limit.most is not None:
            added = len(changes) - (0 if changes.deleted is None else changes.deleted.true_count)
            if not added:
                return
            try:
                self._make_room(*self._coming(changes, added if self._key else 0))
            except TableFull:
                if not self._key:
                    raise
                # Most keys may be there already: that is worth a look now.
                keys = set(key_list([changes.rows.column(name) for name in self._key]))
                added = len(keys) - int(np.count_nonzero(self._generation.newest_slots(list(keys)) >= 0))
                self._make_room(*self._coming(changes, added))

    def _coming(self, changes: Changes, keys: int) -> tuple[int, int]:
        fixed, rows = self._limit.coming(changes, keys)
        return fixed, rows + (self._blocks.cells_for(self._mark.slots + len(changes)) if self.spills else 0)

    @property
    def spills(self) -> bool:
        return self._limit.shelf is not None

    def _no_rows(self) -> Blocks:
        """Blocks of this table without a row, which keep to the limit."""
        copies = self._limit.copies
        return Blocks(self.schema.arrow(), copies, None if copies is None else self._ease)

    def _make_room(self, fixed: int, rows: int) -> None:
        """Room for so many bytes of keys and of rows; rows that nobody needs go first."""
        try:
            self._admit(fixed, rows)
        except TableFull:
            if self._mark.slots == self._mark.alive:
                raise
            self._compact(forced=True)
            self._admit(fixed, rows)

    def _admit(self, fixed: int, rows: int) -> None:
        fixed += fixed_bytes(self._generation, self._died)
        self._limit.admit(self._blocks, self._mark, self._generation.newest, fixed, rows)

    def widen(self, schema: Schema) -> None:
        with self._writing:
            self._check_open()
            slots = self._mark.slots
            rows = conform(schema, self._blocks.take(np.arange(slots)), what=self._what)
            blocks = Blocks(schema.arrow())
            blocks.append(0, rows)
            # As after a compaction: readers of the old rows keep their indexes, which know the places of columns.
            generation = self._generation.kept(np.ones(slots, dtype=np.bool_))
            self.schema = schema
            self._stand_on(generation, blocks, self._died[:slots].copy(), self._marks)
            self._latest = MemorySnapshot(schema, self._key, self._now)
            self.hot.clear()
            if any(pa.types.is_nested(c.type) for c in schema):
                self.hot = HotRecords(0)
            self._set_up_single_rows()

    def restore(self, changes: Changes) -> None:
        self._limit.enforced = False
        try:
            self.apply(changes)
        finally:
            self._limit.enforced = True
        self._ease(self._blocks)

    def _ease(self, blocks: Blocks) -> None:
        """Keeps to the limit while rows are being added: also rows that are not seen yet may go to the disk."""
        self._limit.ease(blocks, fixed_bytes(self._generation, self._died), len(blocks.blocks) - 1 << SHIFT)

    def _upsert(self, rows: pa.Table, deleted: pa.BooleanArray | None, commit: int) -> None:
        keys = key_list([rows.column(name) for name in self._key])
        gone = None if deleted is None else np.asarray(deleted)
        last = dict(zip(keys, range(len(keys)), strict=True))
        if len(last) < len(keys):
            pick = np.sort(np.fromiter(last.values(), np.int64, len(last)))
            rows = rows.take(pa.array(pick))
            keys = [keys[i] for i in pick.tolist()]
            gone = None if gone is None else gone[pick]
            last = dict(zip(keys, range(len(keys)), strict=True))
        if keys and not self._mark.slots and gone is None:
            self._load(rows, last, commit)
            return
        before = self._generation.newest_slots(keys)
        ended = self._alive(before)
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
                self._generation.point(compress(keys, there.tolist()), (-2 - before[there]).tolist())
            if self.hot.active:
                self.hot.forget_all(keys)
            faults.reach("table: pointed")
            self._publish(len(put), len(ended), commit)
            faults.reach("table: published")
            self._compact()

    def _load(self, rows: pa.Table, keys: dict[Any, int], commit: int) -> None:
        """The first rows of a table: they replace nothing, and ``keys`` leads to their slots."""
        self._blocks.append(0, rows)
        self._generation.replaced = self._limit.grown(self._generation.replaced, len(keys), -1)
        self._generation.newest.update(keys)
        self._publish(len(keys), 0, commit)

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
            self._blocks.append(self._mark.slots, rows.filter(pa.array(stay)))
            self._link(before[stay], ended)
            known.add(count, numbers[stay])
            self._publish(count, len(ended), commit)
            self._compact()

    def _alive(self, slots: Slots) -> Slots:
        there: Slots = slots[slots >= 0]
        alive: Slots = there[self._died[there] == NEVER]
        return alive

    def _link(self, before: Slots, ended: Slots) -> int:
        """Notes what the next slots replace and which slots end; answers the first of the next slots. Readers of
        earlier commits are not disturbed."""
        first = self._mark.slots
        after = first + len(before)
        self._died = self._limit.grown(self._died, after, NEVER)
        self._died[ended] = self._mark.version + 1
        self._generation.replaced = self._limit.grown(self._generation.replaced, after, -1)
        self._generation.replaced[first:after] = before
        return first

    def _publish(self, made: int, ended: int, commit: int) -> None:
        """Shows readers the next slots, and that others have ended."""
        _, version, slots, alive = self._mark
        after = slots + made
        if after > len(self._died):
            self._died = self._limit.grown(self._died, after, NEVER)
        self._mark = mark = Mark(commit, version + 1, after, alive + made - ended)
        self._marks.append(mark)
        self._now = Moment(self._generation, self._blocks, self._died, mark, self._marks)
        self.live.end = after
        self.settled = {}
        self._changed_at = time.time()

    def _compact(self, *, forced: bool = False) -> None:
        """Leaves out rows that no kept commit sees, once they are as many as those alive; if it is ``forced``, all but
        those alive.

        Snapshots that are held go on with the old slots, which are freed with the last of them.
        """
        mark = self._mark
        if mark.slots <= 2 * mark.alive + self.idle_dead and not forced:
            return
        if forced:
            self._marks = deque([mark], maxlen=_KEPT_COMMITS + 1)
        died = self._died[: mark.slots]
        keep = died > self._marks[0].version
        blocks = self._no_rows()
        kept = np.flatnonzero(keep)
        # Part by part where memory is limited, the old rows being on the disk.
        self._limit.ease(self._blocks, self._limit.most or 0, mark.slots)
        step = len(kept) if self._limit.most is None else SIZE
        for start in range(0, len(kept), max(1, step)):
            blocks.append(start, self._blocks.take(kept[start : start + step]))
            self._ease(blocks)
        kept_before = np.concatenate(([0], np.cumsum(keep)))
        marks = [Mark(m.commit, m.version, int(kept_before[m.slots]), m.alive) for m in self._marks]
        faults.reach("table: copied")
        generation = self._generation.kept(keep)
        generation.replaced = self._limit.put_aside(generation.replaced, -1)
        died = self._limit.put_aside(died[keep], NEVER)
        self._stand_on(generation, blocks, died, deque(marks, maxlen=_KEPT_COMMITS + 1))

    def snapshot(self, commit: int | None = None) -> MemorySnapshot:
        """As Backend.snapshot; the last 64 commits that changed the table are kept."""
        self._check_open()
        now, latest = self._now, self._latest
        if latest.moment is not now:
            latest = self._latest = MemorySnapshot(self.schema, self._key, now)
        if commit is None or now.mark.commit <= commit:
            return latest
        marks = list(now.marks)
        past = [m for m in marks if m.version < now.mark.version and m.commit <= commit]
        if not past:
            raise ValueError(f"commit {commit} is no longer kept; the oldest is {marks[0].commit}")
        return MemorySnapshot(self.schema, self._key, now._replace(mark=past[-1]))

    def quick_reads(self, step: Iterator[int], get: Get, has: Has) -> tuple[Get, Has]:
        if not self._key or not all(is_plain(c.type) for k in self._key if (c := self.schema.find(k))):
            return get, has
        return make_reads(self, step, get, has)

    def create_index(self, columns: Sequence[str]) -> bool:
        names = tuple(sorted(columns))
        self.declared.add(names)
        if set(names) != set(self._key):
            view = self.snapshot()
            generation = view.moment.generation
            index = generation.index_on(names, view.moment.blocks, view.mark.slots)
            index.extended(view.moment.blocks, view.mark.slots)
            if names not in generation.others:
                self.declared.discard(names)
                raise self._limit.no_room(f"an index on {', '.join(names)}")
        return True

    def _admit_index(self, index: SecondaryIndex) -> bool:
        """Whether a reader may keep an index; rows go to the disk for it, now or, while somebody writes, then."""
        fixed = fixed_bytes(self._generation, self._died) + index.nbytes()
        if not self._limit.has_room(self._blocks, fixed):
            return False
        if self._writing.try_enter():
            try:
                self._limit.ease(self._blocks, fixed, self._mark.slots)
            finally:
                self._writing.__exit__()
        return True

    def drop_index(self, columns: Sequence[str]) -> bool:
        names = tuple(sorted(columns))
        self.declared.discard(names)
        self._generation.others.pop(names, None)
        self.settled = {}
        return True

    def compile_lookup(self, lookup: Lookup, step: Iterator[int], made: Made) -> Run:
        return compile_lookup(self, lookup, step, made)

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, as the schema spells them."""
        return self._key

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
        generation, blocks, died, mark, _ = self._now
        limit = {} if self._limit.most is None else {"max_memory": self._limit.most}
        return {
            "rows": mark.alive,
            "bytes": blocks.nbytes() + fixed_bytes(generation, died) + self.hot.nbytes(),
            "spilled_bytes": blocks.spilled_bytes + getattr(generation.newest, "spilled_bytes", 0),
            **limit,
            "dead": mark.slots - mark.alive,
            "indexes": [list(columns) for columns in generation.indexes()],
            "version": mark.version,
            "changed_at": self._changed_at,
        }

    def close(self) -> None:
        with self._writing:
            self.fail(Closed(f"{self._what} is closed"))

    def fail(self, error: Error) -> None:
        """Lets go of all rows; whoever reads or writes from now on gets the error. The caller is the one who writes."""
        self._closed = error
        self._generation = Generation()
        self._blocks = Blocks(self.schema.arrow())
        self._mark = Mark(-1, self.version, 0, 0)
        self._now = Moment(self._generation, self._blocks, self._died[:0], self._mark, self._marks)
        self._latest = MemorySnapshot(self.schema, self._key, self._now)
        self.live.current = False
        self.hot.clear()
        self.settled = {}
        self.live = Live(_ClosedIndex(error), self._blocks, 0)
        self._limit.close()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise copy(self._closed)


class _ClosedIndex(dict[Any, int]):
    """The key index of a table that cannot be read any more."""

    def __init__(self, error: Error):
        super().__init__()
        self._error = error

    def get(self, key: Any, default: Any = None) -> NoReturn:
        raise copy(self._error)


BACKEND = MemoryTable
