"""Applies the events of a batch to the current rows of a table when the batch is committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Changes, Position
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

Inputs = Callable[[Resolved, StoreSnapshot], dict[str, pa.Table]]
"""Reads the rows of a query's inputs, by view."""

SCANNED = 20_000
"""Rows up to which a table is read completely; of a larger one only the rows that the events name."""
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

    def evaluate(self, batch: Batch, snapshots: StoreSnapshot) -> pa.Table:
        return self._stage.run(batch, snapshots)

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        found, into = self._folding, (self.plan.target.name,)
        self.write(lambda now: found.find(rows, now), position, sent=found.sent, into=into)
        return int(rows.num_rows)


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
        target = self._fold.target
        snapshot = snapshots.snapshot(target.name)
        events = events.append_column(SEQ, pa.array(range(events.num_rows), pa.int64()))
        rows = self._rows(events, snapshot)
        if isinstance(self._fold, RowFold):
            found = self._of_rows(self._fold, events, rows, snapshots)
        else:
            found = self._steps({EVENTS: events, ROWS: self._named(rows)})
        changes, _ = combine(target, self._pieces(found), snapshot, new_once=False)
        return ({target.name: changes} if len(changes) else {}), self._returned(found)

    def sent(self, returned: pa.Table | None) -> Mapping[str, pa.Table]:
        """Returns the rows for the stream of RETURNING … INTO."""
        returning = self._fold.returning
        if returning is None or returned is None or not returned.num_rows:
            return {}
        return {returning.into.name: returned}

    def _rows(self, events: pa.Table, snapshot: Snapshot) -> pa.Table:
        """Returns the rows that the events can affect, with their numbers if the table has no key."""
        numbered = not self._fold.target.schema.key
        lookup = self._fold.lookup
        if not lookup or len(snapshot) <= SCANNED:
            return snapshot.scan(rows=True) if numbered else snapshot.scan()
        keys = events.select([theirs for _, theirs in lookup])
        keys = keys.rename_columns([f"k{i}" for i in range(keys.num_columns)])
        keys = keys.group_by(keys.column_names).aggregate([])
        return snapshot.get([mine for mine, _ in lookup], keys, rows=numbered)

    def _named(self, rows: pa.Table) -> pa.Table:
        """Returns the rows under the names that they have in a fold."""
        target = self._fold.target
        columns = {ST: pa.array([SAME] * rows.num_rows, pa.int8())}
        columns |= {f"i{n}": rows[c.name] for n, c in enumerate(identity_columns(target))}
        columns |= {f"r{n}": rows[c.name] for n, c in enumerate(target.schema)}
        return pa.table(columns)

    def _of_rows(self, fold: RowFold, events: pa.Table, rows: pa.Table, snapshots: StoreSnapshot) -> pa.Table:
        others = Resolved(fold.pairs.expression, fold.pairs.schema, fold.tables)
        inputs = {EVENTS: events, **self._inputs(others, snapshots)}
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
        each = found[OUT].combine_chunks().flatten()
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
