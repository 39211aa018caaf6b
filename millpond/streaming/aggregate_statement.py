"""Runs a live aggregate: state, target and position change in one commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.changes import Changes, Position
from millpond.connectors.source import SEQ
from millpond.plan.plans import GroupsPlan
from millpond.query.change_kind import with_op
from millpond.query.evaluate import Evaluator
from millpond.store.snapshot import StoreSnapshot
from millpond.streaming.aggregate import LiveAggregate, Merged, target_changes
from millpond.streaming.emitted_rows import Emitted
from millpond.streaming.highest import high_of, with_high
from millpond.streaming.statement import RunningStatement
from millpond.streaming.window import WindowedAggregate

if TYPE_CHECKING:
    from millpond.engine.batch import Batch


def aggregate_of(plan: GroupsPlan, evaluator: Evaluator) -> LiveAggregate:
    """Returns the live aggregate of a plan."""
    kind = LiveAggregate if plan.aggregation.window is None else WindowedAggregate
    return kind(plan.aggregation, evaluator, plan.name)


@dataclass(kw_only=True, eq=False, repr=False)
class Groups(RunningStatement):
    """Stores the state of the groups in separate tables; an aggregate without groups has its row from the beginning."""

    plan: GroupsPlan
    evaluator: Evaluator
    emitted: Emitted

    def __post_init__(self) -> None:
        super().__post_init__()
        self._aggregate = aggregate_of(self.plan, self.evaluator)

    def set_up(self) -> None:
        super().set_up()
        plan = self.plan
        self._stage = self.stages.stage(plan.batch, self.plan.rule)
        self._mark = self.stages.stage(plan.mark, self.plan.rule) if plan.mark is not None else None
        self.stages.check(plan.rule, plan.aggregation.merge, plan.aggregation.final)
        self.keep(self._aggregate.tables)

    def begin(self) -> None:
        plan, snapshots = self.plan, self.store.snapshots()
        if plan.aggregation.keys or plan.target.kind != "table" or not self._aggregate.is_new(snapshots):
            return
        inputs = {t.view: snapshots.snapshot(t.table).scan() for t in plan.batch.tables}
        stream = plan.batch.stream.relation.schema.arrow().append(pa.field(SEQ, pa.int64()))
        inputs[plan.batch.stream.view] = stream.empty_table()
        rows = self.evaluator.answer(plan.aggregation.partial, inputs)
        self.commit(rows.cast(plan.batch.output.arrow()), None)

    @property
    def owned(self) -> tuple[str, ...]:
        return (*super().owned, *self._aggregate.tables)

    @property
    def late(self) -> int | None:
        aggregate = self._aggregate
        return (
            aggregate.mark(self.store.snapshots()).late if isinstance(aggregate, WindowedAggregate) else None
        )

    def _rows_to_emit(self, merged: Merged) -> pa.Table:
        """Returns the current groups, and, if operations are emitted, the removed ones."""
        op = self.plan.target.options.get("op")
        if op is None:
            return merged.seen
        parts = [with_op(rows, op, "delete") for rows in (merged.gone, merged.ended)]
        return pa.concat_tables([*parts, with_op(merged.seen, op, "upsert")])

    def evaluate(self, batch: Batch, snapshots: StoreSnapshot) -> pa.Table:
        if self._mark is not None:
            batch.shared = True
        rows = self._stage.run(batch, snapshots)
        arrow = self.plan.batch.output.arrow()
        rows = rows.rename_columns(arrow.names).cast(arrow)
        return with_high(rows, self._mark, batch, snapshots)

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        target = self.plan.target
        high = high_of(rows)

        def find(snapshots: StoreSnapshot) -> tuple[dict[str, Changes], Merged]:
            merged = self._aggregate.merge(rows, snapshots, high)
            changes = dict(merged.changes)
            if target.kind == "table":
                changes[target.name] = target_changes(
                    merged, snapshots.snapshot(target.name), once=self._aggregate.aggregation.once
                )
            if target.kind == "emit":
                # Emitted before they are committed, so that a kill loses none.
                self.emit(self.emitted, self._rows_to_emit(merged))
            return {name: change for name, change in changes.items() if len(change)}, merged

        def sent(merged: Merged) -> dict[str, pa.Table]:
            return {target.name: merged.seen} if target.kind == "stream" else {}

        into = (*self._aggregate.tables, *((target.name,) if target.kind == "table" else ()))
        return int(self.write(find, position, sent=sent, into=into).seen.num_rows)
