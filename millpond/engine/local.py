"""The batch stage in process: DuckDB answers, without a Spark job.

Spark's own part of a batch (offsets, checkpoint) stays as it is. What a job costs however small it is, planning,
tasks and Python workers, is worth it only where other machines do the work: on a cluster a batch up to SMALL_BATCH
rows is answered here, on one machine every batch is.
"""

from __future__ import annotations

import pyarrow as pa

from millpond.changes import Offset
from millpond.engine.batch import SMALL, Tables, distinct, in_order
from millpond.plan.plans import BatchPlan
from millpond.query.evaluate import Answer
from millpond.sources.base import Source

SMALL_BATCH = 10_000


def read_rows(source: Source, start: Offset | None, end: Offset, limit: int) -> pa.Table | None:
    """The rows between two offsets, with ``_seq``; None when they are more than ``limit``, or it cannot tell."""
    splits = source.splits(start, end)
    sizes = [s.rows for s in splits]
    if None in sizes or sum(s for s in sizes if s is not None) > limit:
        return None
    batches = [batch for split in splits for batch in source.read(split)]
    return pa.Table.from_batches(batches) if batches else None


class LocalStage:
    """Answers the batches of one plan; as BatchStage, but for rows that are already here."""

    def __init__(self, plan: BatchPlan, answer: Answer):
        self._plan = plan
        self._answer = answer

    def run(self, batch: pa.Table, tables: Tables) -> pa.Table:
        inputs = {self._plan.stream.view: batch}
        for table in self._plan.tables:
            snapshot = tables.snapshot(table.table)
            lookup = table.lookup
            if lookup is None or len(snapshot) <= SMALL:
                inputs[table.view] = snapshot.scan()
            elif lookup.of is not None:
                keys = inputs[lookup.of].select(list(lookup.keys))
                inputs[table.view] = snapshot.get(lookup.columns, distinct(keys))
            elif lookup.fields is not None:
                keys = batch.select(list(lookup.fields))
                inputs[table.view] = snapshot.get(lookup.columns, distinct(keys))
            else:
                inputs[table.view] = snapshot.scan()
        return in_order(self._answer(inputs))
