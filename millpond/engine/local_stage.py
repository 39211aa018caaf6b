"""Runs the batch stage in this process: DuckDB evaluates, without a Spark job, whose fixed cost (planning, tasks)
only pays for many rows.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millpond import steps
from millpond.connectors.source import SEQ
from millpond.plan.plans import BatchPlan, TableInput
from millpond.query.evaluate import Answer
from millpond.tables.base import Snapshot

SMALL = 20_000
"""Rows up to which a changed table is read completely instead of looked up."""


class Tables(Protocol):
    """Represents all tables as of one commit."""

    def snapshot(self, table: str) -> Snapshot: ...

    def version(self, table: str) -> int: ...


class LocalStage:
    """Evaluates the batches of one plan; like SparkStage, but for rows in this process."""

    def __init__(self, plan: BatchPlan, answer: Answer):
        self._plan = plan
        self._answer = answer

    def run(self, batch: pa.Table, tables: Tables, *, numbered: bool = False) -> pa.Table:
        """Returns the results, in the order of the stream; with ``_seq`` if ``numbered``."""
        steps.run_by("process")
        if self._plan.keeps and not batch.num_rows:
            return self._plan.output.arrow().empty_table()
        inputs = {self._plan.stream.view: batch}
        for table in self._plan.tables:
            snapshot = tables.snapshot(table.table)
            keys = self._keys(table, snapshot, inputs)
            with steps.step(f"{'read' if keys is None else 'look up in'} table {table.table}") as noted:
                if keys is None or table.lookup is None:
                    inputs[table.view] = snapshot.scan()
                else:
                    inputs[table.view] = snapshot.get(table.lookup.columns, distinct(keys))
                noted.tell_of(inputs[table.view])
        return in_order(self._answer(inputs), numbered=numbered)

    def _keys(self, table: TableInput, snapshot: Snapshot, inputs: dict[str, pa.Table]) -> pa.Table | None:
        """Returns what a table is looked up by; None if it is read completely."""
        lookup = table.lookup
        if lookup is None or (not snapshot.remote and len(snapshot) <= SMALL):
            return None
        if lookup.of is not None:
            return inputs[lookup.of].select(list(lookup.keys))
        if lookup.fields is not None:
            return inputs[self._plan.stream.view].select(list(lookup.fields))
        return None


def distinct(keys: pa.Table) -> pa.Table:
    """Returns each row once. Columns are renamed if two have the same name."""
    keys = keys.rename_columns([f"k{i}" for i in range(keys.num_columns)])
    return keys.group_by(keys.column_names).aggregate([])


def in_order(rows: pa.Table, *, numbered: bool = False) -> pa.Table:
    """Returns the rows sorted by ``_seq``, without it unless ``numbered``; groups have no order. Rows of a table that
    match no row of the stream come last.
    """
    if SEQ not in rows.column_names:
        return rows
    seq = rows[SEQ]
    if seq.null_count:
        seq = pc.fill_null(seq, 2**63 - 1)
    seq = seq.to_numpy()
    if len(seq) > 1 and (seq[1:] < seq[:-1]).any():
        rows = rows.take(pa.array(seq.argsort(kind="stable")))
    return rows if numbered else rows.drop_columns([SEQ])
