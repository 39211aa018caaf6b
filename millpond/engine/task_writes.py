"""Lets tasks of executors write the results of a batch, for sinks that then make all of it visible at once.

Each row is in one task, and what counts is what the successful run of each task has written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millpond.connectors.sink import TaskWriter
from millpond.connectors.source import SEQ
from millpond.engine.collect import collect
from millpond.engine.failures import explain
from millpond.types import Schema, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TASK_ROWS = 100_000
"""Rows that are worth a file of their own."""


class Task:
    """Writes the results of one task. Picklable."""

    def __init__(self, writer: TaskWriter, columns: Schema):
        self._writer = writer
        self._columns = columns.arrow()

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        writer = self._writer.of_task(0 if task is None else task.partitionId())
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            if sum(b.nbytes for b in waiting) >= writer.most:
                yield from self._written(waiting, writer)
                waiting = []
        yield from self._written(waiting, writer)

    def _written(self, batches: list[pa.RecordBatch], writer: TaskWriter) -> Iterator[pa.RecordBatch]:
        if not any(batch.num_rows for batch in batches):
            return
        rows = pa.Table.from_batches(batches)
        if SEQ in rows.column_names:
            seq = rows[SEQ].to_numpy()  # NULL is NaN, which is last
            rows = rows.drop_columns([SEQ]).take(pa.array(np.argsort(seq, kind="stable")))
        named = rows.rename_columns(self._columns.names).cast(self._columns)
        yield from writer.write(named).combine_chunks().to_batches()


def write_in_tasks(
    results: DataFrame, writer: TaskWriter, columns: Schema, rows: float, *, steady: bool
) -> pa.Table:
    """Writes the results of a batch of about so many rows; returns what the tasks have reported. If they are not
    ``steady``, a row may have other values when a task runs again, and stays where it is.
    """
    cores = results.sparkSession.sparkContext.defaultParallelism
    tasks = max(1, min(math.ceil(rows / _TASK_ROWS), cores))
    by = [quote(results.columns[columns.names.index(name)]) for name in writer.by] if steady else []
    divided = results.repartition(tasks, *by) if by else results.coalesce(tasks)
    try:
        return collect(divided.mapInArrow(Task(writer, columns).run, writer.schema.ddl()))
    except Exception as error:
        raise explain(error) from error
