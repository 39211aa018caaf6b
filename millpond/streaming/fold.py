"""Applies the events of a batch to the current rows of a table when the batch is committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Changes, Position
from millpond.errors import DataError
from millpond.plan.plans import FoldPlan
from millpond.query.evaluate import Evaluator
from millpond.query.row_changes import Piece, combine
from millpond.sql.fold import (
    CHANGED,
    EVENTS,
    GONE,
    NEW,
    PAIRS,
    ROWS,
    SAME,
    SEQ,
    TURN,
    Fold,
    RowFold,
    identity_columns,
)
from millpond.sql.render.folds import OUT, ST, fold_outputs
from millpond.sql.resolve import Resolved
from millpond.store.snapshot import StoreSnapshot
from millpond.streaming.statement import RunningStatement
from millpond.tables.base import Snapshot

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.spark_fold import FoldedEvents, SparkFold

log = logging.getLogger("millpond")

Inputs = Callable[[Resolved, StoreSnapshot], dict[str, pa.Table]]
"""Reads the rows of a query's inputs, by view."""

SCANNED = 20_000
"""Rows up to which a table is read completely; of a larger one only the rows that the events name."""
_TRIES = 3
"""How often Spark folds a batch. If other commits change its rows each time, the events are folded in this process,
while no other commit can happen.
"""
_IN_VAIN = 3
"""Batches that Spark fails to fold, and this process does not, after which Spark is not asked any more."""
TURNS = 256
"""Events of one row that are folded at once if each returns something: the returned rows are stored in a list that
grows with them.
"""


@dataclass(kw_only=True, eq=False, repr=False)
class Folded(RunningStatement):
    """Runs UPDATE, DELETE, MERGE or UPSERT over a stream: changes, returned rows and position are one commit."""

    plan: FoldPlan
    evaluator: Evaluator
    inputs: Inputs
    in_order: ClassVar[bool] = True

    def set_up(self) -> None:
        self._stage = self.stages.stage(self.plan.batch, self.plan.rule)
        self.stages.check_way(self.plan.rule, lambda: self.evaluator.fold_way(self.plan.fold))
        self._folding = FoldRunner(self.plan.fold, self.evaluator, self.inputs)
        self._on_spark = self.stages.fold(self.plan)
        self._folded: Ahead | None = None
        self._why_here: DataError | None = None
        self._in_vain = 0

    def _run(
        self,
        batch: Batch,
        snapshots: StoreSnapshot,
        position: Position | None,
        more: Callable[[], Mapping[str, Changes]],
    ) -> int:
        for _ in range(_TRIES):
            try:
                return super()._run(batch, snapshots, position, more)
            except _Moved:
                snapshots = self.store.snapshots()
        on_spark, self._on_spark = self._on_spark, None
        try:
            return super()._run(batch, snapshots, position, more)
        finally:
            self._on_spark = on_spark

    def evaluate(self, batch: Batch, snapshots: StoreSnapshot) -> pa.Table:
        """Returns the events of the batch. If Spark has folded those of a large batch, there are none left."""
        self._folded = self._why_here = None
        if self._on_spark is not None and not batch.is_here and self._stage.is_large(batch):
            try:
                self._folded = self._fold_ahead(self._on_spark, batch, snapshots)
            except DataError as error:
                self._why_here = error
            else:
                return self.plan.batch.output.arrow().empty_table()
        return self._stage.run(batch, snapshots)

    def _note_success(self) -> None:
        """Notes that this process has folded what Spark could not: after some batches it does so without trying."""
        if self._why_here is None or self._trying:
            return
        self._in_vain += 1
        if self._in_vain == _IN_VAIN:
            self._on_spark = None
            log.warning(
                'query "%s": events of large batches are applied by the process, as Spark fails: %s',
                self.plan.name,
                self._why_here.message,
            )
        self._why_here = None

    def _fold_ahead(self, on_spark: SparkFold, batch: Batch, snapshots: StoreSnapshot) -> Ahead:
        folding, snapshot = self._folding, snapshots.snapshot(self.plan.target.name)

        found = on_spark.run(
            self._stage,
            batch,
            snapshots,
            lambda keys: folding.affected(keys, snapshot),
            folding.others(snapshots),
            look_up=folding.looks_up(snapshot),
        )
        return Ahead(found, snapshot.version, self._versions(snapshots))

    def _versions(self, snapshots: StoreSnapshot) -> dict[str, int]:
        """Returns the versions of the other tables that the fold reads."""
        return {i.relation.name: snapshots.version(i.relation.name) for i in self.plan.fold.tables}

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        folding, target = self._folding, self.plan.target.name
        ahead, self._folded = self._folded, None

        def find(now: StoreSnapshot) -> tuple[dict[str, Changes], pa.Table | None]:
            if ahead is None:
                return folding.find(rows, now)
            if ahead.folded is None:
                return {}, None
            if self._versions(now) != ahead.others:
                raise _Moved
            self._check_same(ahead.folded, ahead.version, now.snapshot(target))
            return folding.changes(ahead.folded.found, now)

        self.write(find, position, sent=folding.sent, into=(target,))
        if ahead is None:
            self._note_success()
            return int(rows.num_rows)
        return 0 if ahead.folded is None else ahead.folded.events

    def _check_same(self, folded: FoldedEvents, version: int, snapshot: Snapshot) -> None:
        """Raises _Moved if rows that the events can affect have changed since they were folded."""
        outside = self.store.backend(self.plan.target.name).database is not None
        if not outside and snapshot.version == version:
            return
        if not have_same_rows(self._folding.affected(folded.keys, snapshot), folded.rows):
            raise _Moved


