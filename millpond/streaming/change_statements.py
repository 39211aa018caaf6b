"""Runs statements that write the changes of a table: into a stream, or to a sink.

Their stream is a changelog, which the commits of the table fill (``store/changelogs.py``). So they have a position as
every running statement, and go on from it: nothing is lost while they are stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.changes import Position
from millpond.connectors.sink import NativeSink
from millpond.errors import NotSupported
from millpond.plan.plans import ChangesPlan
from millpond.store.snapshot import StoreSnapshot
from millpond.store.undo import safely
from millpond.streaming.changed_rows import ChangedRows, as_now
from millpond.streaming.row_statement import RowStatement
from millpond.streaming.sink_statement import SinkRows
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.engine.batch import Batch


@dataclass(kw_only=True, eq=False, repr=False)
class Changed(RowStatement):
    """Writes the changes of a table into a stream, or to its caller."""

    plan: ChangesPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        self._replaying = False

    @property
    def _changelog(self) -> str:
        return self.plan.batch.stream.relation.name

    def declare(self) -> None:
        """Begins the changelog with the rows of the table, unless it is there since an earlier run."""
        super().declare()
        store, table = self.store, self.plan.table
        if store.journal.durable and not store.keeps(table):
            raise NotSupported(
                f'EMIT CHANGES of table "{table}", which is empty after a restart',
                hint="leave 'durability' = 'none' out",
                place=self.plan.place,
            )
        with store.writing:
            if self._changelog not in store.changelogs:
                store.changelogs.begin(self._changelog, table, store.backend(table))

    def forget_earlier(self) -> None:
        super().forget_earlier()
        self._end_changelog()

    def drop(self) -> None:
        super().drop()
        safely(self._end_changelog)

    def _end_changelog(self) -> None:
        with self.store.writing:
            if self._changelog in self.store.changelogs:
                self.store.changelogs.end(self._changelog)

    @property
    def may_need_spark(self) -> bool:
        return super().may_need_spark and not self._stage.in_process

    def evaluate(self, batch: Batch, snapshots: StoreSnapshot) -> pa.Table:
        def results(rows: pa.Table) -> pa.Table:
            return self._stage.run(self.stages.part(rows), snapshots, numbered=True)

        log = batch.read()
        if self._replaying:
            log = as_now(log, snapshots.snapshot(self.plan.table), self.plan.key)
        return ChangedRows(self.plan).of(log, results)

    def replay(self) -> int:
        """Writes rows as they are now to a target that has one row of each key, since others may have changed them
        after the error; a log gets the change as it was.
        """
        self._replaying = bool(self.plan.key) and self.plan.form.style != "op"
        try:
            return super().replay()
        finally:
            self._replaying = False

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        count = super().commit(rows, position)
        if position is not None and not self._trying:
            delivered = position.offsets[self._changelog]["seq"]
            safely(partial(self.store.changelogs.trim, self._changelog, delivered))
        return count


@dataclass(kw_only=True, eq=False, repr=False)
class SinkChanged(Changed, SinkRows):
    """Sends the changes of a table to a sink."""

    plan: ChangesPlan

    @property
    def _written(self) -> Schema:
        return self.plan.written

    @property
    def may_need_spark(self) -> bool:
        return super().may_need_spark or (isinstance(self._sink, NativeSink) and self._sink.by_spark)

    def _stays_on_spark(self, batch: Batch) -> bool:
        return False
