"""Runs a statement whose rows executors may write to the store of its target, without a way through the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from millpond.changes import Changes, Position
from millpond.connectors.divided_table import DividedTable, Written
from millpond.store.divided_commits import DividedCommits
from millpond.store.snapshot import StoreSnapshot
from millpond.store.undo import safely
from millpond.streaming.row_statement import RowStatement
from millpond.streaming.stages import Spark
from millpond.streaming.statement import NO_MORE

if TYPE_CHECKING:
    from millpond.engine.batch import Batch

_TRIES = 2
"""How often executors merge a batch: meanwhile others may change the table."""


@dataclass(kw_only=True, eq=False, repr=False)
class DividedRows(RowStatement):
    """Sends the rows of a query to a table."""

    divided: DividedCommits
    spark: Spark

    def forget_earlier(self) -> None:
        super().forget_earlier()
        self.divided.leave(self.plan.target.name, self.plan.name)

    def drop(self) -> None:
        super().drop()
        safely(partial(self.divided.leave, self.plan.target.name, self.plan.name))

    def apply(self, batch: Batch, position: Position | None, more: Mapping[str, Changes] = NO_MORE) -> int:
        self.divided.settle(self.plan.target.name)  # the batch may be there, and its answer was lost
        return super().apply(batch, position, more)

    def _run(
        self,
        batch: Batch,
        snapshots: StoreSnapshot,
        position: Position | None,
        more: Callable[[], Mapping[str, Changes]],
    ) -> int:
        name, divided = self.plan.target.name, self.divided
        by_spark = position is not None and not batch.is_here and self._stage.is_for_spark(batch)
        table = divided.table(name) if by_spark and not self.strict else None
        for _ in range(_TRIES if table is not None else 0):
            assert table is not None and position is not None
            written = self._written(batch, snapshots, table)
            if written is None or more():
                break
            with self.commit_lock.locked():
                count = divided.commit(name, table, written, position)
            if count is not None:
                return count
        return super()._run(batch, snapshots, position, more)

    def _written(self, batch: Batch, snapshots: StoreSnapshot, table: DividedTable) -> Written | None:
        """Returns what executors have written; None if they cannot write to the table."""
        from millpond.engine.session import is_local

        local = is_local(self.spark())
        if (writer := table.task_writer(local=local)) is not None:
            files = self._stage.written(batch, snapshots, writer)
            return Written(files, sum(files["rows"].to_pylist()))
        merging = self.divided.merging(self.plan.target.name, table, local=local)
        return None if merging is None else self._stage.merged(batch, snapshots, merging)
