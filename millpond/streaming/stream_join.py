"""Joins two streams: a batch of one side with the stored rows of the other. Joins with tables: ``row_statement``.

The stored rows are in tables, changed in the same commit as the results of the batch and the position of its side. A
batch of either side is joined with all rows of the other that were committed before it, and stored for all that come
after it, so each pair is found once: by the one of its rows that comes last. This requires only that the commits of the
two sides are serialized.

A row is removed when the watermark of the other side has passed the times that it could match; rows behind the
watermark of their own side are late, and left out. So whether a pair is emitted does not depend on which side was read
first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond import steps
from millpond.changes import Changes
from millpond.connectors.source import SEQ
from millpond.engine.local_stage import SMALL, distinct
from millpond.query.evaluate import Evaluator
from millpond.query.row_matches import aligned
from millpond.sql.joins import StreamJoin
from millpond.sql.joins.model import ID, LEFT, LEFT_ID, MATCHED, RIGHT, RIGHT_ID
from millpond.streaming.aggregate import Tables
from millpond.tables.base import Backend, Snapshot
from millpond.types import Column, Schema

if TYPE_CHECKING:
    from millpond.engine.joined_batch import LargeResult
    from millpond.engine.spark_pairs import LargePairs

FindLarge = Callable[[int | None, int | None, int], "LargePairs"]
"""Finds the pairs of a large batch on Spark: given before which time its rows are late, before which they match none
that comes later, and below what the numbers of the other side's rows are.
"""

_MARKS = Schema(
    (
        Column("side", pa.int8(), False),
        Column("at", pa.int64()),
        Column("late", pa.int64()),
        Column("taken", pa.int64()),
        Column("given", pa.int64()),
    ),
    ("side",),
)


@dataclass(frozen=True, slots=True)
class Reached:
    """Contains how far one side was read: its watermark in microseconds, late rows, rows that were read and rows that
    its batches have emitted.
    """

    at: int | None = None
    late: int = 0
    taken: int = 0
    given: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """Contains the effect of a batch of one side: the rows that it emits, with ``_seq``, changes of the tables that
    store the join, and how far both sides are after it.
    """

    joined: pa.Table | LargeResult
    changes: Mapping[str, Changes]
    reached: tuple[Reached, Reached]


@dataclass(frozen=True, slots=True)
class _Found:
    """Contains the pairs of a batch. ``rows`` are those of its ``count`` rows that are not late and matter without a
    match, in order, with numbers in ``_id``; ``ids`` are the numbers of the rows in pairs, by side.
    """

    rows: pa.Table
    count: int
    late: int
    ids: tuple[np.ndarray, np.ndarray]
    number: int
    read: Callable[[], pa.Table]
    large: LargePairs | None = None
    """The pairs on Spark, if they are there."""


class JoinState:
    """Joins batches with stored rows. It contains only its plan: the state is in tables."""

    def __init__(self, join: StreamJoin, evaluator: Evaluator, name: str):
        self.join = join
        self._names = (f"{name}$left", f"{name}$right")
        self._marks = f"{name}$marks"
        number, met = Column(ID, pa.int64(), False), Column(MATCHED, pa.bool_())
        self._kept = [
            Schema((*s.query.schema.columns, number, *([met] if s.outer else [])), (ID,)) for s in join.sides
        ]
        self._joined = Schema(tuple(c for s in join.sides for c in s.query.schema)).arrow()
        pairs = join.pairs
        self._answer = evaluator.in_process(pairs) or (lambda tables: evaluator.answer(pairs, tables))

    @property
    def tables(self) -> dict[str, Schema]:
        return {**dict(zip(self._names, self._kept, strict=True)), self._marks: _MARKS}

    def stored(self, side: int) -> str:
        """Returns the table that stores the rows of a side."""
        return self._names[side]

    def take(self, side: int, rows: pa.Table, at: int | None, tables: Tables) -> Taken:
        """Joins a batch. ``rows`` are the next ones of a side in the order of its stream; ``at`` is its watermark."""
        reached = self._reached(tables)
        there = tables.snapshot(self._names[1 - side])
        numbered = rows.append_column(ID, _numbers(0, rows.num_rows))
        on_time = self._on_time(side, numbered, reached[side].at)
        pairs = steps.timed("find pairs in process", lambda: self._pairs(side, on_time, there))
        found = _Found(
            on_time,
            rows.num_rows,
            rows.num_rows - on_time.num_rows,
            _ids(pairs),
            pairs.num_rows,
            lambda: pairs,
        )
        return self._take(side, found, reached, at, there)

    def take_large(self, side: int, find: FindLarge, at: int | None, tables: Tables) -> Taken:
        """Joins a batch whose pairs Spark finds."""
        reached = self._reached(tables)
        mine, theirs = reached[side], reached[1 - side]
        there = tables.snapshot(self._names[1 - side])
        reach = self.join.sides[side].reach
        over = None if theirs.at is None or reach is None else theirs.at - reach
        large = find(mine.at, over, theirs.taken)
        found = _Found(
            large.own.rows,
            large.own.count,
            large.own.late,
            large.ids,
            large.number,
            lambda: large.collect().cast(self.join.pairs.schema.arrow()),
            large if large.on_spark else None,
        )
        return self._take(side, found, reached, at, there)

    def _take(
        self, side: int, found: _Found, reached: tuple[Reached, Reached], at: int | None, there: Snapshot
    ) -> Taken:
        mine, theirs = reached[side], reached[1 - side]
        me, other = self.join.sides[side], self.join.sides[1 - side]
        rows, ids = found.rows, found.ids
        after = replace(
            mine,
            at=_later(mine.at, at) if self.join.bounded(1 - side) else None,
            late=mine.late + found.late,
            taken=mine.taken + found.count,
        )
        matched = np.isin(rows[ID].to_numpy(), ids[side])
        stays = self._stays(side, rows, theirs.at)
        alone = rows.filter(pa.array(~matched & ~stays)) if me.outer else rows.slice(0, 0)
        kept = rows.set_column(rows.num_columns - 1, ID, _numbers(mine.taken, rows.num_rows))
        kept = kept.append_column(MATCHED, pa.array(matched)) if me.outer else kept
        changes = [Changes(kept.filter(pa.array(stays)))]
        gone = self._kept[1 - side].arrow().empty_table()
        if after.at is not None and after.at != mine.at:
            gone = self._passed(1 - side, there, after.at)
        unmet = gone.slice(0, 0)
        touched = [(gone, np.ones(gone.num_rows, bool))]
        if other.outer:
            left = gone[ID].to_numpy()
            unmet = gone.filter(pa.array(~gone[MATCHED].to_numpy() & ~np.isin(left, ids[1 - side])))
            met = self._met(there, np.setdiff1d(ids[1 - side], left))
            touched.append((met, np.zeros(met.num_rows, bool)))
        changes.append(
            Changes(
                pa.concat_tables([t for t, _ in touched]),
                pa.array(np.concatenate([d for _, d in touched]), pa.bool_()),
            )
        )
        first = mine.given + theirs.given
        after = replace(after, given=mine.given + found.number + alone.num_rows + unmet.num_rows)
        both = (after, theirs) if side == 0 else (theirs, after)
        made = {self._names[side]: changes[0], self._names[1 - side]: changes[1]}
        if after != mine:
            made[self._marks] = Changes(_row(side, after))

        def read() -> pa.Table:
            rows = self._in_order(side, found.read(), alone, unmet)
            return rows.append_column(SEQ, _numbers(first, rows.num_rows))

        return Taken(self._result(found, alone, unmet, read), {n: c for n, c in made.items() if len(c)}, both)

    def _result(
        self, found: _Found, alone: pa.Table, unmet: pa.Table, read: Callable[[], pa.Table]
    ) -> pa.Table | LargeResult:
        if found.large is None:
            return read()
        from millpond.engine.joined_batch import LargeResult

        return LargeResult(found.large, self._joined, alone, unmet, read)

    def time_of(self, column: str, reached: tuple[Reached, Reached]) -> int | None:
        """Returns the lower bound of a time of the joined rows: no row that is emitted later is before it."""
        n = [s.time for s in self.join.sides].index(column)
        mine, theirs, reach = reached[n].at, reached[1 - n].at, self.join.sides[n].reach
        if mine is None or theirs is None or reach is None:
            return None
        return min(mine, theirs - reach)

    def _reached(self, tables: Tables) -> tuple[Reached, Reached]:
        rows = {r.pop("side"): r for r in tables.snapshot(self._marks).scan().to_pylist()}
        left, right = (Reached(**rows.get(n, {})) for n in (0, 1))
        return left, right

    def _on_time(self, side: int, rows: pa.Table, mark: int | None) -> pa.Table:
        """Returns the rows that are not late: the rows that they could match are still stored."""
        if mark is None:
            return rows
        late = pc.less(self._times(side, rows), mark)
        return rows.filter(pc.invert(pc.fill_null(late, False)))

    def _pairs(self, side: int, rows: pa.Table, there: Snapshot) -> pa.Table:
        empty = self.join.pairs.schema.arrow().empty_table()
        if not rows.num_rows or not len(there):
            return empty
        mine, theirs = [k[side] for k in self.join.keys], [k[1 - side] for k in self.join.keys]
        if mine and (there.remote or len(there) > SMALL):
            others = there.get(theirs, distinct(rows.select(mine)))
        else:
            others = there.scan()
        if not others.num_rows:
            return empty
        sides = {(LEFT, RIGHT)[side]: rows, (LEFT, RIGHT)[1 - side]: others}
        return self._answer(sides).cast(empty.schema)

    def _stays(self, side: int, rows: pa.Table, mark: int | None) -> np.ndarray:
        """Returns which rows could match one that comes later."""
        me = self.join.sides[side]
        stays = np.ones(rows.num_rows, bool)
        for name in {*(k[side] for k in self.join.keys), *([me.time] if me.time is not None else [])}:
            stays &= pc.is_valid(rows[name]).to_numpy()
        if mark is not None and me.reach is not None:
            passed = pc.fill_null(pc.less(self._times(side, rows), mark - me.reach), False)
            stays &= ~passed.to_numpy()
        return stays

    def _passed(self, side: int, there: Snapshot, mark: int) -> pa.Table:
        """Returns the stored rows of a side that nothing can match any more. Of the others only the times are read."""
        me = self.join.sides[side]
        assert me.reach is not None
        times = there.scan([me.time or ID, ID])
        passed = times.filter(pc.less(self._times(side, times), mark - me.reach))
        return there.get([ID], passed.select([ID])).cast(self._kept[side].arrow())

    def _met(self, there: Snapshot, ids: np.ndarray) -> pa.Table:
        """Returns the stored rows that match one for the first time."""
        found = there.get([ID], pa.table({ID: pa.array(ids, pa.int64())})).cast(there.schema.arrow())
        found = found.filter(pc.invert(found[MATCHED]))
        at = found.schema.get_field_index(MATCHED)
        return found.set_column(at, found.schema.field(at), pa.array(np.ones(found.num_rows, bool)))

    def _in_order(self, side: int, pairs: pa.Table, alone: pa.Table, unmet: pa.Table) -> pa.Table:
        """Returns the results of the batch: ordered by its own rows, then by those that they match; at the end the
        other side's rows that will match none.
        """
        ids = _ids(pairs)
        came = [ids[side], alone[ID].to_numpy(), np.full(unmet.num_rows, np.iinfo(np.int64).max)]
        theirs = [ids[1 - side], np.full(alone.num_rows, -1), unmet[ID].to_numpy()]
        rows = pa.concat_tables([aligned(t, self._joined) for t in (pairs, alone, unmet)])
        return rows.take(pa.array(np.lexsort((np.concatenate(theirs), np.concatenate(came)))))

    def _times(self, side: int, rows: pa.Table) -> pa.ChunkedArray:
        time = self.join.sides[side].time
        assert time is not None
        return rows[time].cast(pa.int64())


def describe_join(query: str, table: Callable[[str], Backend | None]) -> dict[str, object]:
    """Describes the join of streams that fills a table, for a reader."""
    kept = [table(f"{query}${side}") for side in ("left", "right")]
    marks = table(f"{query}$marks")
    if marks is None:
        return {}
    late = sum(row["late"] for row in marks.scan().to_pylist())
    return {"kept rows": sum(len(k) for k in kept if k is not None), "late rows": late}


def _ids(pairs: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers of the rows in pairs, by side."""
    return pairs[LEFT_ID].to_numpy(), pairs[RIGHT_ID].to_numpy()


def _later(a: int | None, b: int | None) -> int | None:
    return max((x for x in (a, b) if x is not None), default=None)


def _numbers(first: int, count: int) -> pa.Array:
    return pa.array(np.arange(first, first + count, dtype=np.int64))


def _row(side: int, reached: Reached) -> pa.Table:
    values = [[side], [reached.at], [reached.late], [reached.taken], [reached.given]]
    return pa.table(values, schema=_MARKS.arrow())