def have_same_rows(some: pa.Table, others: pa.Table) -> bool:
    """Returns whether two tables have the same rows. Of few the order does not matter, and NaN equals NaN."""
    if some.equals(others):
        return True
    if some.num_rows != others.num_rows or some.num_rows > SCANNED:
        return False
    return sorted(map(repr, some.to_pylist())) == sorted(map(repr, others.to_pylist()))


class _Moved(Exception):
    """Says that rows were changed by another commit while Spark has folded events onto them."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Contains what Spark has folded before the commit, onto rows of a version of the target, with these versions of
    other tables; None if there was no event.
    """

    folded: FoldedEvents | None
    version: int
    others: Mapping[str, int]


class FoldRunner:
    """Applies the batches of one running statement. It contains only the statement."""

    def __init__(self, fold: Fold, evaluator: Evaluator, inputs: Inputs):
        self._fold = fold
        self._answer = evaluator.answer
        self._inputs = inputs
        self._steps = evaluator.fold(fold)

    def find(self, events: pa.Table, snapshots: StoreSnapshot) -> tuple[dict[str, Changes], pa.Table | None]:
        """Returns the changes of the target, and the rows of RETURNING. ``events`` are in stream order."""
        arrow = self._fold.events.schema.arrow()
        events = events.rename_columns(arrow.names).cast(arrow)
        if not events.num_rows:
            return {}, None
        snapshot = snapshots.snapshot(self._fold.target.name)
        keys = self._keys(events) if self.looks_up(snapshot) else None
        events = events.append_column(SEQ, pa.array(range(events.num_rows), pa.int64()))
        rows = self.affected(keys, snapshot)
        if isinstance(self._fold, RowFold):
            found = self._of_rows(self._fold, events, rows, snapshots)
        else:
            found = self._steps({EVENTS: events, ROWS: self._named(rows)})
        return self.changes(found, snapshots)

    def changes(
        self, found: pa.Table, snapshots: StoreSnapshot
    ) -> tuple[dict[str, Changes], pa.Table | None]:
        """Returns what a fold has found as changes of the target, and the rows of RETURNING."""
        target = self._fold.target
        changes, _ = combine(target, self._pieces(found), snapshots.snapshot(target.name), new_once=False)
        return ({target.name: changes} if len(changes) else {}), self._returned(found)

    def sent(self, returned: pa.Table | None) -> Mapping[str, pa.Table]:
        """Returns the rows for the stream of RETURNING … INTO."""
        returning = self._fold.returning
        if returning is None or returned is None or not returned.num_rows:
            return {}
        return {returning.into.name: returned}

    def looks_up(self, snapshot: Snapshot) -> bool:
        """Returns whether the rows that events can affect are looked up; else all are read."""
        return bool(self._fold.lookup) and len(snapshot) > SCANNED

    def _keys(self, events: pa.Table) -> pa.Table:
        keys = events.select([theirs for _, theirs in self._fold.lookup])
        keys = keys.rename_columns([f"k{i}" for i in range(keys.num_columns)])
        return keys.group_by(keys.column_names).aggregate([])

    def affected(self, keys: pa.Table | None, snapshot: Snapshot) -> pa.Table:
        """Returns the rows that events with these keys can affect, with their numbers if the table has no key."""
        numbered = not self._fold.target.schema.key
        if keys is None:
            return snapshot.scan(rows=True) if numbered else snapshot.scan()
        return snapshot.get([mine for mine, _ in self._fold.lookup], keys, rows=numbered)

    def others(self, snapshots: StoreSnapshot) -> dict[str, pa.Table]:
        """Returns the rows of the other tables that the fold reads, by view."""
        fold = self._fold
        if not isinstance(fold, RowFold) or not fold.tables:
            return {}
        return self._inputs(Resolved(fold.pairs.expression, fold.pairs.schema, fold.tables), snapshots)

    def _named(self, rows: pa.Table) -> pa.Table:
        """Returns the rows under the names that they have in a fold."""
        target = self._fold.target
        columns = {ST: pa.array([SAME] * rows.num_rows, pa.int8())}
        columns |= {f"i{n}": rows[c.name] for n, c in enumerate(identity_columns(target))}
        columns |= {f"r{n}": rows[c.name] for n, c in enumerate(target.schema)}
        return pa.table(columns)

    def _of_rows(self, fold: RowFold, events: pa.Table, rows: pa.Table, snapshots: StoreSnapshot) -> pa.Table:
        inputs = {EVENTS: events, **self.others(snapshots)}
        inputs |= {i.view: rows for i in fold.pairs.inputs if i.relation.rows_of is not None}
        pairs = self._answer(fold.pairs, inputs)
        state = self._named(rows)
        if fold.returning is None:
            return self._steps({PAIRS: pairs, ROWS: state})
        known = [f"i{n}" for n in range(len(identity_columns(fold.target)))]
        found: list[pa.Table] = []
        turn = pairs[TURN]
        for first in range(1, (pc.max(turn).as_py() or 1) + 1, TURNS):
            now = pc.and_(pc.greater_equal(turn, first), pc.less(turn, first + TURNS))
            answer = self._steps({PAIRS: pairs.filter(now), ROWS: state})
            goes_on = pairs.filter(pc.equal(turn, first + TURNS))
            found += [_without(answer, goes_on, known), _only_returned(_with(answer, goes_on, known))]
            state = answer.drop_columns([OUT])
        return pa.concat_tables(found)

    def _pieces(self, found: pa.Table) -> list[Piece]:
        width = len(identity_columns(self._fold.target))
        names = fold_outputs(self._fold)[1:]
        rows = found.select([n for n in names if n != OUT])

        def of(status: int) -> pa.Table:
            return rows.filter(pc.equal(found[ST], status))

        plain = list(self._fold.target.schema.names)
        old = [f"__old_{c.name}" for c in identity_columns(self._fold.target)]
        changed, gone, new = of(CHANGED), of(GONE), of(NEW)
        return [
            Piece("end", True, gone.select(list(range(width)))),
            Piece("put", True, changed.rename_columns([*old, *plain])),
            Piece("put", False, new.select(list(range(width, new.num_columns))).rename_columns(plain)),
        ]

    def _returned(self, found: pa.Table) -> pa.Table | None:
        returning = self._fold.returning
        if returning is None:
            return None
        # Of the rows that one event changes, in the order of their keys, whoever has folded.
        order = pc.sort_indices(
            found, [(f"i{n}", "ascending") for n in range(len(identity_columns(self._fold.target)))]
        )
        each = found[OUT].take(order).combine_chunks().flatten()
        arrow = returning.into.schema.arrow()
        rows = pa.Table.from_struct_array(each) if len(each) else None
        if rows is None:
            return arrow.empty_table()
        rows = rows.take(pc.sort_indices(rows[SEQ]))
        return rows.drop_columns([SEQ]).rename_columns(arrow.names).cast(arrow)


def _only_returned(rows: pa.Table) -> pa.Table:
    """Marks rows that are not final yet: only what they returned is used."""
    return rows.set_column(0, ST, pa.array([SAME] * rows.num_rows, pa.int8()))


def _without(rows: pa.Table, others: pa.Table, by: list[str]) -> pa.Table:
    return _matching(rows, others, by, "left anti")


def _with(rows: pa.Table, others: pa.Table, by: list[str]) -> pa.Table:
    return _matching(rows, others, by, "left semi")


def _matching(rows: pa.Table, others: pa.Table, by: list[str], kind: str) -> pa.Table:
    """Returns the rows whose ``by`` is, or is not, among the others."""
    at = rows.select(by).append_column("__at", pa.array(range(rows.num_rows), pa.int64()))
    left = at.join(others.select(by).cast(rows.select(by).schema), by, join_type=kind)["__at"]
    return rows.take(left.take(pc.sort_indices(left)))
