"""Maintains live aggregates over windows of time: late rows, windows that close, sessions that merge.

The watermark is a row of a separate table, changed in the same commit as the groups, so that a batch that is repeated
has the same result: its rows are late against the watermark that the batch before it left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.changes import Changes
from millpond.query.evaluate import Evaluator
from millpond.query.row_matches import matching
from millpond.sql.aggregate import ROWS, Aggregation
from millpond.streaming.aggregate import Grouped, LiveAggregate, Merged, Tables
from millpond.streaming.group_values import Moves
from millpond.types import Column, Schema

_ONLY = Column("k0", pa.int8(), False)
_MARK = Schema((_ONLY, Column("at", pa.int64()), Column("late", pa.int64())), ("k0",))


@dataclass(frozen=True, slots=True)
class Watermark:
    """Contains the watermark in microseconds, and the number of late rows so far."""

    at: int | None
    late: int

    def changes(self) -> Changes:
        return Changes(pa.table([[0], [self.at], [self.late]], schema=_MARK.arrow()))


def describe_watermark(rows: pa.Table) -> dict[str, object]:
    """Describes the watermark and the late rows of a query to a reader."""
    mark = rows.to_pylist()[0] if rows.num_rows else {"at": None, "late": 0}
    at = pa.scalar(mark["at"], pa.int64()).cast(pa.timestamp("us", "UTC")).as_py()
    return {"watermark": at.isoformat() if at is not None else None, "late rows": mark["late"]}


class WindowedAggregate(LiveAggregate):
    def __init__(self, aggregation: Aggregation, evaluator: Evaluator, name: str):
        super().__init__(aggregation, evaluator, name)
        assert aggregation.window is not None
        self._window = aggregation.window.window
        self._start = aggregation.window.key
        self._last = aggregation.window.last
        self._mark_table = f"{name}$watermark"

    @property
    def tables(self) -> dict[str, Schema]:
        return {**super().tables, self._mark_table: _MARK}

    def mark(self, tables: Tables) -> Watermark:
        rows = tables.snapshot(self._mark_table).scan().to_pylist()
        return Watermark(rows[0]["at"], rows[0]["late"]) if rows else Watermark(None, 0)

    def merge(self, batch: pa.Table, tables: Tables, high: int | None = None) -> Merged:
        before, window = self.mark(tables), self._window
        batch, late = self._on_time(self._spread(batch), before.at)
        after = Watermark(self._advanced(before.at, high), before.late + late)
        kept = tables.snapshot(self.state_table)
        moves: Moves | None = None
        if window.kind == "session":
            batch, old, moves = self._joined(batch, tables, before.at)
        else:
            old = kept.get(self.keys, batch.select(self.keys), nulls=True)
        groups = self.merged(batch, old, tables, moves)
        moved = moves.moved if moves is not None else batch.select(self.keys).slice(0, 0)
        rest = self.schema.empty_table()
        if after.at is not None and after.at != before.at:
            touched = pa.concat_tables([groups.state.select(self.keys), moved])
            rest = matching(self.evaluator, kept.scan().cast(self.schema), touched, self.keys, keep=False)
        seen, gone = self._seen(groups, rest, before.at, after.at, tables)
        ended = self._ended(groups.state, rest, after.at)
        changes = self._changes(groups, moved, ended, tables)
        if after != before:
            changes[self._mark_table] = after.changes()
        gone = pa.concat_tables([gone, *self._rows_of(_keys_only(moved, self.schema), tables)])
        removed = ended if window.retention is not None else ended.slice(0, 0)
        return Merged(
            {n: c for n, c in changes.items() if len(c)},
            seen,
            gone,
            pa.concat_tables([seen.slice(0, 0), *self._rows_of(removed, tables)]),
        )

    # times

    def _times(self, rows: pa.Table, name: str) -> np.ndarray:
        return np.asarray(rows[name].cast(pa.int64()).to_numpy())

    def _ends(self, rows: pa.Table) -> np.ndarray:
        return self._times(rows, self._last or self._start) + self._window.size

    def _at(self, rows: pa.Table, starts: np.ndarray) -> pa.Table:
        """Returns the rows with other window starts."""
        index = rows.schema.get_field_index(self._start)
        column = pa.array(starts, pa.int64()).cast(rows.schema.field(index).type)
        return rows.set_column(index, rows.schema.field(index), column)

    def _advanced(self, before: int | None, high: int | None) -> int | None:
        if high is None or self._window.mark is None:
            return before
        reached = high - self._window.delay
        return reached if before is None else max(before, reached)

    # what a batch contains

    def _spread(self, batch: pa.Table) -> pa.Table:
        """Returns each part of hopping windows, once for every window that it belongs to."""
        window = self._window
        if window.kind != "hopping":
            return batch
        panes = self._times(batch, self._start)
        first = (panes - window.offset) // window.slide * window.slide + window.offset
        parts: list[pa.Table] = []
        for back in range(-(-window.size // window.slide)):
            starts = first - back * window.slide
            inside = starts + window.size > panes
            parts.append(self._at(batch, starts).filter(pa.array(inside)))
        return pa.concat_tables(parts)

    def _on_time(self, batch: pa.Table, mark: int | None) -> tuple[pa.Table, int]:
        """Returns the groups whose windows are open, and how many rows the others have."""
        window = self._window
        if mark is None or (window.late == "update" and window.retention is None):
            return batch, 0
        closed = mark if window.late == "drop" else mark - (window.retention or 0)
        late = self._ends(batch) <= closed
        return batch.filter(pa.array(~late)), int(self._times(batch, ROWS)[late].sum())

    def _joined(self, batch: pa.Table, tables: Tables, mark: int | None) -> tuple[pa.Table, pa.Table, Moves]:
        """Returns the sessions of a batch and the stored ones that they touch, under their common start."""
        others = [k for k in self.keys if k != self._start]
        kept = tables.snapshot(self.state_table)
        there = kept.get(others, batch.select(others), nulls=True) if others else kept.scan()
        there = there.cast(self.schema)
        if mark is not None and self._window.late == "drop":
            there = there.filter(pa.array(self._ends(there) > mark))
        assert self._last is not None
        names = [*self.keys, self._last]
        rows = pa.concat_tables([there.select(names), batch.select(names).cast(there.select(names).schema)])
        came = np.arange(len(rows)) >= len(there)
        rows = rows.append_column("i", pa.array(np.arange(len(rows)))).append_column("came", pa.array(came))
        found = self.evaluator.duckdb(self._sessions(others), {"rows": rows})
        starts, touched = self._times(found, "start"), found["touched"].to_numpy()
        mine = pa.array(touched[: len(there)])
        new = self._at(there, starts[: len(there)]).filter(mine)
        old = there.filter(mine)
        return self._at(batch, starts[len(there) :]), new, Moves(old.select(self.keys), new.select(self.keys))

    def _sessions(self, others: list[str]) -> str:
        """Returns for every row the start of its session, and whether a row of the batch is in it."""
        by = f"PARTITION BY {', '.join(others)} " if others else ""
        within = f"PARTITION BY {', '.join([*others, 'g'])}"
        start, last, gap = self._start, self._last, self._window.size
        order = f"ORDER BY {start}, {last}, i"
        return (
            f"WITH a AS (SELECT *, max({last}) OVER ({by}{order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
            f" AS reached FROM rows), b AS (SELECT *, sum(CASE WHEN reached IS NULL OR epoch_us({start}) > "
            f"epoch_us(reached) + {gap} THEN 1 ELSE 0 END) OVER ({by}{order} ROWS UNBOUNDED PRECEDING) AS g FROM a) "
            f"SELECT epoch_us(min({start}) OVER ({within})) AS start, bool_or(came) OVER ({within}) AS touched "
            "FROM b ORDER BY i"
        )

    # what a reader sees, and what expires

    def _seen(
        self, groups: Grouped, rest: pa.Table, before: int | None, after: int | None, tables: Tables
    ) -> tuple[pa.Table, pa.Table]:
        if not self._window.final:
            return self.shown(groups.state, groups.values, tables)
        limit = after if after is not None else np.iinfo(np.int64).min
        closed = groups.state.filter(pa.array(self._ends(groups.state) <= limit))
        ends = self._ends(rest)
        closing = rest.filter(pa.array((ends <= limit) & (ends > before if before is not None else True)))
        values = dict(groups.values)
        for kept in self.kept:
            if not kept.distinct:
                read = kept.read(closing.select(self.keys), tables.snapshot(kept.table))
                values[kept.view] = pa.concat_tables([values[kept.view], read])
        return self.shown(pa.concat_tables([closed, closing]), values, tables)

    def _ended(self, state: pa.Table, rest: pa.Table, mark: int | None) -> pa.Table:
        """Returns the groups that no row can change any more and that are not retained."""
        window = self._window
        if mark is None or (window.late == "update" and window.retention is None):
            return state.slice(0, 0)
        limit = mark - (window.retention or 0)
        every = pa.concat_tables([state, rest])
        return every.filter(pa.array(self._ends(every) <= limit))

    def _changes(
        self, groups: Grouped, moved: pa.Table, ended: pa.Table, tables: Tables
    ) -> dict[str, Changes]:
        left = pa.concat_tables([_keys_only(moved, self.schema), groups.state, ended])
        counts = (len(moved), len(groups.state), len(ended))
        deleted = np.repeat([True, False, True], counts)
        changes = {self.state_table: Changes(left, pa.array(deleted, pa.bool_()))}
        for kept in self.kept:
            change = groups.changes[kept.table]
            if ended.num_rows:
                change = kept.without(change, ended.select(self.keys), tables.snapshot(kept.table))
            changes[kept.table] = change
        return changes

    def _rows_of(self, state: pa.Table, tables: Tables) -> Iterator[pa.Table]:
        """Yields the rows of groups in the target: only their keys matter."""
        if state.num_rows:
            yield from self.shown(state, {}, tables)


def _keys_only(keys: pa.Table, schema: pa.Schema) -> pa.Table:
    there = set(keys.column_names)
    columns = [keys[f.name] if f.name in there else pa.nulls(len(keys), f.type) for f in schema]
    return pa.table(columns, schema=schema)
