"""Handles rows of a batch without a match in a joined table: counts them, makes them error records, or lets them
wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Changes
from millpond.clock import Clock
from millpond.connectors.source import SEQ
from millpond.errors import PipelineFailed
from millpond.plan.plans import MissPlan
from millpond.store.snapshot import StoreSnapshot
from millpond.types import Column, Schema

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.stage import Stage

SINCE = "$since"
_TIME = pa.timestamp("us", "UTC")
_FOUND = pa.schema([("seq", pa.int64()), ("reason", pa.string())])


@dataclass(frozen=True, slots=True)
class Matched:
    """Contains a batch whose rows were looked up in the tables.

    ``batch`` is what is processed of it and of rows that waited, ``rejected`` are error records with their reasons in
    ``why``; ``changes`` are those of the table of waiting rows. ``missed`` rows of the batch found no match.
    """

    batch: Batch
    rejected: pa.Table | None = None
    why: pa.ChunkedArray | None = None
    changes: Mapping[str, Changes] = field(default_factory=dict)
    missed: int = 0
    after: Callable[[], None] = lambda: None
    """Called when all of it is committed."""

    def with_rejected(self, rows: pa.Table, why: pa.ChunkedArray) -> Matched:
        """Returns it with more error records."""
        if self.rejected is not None and self.why is not None:
            rows = pa.concat_tables([rows.cast(self.rejected.schema), self.rejected])
            why = pa.chunked_array([*why.chunks, *self.why.chunks], why.type)
        return replace(self, rejected=rows, why=why)


def waiting_table(query: str) -> str:
    return f"{query}$waiting"


def waiting_schema(stream: Schema) -> Schema:
    """Returns the schema of waiting rows: those of the stream, their sequence number, and since when they wait."""
    own = (Column(SEQ, pa.int64(), False), Column(SINCE, _TIME))
    return Schema((*stream.columns, *own), (SEQ,))


class Misses:
    """Handles rows without a match, batch by batch, as 'on.miss' says."""

    def __init__(self, plan: MissPlan, stage: Stage):
        self.plan = plan
        self._stage = stage

    def match(self, batch: Batch, snapshots: StoreSnapshot) -> Matched:
        found = self.find(batch, snapshots)
        missed = found.num_rows
        if not missed or self.plan.mode in ("null", "drop", "default"):
            return Matched(batch, missed=missed)
        if self.plan.mode == "fail":
            raise self.failed(missed)
        good, rejected, why = divided(batch.read(), found)
        return Matched(batch.part(good), rejected, why, missed=missed)

    def find(self, batch: Batch, snapshots: StoreSnapshot) -> pa.Table:
        """Returns ``seq`` and ``reason`` of the rows without a match."""
        found = self._stage.run(batch, snapshots)
        if not found.num_rows:
            return _FOUND.empty_table()
        why: Any = None
        for i, table in reversed(list(enumerate(self.plan.tables))):
            why = pc.if_else(found[f"m{i}"], f'there is no match in table "{table}"', why)
        return once(pa.table({"seq": found["missed"], "reason": why}))

    def failed(self, rows: int) -> PipelineFailed:
        return PipelineFailed(
            f"{rows} rows of a batch find no match in {' or '.join(self.plan.tables)}",
            hint="put the rows into the table and START QUERY, or choose another 'on.miss'",
        )


class WaitingRows(Misses):
    """Stores rows without a match in a table of the query, which changes in the commits of the query.

    They are retried when one of the tables has changed, and given up when their time is over.
    """

    def __init__(self, plan: MissPlan, stage: Stage, table: str, snapshots: StoreSnapshot, clock: Clock):
        super().__init__(plan, stage)
        self._clock = clock
        self._table = table
        self._tried: tuple[int, ...] | None = None
        there = snapshots.snapshot(table).scan()
        self.rows = there.num_rows
        self._first = pc.min(there[SINCE]).as_py()

    def due(self, snapshots: StoreSnapshot) -> bool:
        """Returns whether a waiting row may have found its match, or has waited long enough."""
        if not self.rows:
            return False
        return self._first <= self._limit() or self._versions(snapshots) != self._tried

    def _limit(self) -> datetime:
        return self._clock.now() - timedelta(seconds=self.plan.timeout)

    def _versions(self, snapshots: StoreSnapshot) -> tuple[int, ...]:
        return tuple(snapshots.version(table) for table in self.plan.tables)

    def waiting(self, snapshots: StoreSnapshot) -> pa.Table:
        """Returns the rows that wait, as the stream delivered them."""
        return snapshots.snapshot(self._table).scan().drop_columns([SINCE])

    def match(self, batch: Batch, snapshots: StoreSnapshot, over: pa.Array | None = None) -> Matched:
        """Matches like every kind; waiting rows whose ``_seq`` is in ``over`` need not wait any longer."""
        found = self.find(batch, snapshots)
        due = self.due(snapshots) or (over is not None and len(over) > 0)
        if not found.num_rows and not due:
            return Matched(batch)
        good, missed, _ = divided(batch.read(), found)
        now = pa.array([self._clock.now()] * missed.num_rows, _TIME)
        came = missed.append_column(SINCE, now)
        again = self._again(batch, snapshots, over) if due else None
        if again is None:
            changes = Changes(came)
            matched = Matched(batch.part(good), changes={self._table: changes}, missed=missed.num_rows)
            return replace(
                matched, after=self._noting(snapshots, self.rows + came.num_rows, self._first, came)
            )
        gone = pa.concat_tables([again.free, again.rejected, again.over])
        came = came.cast(gone.schema)
        deleted = pa.array([True] * gone.num_rows + [False] * came.num_rows, pa.bool_())
        rows = pa.concat_tables(
            [good.cast(again.free.drop_columns([SINCE]).schema), again.free.drop_columns([SINCE])]
        )
        return Matched(
            batch.part(rows),
            again.rejected.drop_columns([SINCE]),
            again.why,
            {self._table: Changes(pa.concat_tables([gone, came]), deleted)},
            missed.num_rows,
            self._noting(
                snapshots, again.left.num_rows + came.num_rows, pc.min(again.left[SINCE]).as_py(), came
            ),
        )

    def _again(self, batch: Batch, snapshots: StoreSnapshot, over: pa.Array | None) -> _Again:
        """Returns the rows that wait, retried, without those that need not."""
        rows = snapshots.snapshot(self._table).scan()
        done = pc.is_in(rows[SEQ], over if over is not None else pa.array([], pa.int64()))
        rows, gone = rows.filter(pc.invert(done)), rows.filter(done)
        found = self.find(batch.part(rows.drop_columns([SINCE])), snapshots)
        free, left, why = divided(rows, found)
        late = pc.less_equal(left[SINCE], pa.scalar(self._limit(), _TIME))
        expired = left.filter(late)
        if expired.num_rows and self.plan.fallback == "fail":
            raise self.failed(expired.num_rows)
        left = left.filter(pc.invert(late))
        if self.plan.fallback == "error":
            return _Again(free, expired, why.filter(late), left, gone)
        return _Again(pa.concat_tables([free, expired]), expired.slice(0, 0), why.slice(0, 0), left, gone)

    def _noting(
        self, snapshots: StoreSnapshot, rows: int, first: datetime | None, came: pa.Table
    ) -> Callable[[], None]:
        tried = self._versions(snapshots)
        first = first or pc.min(came[SINCE]).as_py()

        def note() -> None:
            self.rows, self._first, self._tried = rows, first, tried

        return note


@dataclass(frozen=True, slots=True)
class _Again:
    """Divides rows that waited: those that are processed, the error records with the reasons, those that continue to
    wait, and those that a later message has deleted.
    """

    free: pa.Table
    rejected: pa.Table
    why: pa.ChunkedArray
    left: pa.Table
    over: pa.Table


def divided(rows: pa.Table, bad: pa.Table) -> tuple[pa.Table, pa.Table, pa.ChunkedArray]:
    """Returns the rows whose ``_seq`` is not among the ``seq`` of ``bad``, the others, and the ``reason`` of each of
    these."""
    place = pc.index_in(rows[SEQ], bad["seq"])
    is_bad = pc.is_valid(place)
    return rows.filter(pc.invert(is_bad)), rows.filter(is_bad), bad["reason"].take(place.filter(is_bad))


def once(bad: pa.Table) -> pa.Table:
    """Returns ``seq`` and ``reason``, each row of the stream once."""
    return bad.group_by("seq").aggregate([("reason", "min")]).rename_columns(["seq", "reason"])
