"""Runs a statement whose rows are evaluated one by one: projected, filtered, joined with tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.changes import Changes, Position
from millpond.plan.plans import RowsPlan
from millpond.query.change_kind import with_op
from millpond.store.snapshot import StoreSnapshot
from millpond.streaming.emitted_rows import Emitted
from millpond.streaming.statement import RunningStatement
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.engine.batch import Batch

TakeIn = Callable[[RowsPlan, Schema], RowsPlan | None]
"""Makes the plan of a statement whose stream has these columns now; None if it does not change."""


@dataclass(kw_only=True, eq=False, repr=False)
class RowStatement(RunningStatement):
    """Runs a query whose rows do not depend on one another: into a table, a stream, or to its caller."""

    plan: RowsPlan
    emitted: Emitted
    take_in: TakeIn

    def set_up(self) -> None:
        super().set_up()
        self._stage = self.stages.stage(self.plan.batch, self.plan.rule)
        self._columns = self.plan.batch.stream.relation.schema.names

    def _fitted(self, batch: Batch) -> Batch:
        """Adds new columns of the stream first, if the statement reads all there are."""
        columns = batch.columns
        if columns is not None and columns.names != self._columns:
            self._columns = columns.names
            plan = self.take_in(self.plan, columns)
            if plan is not None:
                self.plan = plan
                self.set_up()
        return super()._fitted(batch)

    def evaluate(self, batch: Batch, snapshots: StoreSnapshot) -> pa.Table:
        rows = self._stage.run(batch, snapshots)
        arrow = self.plan.batch.output.arrow()
        return rows.rename_columns(arrow.names).cast(arrow)

    @property
    def strict(self) -> bool:
        """Returns whether a row with an existing key is refused."""
        name = self.plan.target.name
        relation = self.catalog.find(name)
        return relation is not None and relation.strict and self.plan.name != f"table:{name}"

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        target, strict = self.plan.target, self.strict

        def find(snapshots: StoreSnapshot) -> tuple[dict[str, Changes], None]:
            if target.kind == "emit":
                # Emitted before they are committed, so that a kill loses none.
                self.emit(self.emitted, with_op(rows, self.plan.target.options.get("op"), "insert"))
            if target.kind != "table":
                return {}, None
            if strict:
                snapshots.snapshot(target.name).refuse_taken(rows, f'table "{target.name}"')
            return {target.name: Changes(rows)}, None

        self.write(
            find,
            position,
            sent=(lambda _: {target.name: rows}) if target.kind == "stream" else None,
            into=(target.name,) if target.kind == "table" else (),
        )
        return int(rows.num_rows)
