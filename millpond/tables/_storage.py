"""Stores the rows of a memory table in slots, and publishes what readers see.

The writer prepares slots that no reader sees, and shows them in one step. Slots that nobody needs are removed in
pieces, while rows are changed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import ClassVar

import numpy as np

from millpond.errors import Error
from millpond.locks import WriteLock
from millpond.tables._ages import Ages
from millpond.tables._blocks import SHIFT, Blocks, Slots
from millpond.tables._closed_keys import ClosedKeys
from millpond.tables._coldkeys import Keys
from millpond.tables._compaction import Compaction, compacted
from millpond.tables._hot import HotRecords
from millpond.tables._limit import Limit, fixed_bytes
from millpond.tables._publication import Publication, Unsettled
from millpond.tables._reshape import MovedKeys
from millpond.tables._rewind import Point, broken, rebuilt
from millpond.tables._snapshot import MemorySnapshot, Settled
from millpond.tables._versions import NEVER, CommitRecord, Generation, Live, TableVersion
from millpond.types import Schema


class RowStorage:
    """Contains the rows of one table, in all versions that a reader may need. One writer at a time changes it."""

    idle_dead: ClassVar[int] = 10_000
    """How many dead rows, beyond the number of live ones, trigger a compaction."""
    kept_commits: ClassVar[int] = 64
    """How many commits before the newest that changed the table can still be read."""
    piece: ClassVar[int] = 1 << 15
    """The least number of slots that a piece of a compaction copies."""

    def __init__(
        self, schema: Schema, what: str, limit: Limit, ages: Ages | None, hot: HotRecords, *, null_keys: bool
    ):
        self.schema = schema
        self.what = what
        """The table in messages."""
        self.null_keys = null_keys
        self.key = tuple(c.name for c in map(schema.find, schema.key) if c is not None)
        """The key columns, as the schema spells them."""
        self.limit = limit
        self.hot = hot
        self.writing = WriteLock()
        """Held by the writer."""
        self.blocks = self.no_rows()
        self.died: Slots = np.full(1024, NEVER, dtype=np.int64)
        self.generation = Generation(self.no_keys(), ages=ages)
        self.mark = CommitRecord(-1, 0, 0, 0)
        self.marks = deque([self.mark], maxlen=self.kept_commits + 1)
        self.now = TableVersion(self.generation, self.blocks, self.died, self.mark, self.marks)
        self.live = Live(self.generation.newest, self.blocks, 0)
        self.settled: Settled = {}
        """Indexes that readers may use without checking versions; replaced by every commit."""
        self.publication: tuple[Publication, TableVersion] | None = None
        """What readers see while a commit of several tables is applied."""
        self.compaction: Compaction | None = None
        self.changed_at: float | None = None
        self.declared: set[tuple[str, ...]] = set()
        """The columns of indexes that were created by name, sorted."""
        self.closed: Error | None = None
        self._latest = MemorySnapshot(schema, self.key, self.now)
        self._changes_since = 0

    # empty parts

    def no_rows(self) -> Blocks:
        """Returns empty blocks of this table, which respect the limit."""
        copies = self.limit.copies
        return Blocks(self.schema.arrow(), copies, None if copies is None else self._ease)

    def no_keys(self) -> Keys:
        """Returns an empty index of keys."""
        types = [c.type for k in self.key if (c := self.schema.find(k)) is not None]
        return self.limit.keys(types, self.null_keys)

    def _ease(self, blocks: Blocks) -> None:
        """Respects the limit while rows are being added: rows that are not visible yet may be spilled too."""
        self.limit.ease(blocks, fixed_bytes(self.generation, self.died), len(blocks.blocks) - 1 << SHIFT)

    def ease(self) -> None:
        """Spills rows that the limit leaves no memory for."""
        self._ease(self.blocks)

    # a commit: rows are appended to the blocks, linked, pointed to by the index of keys, and published

    def link(self, before: Slots, ended: Slots) -> int:
        """Records what the next slots replace and which slots are deleted; returns the first of the next slots. Readers
        of earlier commits are not affected.
        """
        first = self.mark.slots
        after = first + len(before)
        self.died = self.limit.grown(self.died, after, NEVER)
        self.died[ended] = self.mark.version + 1
        self.generation.replaced = self.limit.grown(self.generation.replaced, after, -1)
        self.generation.replaced[first:after] = before
        return first

    def publish(self, made: int, ended: int, commit: int) -> None:
        """Shows readers the next slots, and that others are deleted."""
        _, version, slots, alive = self.mark
        after = slots + made
        if after > len(self.died):
            self.died = self.limit.grown(self.died, after, NEVER)
        self.mark = mark = CommitRecord(commit, version + 1, after, alive + made - ended)
        self.marks.append(mark)
        if made and self.generation.ages is not None:
            self.generation.ages.note(after)
        self.now = TableVersion(self.generation, self.blocks, self.died, mark, self.marks)
        self.live.end = after
        self.settled = {} if self.publication is None else Unsettled()
        self.changed_at = time.time()
        self._changes_since += made + ended

    # reading

    def snapshot(self, commit: int | None = None) -> MemorySnapshot:
        """Returns the rows now, or after one of the last commits that changed them."""
        self.check_open()
        now, publication, latest = (
            self.now,
            self.publication,
            self._latest,
        )  # in this order: a publication precedes its rows
        if publication is not None and not publication[0].done:
            now = publication[1]
        if latest.table_version is not now:
            latest = self._latest = MemorySnapshot(self.schema, self.key, now)
        if commit is None or now.mark.commit <= commit:
            return latest
        return MemorySnapshot(self.schema, self.key, now.at(commit))

    def create_index(self, columns: Sequence[str]) -> None:
        names = self._spelled(columns)
        self.declared.add(names)
        if set(names) != set(self.key):
            self.check_open()
            if not self.now.make_index(names):
                self.declared.discard(names)
                raise self.limit.no_room(f"an index on {', '.join(names)}")

    def drop_index(self, columns: Sequence[str]) -> None:
        names = self._spelled(columns)
        self.declared.discard(names)
        self.generation.others.pop(names, None)
        self.settled = {}

    def _spelled(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Returns the columns of an index as the table spells them, sorted."""
        found = (self.schema.find(name) for name in columns)
        return tuple(sorted(name if c is None else c.name for c, name in zip(found, columns, strict=True)))

    def join(self, publication: Publication) -> None:
        """Shows the current rows until the publication is done. Readers do not wait: those by key take the general path
        meanwhile, which reads a snapshot.
        """
        with self.writing:
            self.publication = publication, self.now
            self._begin_reads()

    def release(self) -> None:
        """Returns readers by key to the fast path; the publication is done."""
        with self.writing:
            self.publication = None
            if self.closed is None:
                self._begin_reads()

    def _begin_reads(self) -> None:
        """Gives readers what finds the newest rows, or, while they are not published, nothing that finds them."""
        self.live.current = False
        waiting = self.publication is not None
        newest: Keys = MovedKeys() if waiting else self.generation.newest
        self.live = Live(newest, self.blocks, 0 if waiting else self.mark.slots)
        self.settled = Unsettled() if waiting else {}

    # compacting, called by the writer

    def compact(self, *, forced: bool = False) -> None:
        """Removes rows that no stored commit sees, once they are as many as those alive: in pieces, of which each call
        does one. If it is ``forced``, all but those alive, at once; so is a table with limited memory compacted.

        Existing snapshots continue with the old slots, which are freed with the last of them.
        """
        mark = self.mark
        if self.limit.most is None and not forced:
            self._compact_more()
            return
        if mark.slots <= 2 * mark.alive + self.idle_dead and not forced:
            return
        if forced:
            self.marks = deque([mark], maxlen=self.kept_commits + 1)
        made = compacted(self.now, self.marks, self.no_rows(), self.limit, self._ease)
        self.stand_on(made.generation, made.blocks, made.died, made.marks)

    def _compact_more(self) -> None:
        mark, oldest, compaction = self.mark, self.marks[0], self.compaction
        if compaction is None:
            if oldest.slots - oldest.alive <= mark.alive + self.idle_dead:
                return
            compaction = self.compaction = Compaction(self.key, self.now, self.no_rows())
            self._changes_since = 0
        elif self._changes_since < self.piece >> 3:
            return
        # Faster than slots are added: so it comes to an end.
        compaction.copy(self.now, oldest.version, max(4 * self._changes_since, self.piece))
        self._changes_since = 0
        if compaction.done == mark.slots:
            made = compaction.finished(self.now, self.marks)
            self.stand_on(made.generation, made.blocks, made.died, made.marks)

    def stand_on(
        self, generation: Generation, blocks: Blocks, died: Slots, marks: Iterable[CommitRecord]
    ) -> None:
        """Switches readers to other slots; existing snapshots continue with the old ones."""
        self.generation, self.blocks, self.died = generation, blocks, died
        self.marks = deque(marks, maxlen=self.kept_commits + 1)
        self.mark = self.marks[-1]
        self.now = TableVersion(generation, blocks, died, self.mark, self.marks)
        self._begin_reads()
        self.compaction = None

    # undoing

    def point(self) -> Point:
        """Returns what ``rewind`` needs to return to the current rows."""
        return Point(self.now, self.generation.numbers.next)

    def rewind(self, point: Point) -> None:
        """Undoes everything since the point, also unfinished changes. If that fails, the table is unusable."""
        try:
            blocks = self.no_rows()
            made = rebuilt(self.key, point, blocks, self.no_keys(), self._ease)
            mark = CommitRecord(
                point.table_version.mark.commit, self.mark.version + 1, made.slots, made.slots
            )
            made.generation.admit = self.generation.admit
            made.generation.replaced = self.limit.spilled_array(made.generation.replaced, -1)
            died = self.limit.spilled_array(made.died, NEVER)
            self.stand_on(made.generation, blocks, died, [mark])
            self.hot.clear()
        except BaseException as error:
            self.fail(broken(self.what, error))
            raise

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Runs the code inside completely or, if it raises, undoes it."""
        point = self.point()
        try:
            yield
        except BaseException:
            self.rewind(point)
            raise

    # ending

    def give_up(self) -> None:
        """Sends those who read by key to the general path: another table has the rows now."""
        self.live.current = False
        self.live = Live(MovedKeys(), self.blocks, 0)
        self.hot.clear()

    def fail(self, error: Error) -> None:
        """Drops all rows; every later read or write raises the error. The caller is the writer."""
        self.closed = error
        self.compaction = None
        self.generation = Generation()
        self.blocks = Blocks(self.schema.arrow())
        self.mark = CommitRecord(-1, self.mark.version, 0, 0)
        self.now = TableVersion(self.generation, self.blocks, self.died[:0], self.mark, self.marks)
        self._latest = MemorySnapshot(self.schema, self.key, self.now)
        self.live.current = False
        self.hot.clear()
        self.settled = {}
        self.live = Live(ClosedKeys(error), self.blocks, 0)
        self.limit.close()

    def check_open(self) -> None:
        if self.closed is not None:
            raise copy(self.closed)
