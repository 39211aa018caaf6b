"""Holds the changes that the base of a Delta table does not have: of each row the last one, deletes included."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes
from millpond.records.keys import key_list
from millpond.tables.memory import MemoryTable
from millpond.types import Column, Schema, whole

GONE = "\0gone"
"""The column that says which rows are deleted."""


class Layer:
    """Contains changes. One thread at a time applies; snapshots of its table are free."""

    def __init__(self, schema: Schema, *, null_keys: bool):
        columns = schema.columns if schema.key else (*schema.columns, Column(ROW, pa.int64()))
        nullable = (Column(c.name, c.type) for c in columns)
        self.table = MemoryTable(
            Schema((*nullable, Column(GONE, pa.bool_())), schema.key or (ROW,)), null_keys=null_keys
        )
        self.bytes = 0
        self.commit: int | None = None
        """The last commit in it, if commits have numbers."""
        self.since: float | None = None

    def apply(self, changes: Changes) -> None:
        """Applies checked changes, which have row numbers if the table has no key."""
        gone = changes.deleted if changes.deleted is not None else pa.array(np.zeros(len(changes), bool))
        self.table.apply(Changes(changes.rows.append_column(GONE, gone)))
        self.bytes += changes.rows.nbytes
        if self.since is None and len(changes):
            self.since = time.monotonic()

    def __len__(self) -> int:
        return len(self.table)


def living(rows: pa.Table) -> pa.Table:
    """Returns the rows of a layer that are not deleted."""
    return rows.filter(pc.invert(rows[GONE])).drop_columns([GONE])


def among(rows: pa.Table, others: pa.Table, names: Sequence[str]) -> pa.Array:
    """Returns which of the rows have the same values in these columns as one of the others. NULL equals NULL."""
    if not rows.num_rows or not others.num_rows:
        return pa.array(np.zeros(rows.num_rows, bool))
    first = names[0]
    if pa.types.is_nested(rows[first].type):
        candidates = pa.array(np.ones(rows.num_rows, bool))
    else:
        candidates = whole(pc.is_in(plain(rows[first]), value_set=whole(plain(others[first]))))
        if len(names) == 1:
            return candidates
    at = np.flatnonzero(np.asarray(candidates))
    some = rows.select(list(names)).take(pa.array(at))
    known = set(key_list(others.select(list(names)).columns))
    found = np.zeros(rows.num_rows, bool)
    found[at] = [key in known for key in key_list(some.columns)]
    return pa.array(found)


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the values so that equal ones are the same: -0.0 is 0.0."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column
