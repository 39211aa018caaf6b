"""Applies the events of a batch to the current rows of a table when the batch is committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Changes, Position
from millpond.engine_rule import EngineRule
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
from millpond.store.store import Store
from millpond.streaming.ahead import AheadStatement, Moved
from millpond.streaming.stages import Stages
from millpond.tables.base import Snapshot

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.spark_fold import FoldedEvents, SparkFold
    from millpond.engine.stage import Stage

log = logging.getLogger("millpond")

Inputs = Callable[[Resolved, StoreSnapshot], dict[str, pa.Table]]
"""Reads the rows of a query's inputs, by view."""

SCANNED = 20_000
"""Rows up to which a table is read completely; of a larger one only the rows that the events name."""
_IN_VAIN = 3
"""Batches that Spark fails to fold, and this process does not, after which Spark is not asked any more."""
TURNS = 256
"""Events of one row that are folded at once if each returns something: the returned rows are stored in a list that
grows with them.
"""


@dataclass(kw_only=True, eq=False, repr=False)
class Folded(AheadStatement):
    """Runs UPDATE, DELETE, MERGE or UPSERT over a stream: changes, returned rows and position are one commit."""

    plan: FoldPlan
    evaluator: Evaluator
    inputs: Inputs
    in_order: ClassVar[bool] = True

    def set_up(self) -> None:
        plan = self.plan
        self._stage = self.stages.stage(plan.batch, plan.rule)
        self._folding = FoldRunner(plan.fold, self.evaluator, self.inputs)
        self._ahead = fold_ahead(plan, plan.rule, self._stage, self._folding, self.stages, self.evaluator)
        self._folded: Ahead | None = None

    @property
    def read_tables(self) -> tuple[str, ...]:
        return tuple(i.relation.name for i in self.plan.fold.tables)

    def evaluate(self, batch: Batch, snapshots: StoreSnapshot) -> pa.Table:
        """Returns the events of the batch. If Spark has folded those of a large batch, there are none left."""
        self._read_at = self.versions(snapshots)
        self._folded = None if self.here else self._ahead.fold(batch, snapshots)
        if self._folded is not None:
            return self.plan.batch.output.arrow().empty_table()
        return self._stage.run(batch, snapshots)

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        folding, target = self._folding, self.plan.target.name
        ahead, self._folded = self._folded, None

        def find(now: StoreSnapshot) -> tuple[dict[str, Changes], pa.Table | None]:
            if ahead is None:
                return folding.find(rows, now)
            if self.versions(now) != self._read_at:
                raise Moved
            return self._ahead.changes(ahead, now, is_outside(self.store, target))

        self.write(find, position, sent=folding.sent, into=(target,))
        if ahead is not None:
            return ahead.events
        if not self._trying:
            self._ahead.note_success(self.plan.name)
        return int(rows.num_rows)


@dataclass(frozen=True, slots=True)
class Ahead:
    """Contains what Spark has folded before the commit, onto rows of a version of the target; None if there was no
    event.
    """

    folded: FoldedEvents | None
    version: int

    @property
    def events(self) -> int:
        return 0 if self.folded is None else self.folded.events


class FoldAhead:
    """Folds the events of large batches on Spark, before they are committed."""

    def __init__(self, target: str, stage: Stage, folding: FoldRunner, on_spark: SparkFold | None):
        self._target = target
        self._stage = stage
        self._folding = folding
        self._on_spark = on_spark
        self._why_here: DataError | None = None
        self._in_vain = 0

    def fold(self, batch: Batch, snapshots: StoreSnapshot) -> Ahead | None:
        """Returns what Spark has folded; None if this process folds the events of the batch."""
        self._why_here = None
        if self._on_spark is None or batch.is_here or not self._stage.is_large(batch):
            return None
        folding, snapshot = self._folding, snapshots.snapshot(self._target)
        version = snapshot.version
        try:
            found = self._on_spark.run(
                self._stage,
                batch,
                snapshots,
                lambda keys: folding.affected(keys, snapshot),
                folding.others(snapshots),
                look_up=folding.looks_up(snapshot),
            )
        except DataError as error:
            self._why_here = error
            return None
        return Ahead(found, version)

    def changes(
        self, ahead: Ahead, now: StoreSnapshot, outside: bool
    ) -> tuple[dict[str, Changes], pa.Table | None]:
        """Returns what was folded as changes of the target, and the rows of RETURNING. Raises Moved if rows that the
        events can affect have changed since; ``outside`` says that their version does not tell.
        """
        folded, snapshot = ahead.folded, now.snapshot(self._target)
        if folded is None:
            return {}, None
        if outside or snapshot.version != ahead.version:
            if not have_same_rows(self._folding.affected(folded.keys, snapshot), folded.rows):
                raise Moved
        return self._folding.changes(folded.found, now)

    def note_success(self, query: str) -> None:
        """Notes that this process has folded what Spark could not: after some batches it does so without trying."""
        if self._why_here is None:
            return
        self._in_vain += 1
        if self._in_vain == _IN_VAIN:
            self._on_spark = None
            log.warning(
                'query "%s": events of large batches are applied by the process, as Spark fails: %s',
                query,
                self._why_here.message,
            )
        self._why_here = None


def fold_ahead(
    plan: FoldPlan,
    rule: EngineRule,
    stage: Stage,
    folding: FoldRunner,
    stages: Stages,
    evaluator: Evaluator,
) -> FoldAhead:
    """Returns what folds the events of a statement that its stage finds. Raises NotSupported if only Spark can fold
    them, and the rule does not allow that.
    """
    stages.check_way(rule, lambda: evaluator.fold_way(plan.fold))
    return FoldAhead(plan.target.name, stage, folding, stages.fold(plan, rule))


def is_outside(store: Store, table: str) -> bool:
    """Returns whether others may change a table: its rows are in a database."""
    return store.backend(table).database is not None


def have_same_rows(some: pa.Table, others: pa.Table) -> bool:
    """Returns whether two tables have the same rows. Of few the order does not matter, and NaN equals NaN."""
    if some.equals(others):
        return True
    if some.num_rows != others.num_rows or some.num_rows > SCANNED:
        return False
    return sorted(map(repr, some.to_pylist())) == sorted(map(repr, others.to_pylist()))


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
