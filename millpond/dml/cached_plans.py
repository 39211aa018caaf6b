"""Runs statements that were planned before, with the values of the next text.

They return None where the statement must take the general path; then nothing was done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from millpond import faults
from millpond.dml.mutate import Find, finding, inserting
from millpond.query.concurrency import QuerySlots
from millpond.query.duck import NotAccepted
from millpond.query.inputs import rows_of
from millpond.query.prepared_queries import Prepared
from millpond.query.result import Count, Result
from millpond.records import to_arrow
from millpond.records.values import Unfit
from millpond.sql.catalog import Relation
from millpond.sql.mutation import Mutation
from millpond.sql.resolve import Resolved
from millpond.store.snapshot import StoreSnapshot
from millpond.store.store import Store


@dataclass(frozen=True, slots=True)
class Ground:
    """Provides what plans for one version of the catalog need to run."""

    store: Store
    current: Callable[[], bool]
    """Whether the catalog still has that version."""
    in_block: Callable[[], bool]
    """Whether the thread is inside BEGIN … COMMIT, and sees its own uncommitted rows."""
    loading: Callable[[], bool]
    """Whether a table of the statement is being loaded."""

    def snapshots(self) -> StoreSnapshot:
        """Returns a snapshot of all tables. Raises Unfit if names may have a new meaning."""
        if self.loading():
            raise Unfit("a table is being loaded")
        return self.checked(self.store.snapshots())

    def checked(self, snapshots: StoreSnapshot) -> StoreSnapshot:
        """Returns the snapshot, which was taken after the plan was found; raises as ``snapshots``."""
        if not self.current() or self.loading():
            raise Unfit("the catalog has changed")
        return snapshots

    def write(self, find: Find, target: str) -> int:
        """Commits the changes that ``find`` computes from the newest rows, and returns their number. Raises Unfit, and
        does nothing, if names may have a new meaning.
        """
        try:
            return self.store.write(lambda snapshots: find(self.checked(snapshots)), into=(target,))
        except KeyError:
            if self.current():
                raise
            raise Unfit("the table was dropped") from None

    def answer(
        self,
        prepared: Prepared,
        values: Sequence[Any],
        snapshots: StoreSnapshot,
        slots: QuerySlots | None = None,
    ) -> pa.Table:
        """Returns the rows of a query, as of a snapshot, when it is its turn."""
        where = prepared.narrowed(values)
        try:
            tables = {i.view: rows_of(i, snapshots, where.get(i.view)) for i in prepared.query.inputs}
        except KeyError:
            raise Unfit("a table is being dropped") from None
        try:
            if slots is None:
                return prepared.answer(tables, values)
            return slots.run(tables, lambda: prepared.answer(tables, values))
        except NotAccepted:
            raise Unfit("the query is answered in another way") from None


@dataclass(frozen=True, slots=True)
class PlannedSelect:
    """Runs a query on tables. ``reads`` record in the statistics that a table was read."""

    ground: Ground
    prepared: Prepared
    reads: tuple[Callable[[], None], ...]
    slots: QuerySlots | None

    def __call__(self, *values: Any) -> Result | None:
        ground = self.ground
        if ground.in_block():
            return None
        snapshots = ground.snapshots()
        for note in self.reads:
            note()
        return Result(ground.answer(self.prepared, values, snapshots, self.slots))


@dataclass(frozen=True, slots=True)
class PlannedInsert:
    """Runs an INSERT of rows that are read from no table, into a table or an embedded stream."""

    ground: Ground
    target: Relation
    prepared: Prepared
    is_values: bool

    def __call__(self, *values: Any) -> Result | None:
        ground, target = self.ground, self.target
        if ground.in_block():
            return None
        faults.reach("statement checked")
        rows = ground.answer(self.prepared, values, ground.snapshots())
        if self.is_values:
            rows = to_arrow(target.schema, rows, what=f'{target.kind} "{target.name}"')
        faults.reach("rows found")
        if target.kind == "stream":
            ground.store.commit(sent={target.name: rows})
        else:
            ground.write(inserting(target, rows), target.name)
        return Count(rows.num_rows)


@dataclass(frozen=True, slots=True)
class PlannedMutation:
    """Runs an UPDATE, DELETE, MERGE or UPSERT; ``queries`` are those of its parts."""

    ground: Ground
    mutation: Mutation
    queries: tuple[Prepared, ...]

    def __call__(self, *values: Any) -> Result | None:
        ground = self.ground
        if ground.in_block():
            return None
        faults.reach("statement checked")
        find = finding(self.mutation, partial(self._answer, values))
        return Count(ground.write(find, self.mutation.target.name))

    def _answer(self, values: Sequence[Any], snapshots: StoreSnapshot, query: Resolved) -> pa.Table:
        prepared = next(p for p in self.queries if p.query is query)
        return self.ground.answer(prepared, values, snapshots)
