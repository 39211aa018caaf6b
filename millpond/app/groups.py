"""A live aggregate as a running statement: state, target and position change in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.app.aggregates import LiveAggregate, Merged, target_changes
from millpond.app.running import RunningStatement
from millpond.app.store import Moment
from millpond.changes import Changes, Position
from millpond.sql.catalog import Relation

if TYPE_CHECKING:
    from millpond.engine.batch import Batch


class Groups(RunningStatement):
    """What is kept of the groups is a table beside the target; one without groups has its row from the beginning."""

    def set_up(self) -> None:
        plan, store = self.plan, self.app._store
        assert plan.aggregation is not None
        self._stage = self.stage(plan.batch)
        self._aggregate = LiveAggregate(plan, self.app._evaluator)
        if self.ephemeral:
            store.create_hidden(plan.state, plan.aggregation.state, null_keys=True)
        else:
            extension, options = self.beside()
            relation = Relation(plan.state, "table", plan.aggregation.state)
            store.create(relation, extension, {**options, "null_keys": True})
        is_new = not len(store.moment().snapshot(plan.state))
        if not plan.aggregation.keys and plan.target.kind == "table" and is_new:
            self._begin()

    def _begin(self) -> None:
        plan, moment = self.plan, self.app._store.moment()
        assert plan.aggregation is not None
        inputs = {t.view: moment.snapshot(t.table).scan() for t in plan.batch.tables}
        inputs[plan.batch.stream.view] = plan.batch.stream.relation.schema.arrow().empty_table()
        self.commit(self.app._evaluator.answer(plan.aggregation.partial, inputs), None)

    def drop(self) -> None:
        super().drop()
        self.app._store.drop(self.plan.state)

    def evaluate(self, batch: Batch) -> pa.Table:
        rows = self._stage.run(batch, self.app._store.moment())
        arrow = self.plan.batch.output.arrow()
        return rows.rename_columns(arrow.names).cast(arrow)

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        plan, target = self.plan, self.plan.target

        def find(moment: Moment) -> tuple[dict[str, Changes], Merged]:
            merged = self._aggregate.merge(rows, moment.snapshot(plan.state))
            changes = {plan.state: Changes(merged.state)}
            if target.kind == "table":
                changes[target.name] = target_changes(merged, moment.snapshot(target.name))
            if target.kind == "emit":
                # Shown before they count, so that a kill loses none.
                self.emit(merged.seen)
            return {name: change for name, change in changes.items() if len(change)}, merged

        def sent(merged: Merged) -> dict[str, pa.Table]:
            return {target.name: merged.seen} if target.kind == "stream" else {}

        into = (plan.state, target.name) if target.kind == "table" else (plan.state,)
        return int(self.write(find, position, sent=sent, into=into).seen.num_rows)
