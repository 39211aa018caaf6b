"""Maintains live aggregates: merges the groups of a batch with their stored state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes
from millpond.query.evaluate import Evaluator
from millpond.query.row_matches import aligned, matching
from millpond.sql.aggregate import MERGED, PARTIAL, Aggregation, plain_columns
from millpond.sql.resolve import Resolved
from millpond.streaming.group_values import GroupValues, Moves
from millpond.tables.base import Snapshot
from millpond.types import Schema


class Tables(Protocol):
    """Returns a snapshot of each table as of one commit."""

    def snapshot(self, table: str) -> Snapshot: ...


@dataclass(frozen=True, slots=True)
class Merged:
    """Contains what a batch changes in a live aggregate.

    ``changes`` are those of the tables that store it, ``seen`` what a reader sees of the groups, ``gone`` the removed
    groups: HAVING excludes them, or a session was merged into another. ``ended`` are windows that are no longer stored.
    """

    changes: Mapping[str, Changes]
    seen: pa.Table
    gone: pa.Table
    ended: pa.Table


@dataclass(slots=True)
class Grouped:
    """Contains groups after a merge: their state, the values of each by view, and the changes of the tables
    of values.
    """

    state: pa.Table
    values: dict[str, pa.Table] = field(default_factory=dict)
    changes: dict[str, Changes] = field(default_factory=dict)


class LiveAggregate:
    """Merges the batches of one aggregate. It contains only its plan: the state is in tables."""

    def __init__(self, aggregation: Aggregation, evaluator: Evaluator, name: str):
        self.aggregation = aggregation
        self.evaluator = evaluator
        self.keys = list(aggregation.state.key)
        self.schema = aggregation.state.arrow()
        self.state_table = f"{name}$state"
        self.kept = [
            GroupValues(kept, self.keys, evaluator, f"{name}$values{i}")
            for i, kept in enumerate(aggregation.kept)
        ]
        self._plain = plain_columns(aggregation.final)
        self._answers = {
            id(query): evaluator.in_process(query) for query in (aggregation.merge, aggregation.final)
        }

    @property
    def tables(self) -> dict[str, Schema]:
        """Returns the tables that store the aggregate, in addition to its target."""
        return {self.state_table: self.aggregation.state, **{k.table: k.schema for k in self.kept}}

    def is_new(self, tables: Tables) -> bool:
        return not len(tables.snapshot(self.state_table))

    def merge(self, batch: pa.Table, tables: Tables, high: int | None = None) -> Merged:
        """Merges a batch. ``batch`` is the result of the partial query, ``high`` the highest time in it for windows."""
        before = tables.snapshot(self.state_table).get(self.keys, batch.select(self.keys), nulls=True)
        groups = self.merged(batch, before, tables)
        state = groups.state
        if self.aggregation.once:
            state = matching(self.evaluator, state, before, self.keys, keep=False)
        seen, gone = self.shown(state, groups.values, tables)
        return Merged(
            _some({self.state_table: Changes(groups.state), **groups.changes}), seen, gone, seen.slice(0, 0)
        )

    def merged(
        self, batch: pa.Table, before: pa.Table, tables: Tables, moves: Moves | None = None
    ) -> Grouped:
        """Returns the groups of a batch together with ``before``, their stored state; ``moves`` renames groups."""
        rows = [before.cast(self.schema), batch.select(self.schema.names).cast(self.schema)]
        groups = Grouped(pa.table({}))
        for kept in self.kept:
            taken = kept.take(batch, tables.snapshot(kept.table), moves)
            groups.changes[kept.table] = taken.changes
            if taken.fresh is not None:
                rows.append(aligned(taken.fresh, self.schema))
            if taken.values is not None:
                groups.values[kept.view] = taken.values
        groups.state = self._answer(self.aggregation.merge, {PARTIAL: pa.concat_tables(rows)}).cast(
            self.schema
        )
        return groups

    def shown(
        self, state: pa.Table, values: Mapping[str, pa.Table], tables: Tables
    ) -> tuple[pa.Table, pa.Table]:
        """Returns what a reader sees of groups, and those that HAVING excludes."""
        query = self.aggregation.final
        schema = Schema(query.schema.columns[:-1]).arrow()
        if self._plain is not None:
            seen = state.select(self._plain).rename_columns(schema.names).cast(schema)
            return seen, seen.slice(0, 0)
        inputs = {
            k.view: values.get(k.view, k.schema.arrow().empty_table()) for k in self.kept if not k.distinct
        }
        inputs[MERGED] = state
        inputs.update({i.view: tables.snapshot(i.relation.name).scan() for i in query.inputs})
        final = self._answer(query, inputs)
        holds = pc.fill_null(final.column(final.num_columns - 1), False)
        found = final.remove_column(final.num_columns - 1)
        found = found.cast(schema)
        return found.filter(holds), found.filter(pc.invert(holds))

    def _answer(self, query: Resolved, inputs: Mapping[str, pa.Table]) -> pa.Table:
        answer = self._answers[id(query)]
        return answer(inputs) if answer else self.evaluator.answer(query, inputs)


def _some(changes: Mapping[str, Changes]) -> dict[str, Changes]:
    return {name: change for name, change in changes.items() if len(change)}


def target_changes(merged: Merged, target: Snapshot, *, once: bool = False) -> Changes:
    """Returns the changes of the target of the aggregate: its groups, or the one row of one without groups. With
    ``once`` the groups are new rows.
    """
    if target.schema.key or once:
        parts = [(merged.gone, True), (merged.seen, False), (merged.ended, True)]
        parts = [(rows, deleted) for rows, deleted in parts if rows.num_rows]
        if not any(deleted for _, deleted in parts):
            return Changes(merged.seen)
        deleted = [pa.array(np.full(rows.num_rows, d)) for rows, d in parts]
        return Changes(pa.concat_tables([rows for rows, _ in parts]), pa.concat_arrays(deleted))
    there = target.scan(rows=True)[ROW].to_pylist()
    number = pa.array([there[0] if there else None], pa.int64())
    if merged.seen.num_rows:
        return Changes(merged.seen.append_column(ROW, number))
    gone = merged.gone.slice(0, len(there[:1]))
    return Changes(
        gone.append_column(ROW, number.slice(0, len(gone))), pa.array([True] * len(gone), pa.bool_())
    )
