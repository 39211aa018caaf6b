"""Stores the values of the groups of a live aggregate, for functions that cannot be merged from a smaller state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Changes
from millpond.query.evaluate import Evaluator
from millpond.query.row_matches import matching
from millpond.sql.aggregate import COUNT, FRESH, Kept
from millpond.tables.base import Snapshot


@dataclass(frozen=True, slots=True)
class Moves:
    """Contains groups that are merged into others: ``old`` and ``new`` keys, row by row."""

    old: pa.Table
    new: pa.Table

    @property
    def moved(self) -> pa.Table:
        """Returns the old keys that are not the new ones."""
        same = pc.equal(self.old.column(0), self.new.column(0))
        return self.old.filter(pc.invert(same))


@dataclass(frozen=True, slots=True)
class Taken:
    """Contains what the values of a batch change: the changes of their table, and for DISTINCT the results of the new
    ones, else all values of the affected groups.
    """

    changes: Changes
    fresh: pa.Table | None = None
    values: pa.Table | None = None


class GroupValues:
    """Maintains one table of values: (group, value[, sequence number]) → count."""

    def __init__(self, kept: Kept, groups: Sequence[str], evaluator: Evaluator, table: str):
        self.table = table
        self.view = kept.view
        self.schema = kept.schema
        self.distinct = kept.fresh is not None
        self._kept = kept
        self._groups = list(groups)
        self._evaluator = evaluator

    def take(self, batch: pa.Table, there: Snapshot, moves: Moves | None = None) -> Taken:
        """Adds the values of a batch. ``batch`` has rows for the groups that it affects, with their values
        as arrays.
        """
        came = self._tally(self._exploded(batch))
        columns = list(self.schema.key)
        if self._kept.fresh is not None:
            known = there.get(columns, came.select(columns), nulls=True)
            new = matching(self._evaluator, came, known, columns, keep=False)
            return Taken(Changes(new), fresh=self._evaluator.answer(self._kept.fresh, {FRESH: new}))
        groups = batch.select(self._groups) if moves is None else moves.old
        before = there.get(self._groups, groups, nulls=True).cast(self.schema.arrow())
        everything = self._tally(pa.concat_tables([self._renamed(before, moves), came]))
        if moves is None:
            touched = matching(self._evaluator, everything, came, columns, keep=True)
            return Taken(Changes(touched), values=_repeated(everything))
        left = matching(self._evaluator, before, moves.moved, self._groups, keep=True)
        deleted = pa.array([True] * len(left) + [False] * len(everything), pa.bool_())
        return Taken(Changes(pa.concat_tables([left, everything]), deleted), values=_repeated(everything))

    def read(self, groups: pa.Table, there: Snapshot) -> pa.Table:
        """Returns all values of groups, each as often as it occurred."""
        return _repeated(there.get(self._groups, groups, nulls=True).cast(self.schema.arrow()))

    def without(self, changes: Changes, groups: pa.Table, there: Snapshot) -> Changes:
        """Returns the changes, followed by the deletion of all values of these groups."""
        old = there.get(self._groups, groups, nulls=True).cast(self.schema.arrow())
        new = matching(self._evaluator, changes.rows, groups, self._groups, keep=True)
        deleted = (
            changes.deleted if changes.deleted is not None else pa.array([False] * len(changes), pa.bool_())
        )
        ended = pa.array([True] * (len(old) + len(new)), pa.bool_())
        return Changes(pa.concat_tables([changes.rows, old, new]), pa.concat_arrays([deleted, ended]))

    def _renamed(self, rows: pa.Table, moves: Moves | None) -> pa.Table:
        if moves is None or not rows.num_rows:
            return rows
        first, names = self._groups[0], self.schema.names
        same = " AND ".join(f'a."{c}" IS NOT DISTINCT FROM b."{c}"' for c in self._groups)
        columns = ", ".join(f'b.new AS "{c}"' if c == first else f'a."{c}"' for c in names)
        sql = f"SELECT {columns} FROM rows AS a JOIN moves AS b ON {same}"
        table = moves.old.append_column("new", moves.new.column(0))
        return self._evaluator.duckdb(sql, {"rows": rows, "moves": table}).cast(self.schema.arrow())

    def _exploded(self, batch: pa.Table) -> pa.Table:
        lists = batch[self._kept.column].combine_chunks()
        parents, values = pc.list_parent_indices(lists), pc.list_flatten(lists)
        rows = batch.select(self._groups).take(parents)
        for field, column in zip(values.type, values.flatten(), strict=True):
            rows = rows.append_column(field.name, column)
        rows = rows.append_column(COUNT, pa.array(np.ones(len(rows), dtype=np.int64)))
        return rows.cast(self.schema.arrow())

    def _tally(self, rows: pa.Table) -> pa.Table:
        columns = ", ".join(f'"{c}"' for c in self.schema.key)
        sql = f"SELECT {columns}, CAST(sum({COUNT}) AS BIGINT) AS {COUNT} FROM rows GROUP BY ALL"
        return self._evaluator.duckdb(sql, {"rows": rows}).cast(self.schema.arrow())


def _repeated(rows: pa.Table) -> pa.Table:
    """Returns each row as often as it occurred."""
    counts = rows[COUNT].to_numpy()
    if not len(counts) or counts.max() == 1:
        return rows
    return rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
