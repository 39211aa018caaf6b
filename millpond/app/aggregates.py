"""Live aggregates: a batch's groups merged with what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes
from millpond.plan.plans import PipelinePlan
from millpond.query.evaluate import Evaluator
from millpond.sql.aggregate import MERGED, PARTIAL, Aggregation
from millpond.tables.base import Snapshot
from millpond.types import Schema


@dataclass(frozen=True, slots=True)
class Merged:
    """The new state of the groups of a batch, what a reader sees of them, and the groups that HAVING takes away."""

    state: pa.Table
    seen: pa.Table
    gone: pa.Table


class LiveAggregate:
    """Merges the batches of one plan. It holds nothing but its plan: the state is in a table."""

    def __init__(self, plan: PipelinePlan, evaluator: Evaluator):
        assert plan.aggregation is not None
        self._aggregation: Aggregation = plan.aggregation
        self._evaluator = evaluator
        self._merge = evaluator.in_process(plan.aggregation.merge)
        self._final = evaluator.in_process(plan.aggregation.final)

    def merge(self, batch: pa.Table, kept: Snapshot) -> Merged:
        """``batch`` has the columns of the state; ``kept`` is the table of the state."""
        aggregation = self._aggregation
        keys = list(aggregation.state.key)
        schema = aggregation.state.arrow()
        before = kept.get(keys, batch.select(keys), nulls=True).cast(schema)
        both = {PARTIAL: pa.concat_tables([before, batch.cast(schema)])}
        state = self._merge(both) if self._merge else self._evaluator.answer(aggregation.merge, both)
        state = state.cast(schema)
        read = {MERGED: state}
        final = self._final(read) if self._final else self._evaluator.answer(aggregation.final, read)
        holds = pc.fill_null(final.column(final.num_columns - 1), False)
        shown = final.remove_column(final.num_columns - 1)
        shown = shown.cast(Schema(aggregation.final.schema.columns[:-1]).arrow())
        return Merged(state, shown.filter(holds), shown.filter(pc.invert(holds)))


def target_changes(merged: Merged, target: Snapshot) -> Changes:
    """What the table that holds the aggregate must take: its groups, or the one row of one without groups."""
    if target.schema.key:
        if not merged.gone.num_rows:
            return Changes(merged.seen)
        deleted = [True] * merged.gone.num_rows + [False] * merged.seen.num_rows
        return Changes(pa.concat_tables([merged.gone, merged.seen]), pa.array(deleted))
    there = target.scan(rows=True)[ROW].to_pylist()
    number = pa.array([there[0] if there else None], pa.int64())
    if merged.seen.num_rows:
        return Changes(merged.seen.append_column(ROW, number))
    gone = merged.gone.slice(0, len(there[:1]))
    return Changes(
        gone.append_column(ROW, number.slice(0, len(gone))), pa.array([True] * len(gone), pa.bool_())
    )
