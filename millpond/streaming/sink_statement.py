"""Runs statements whose target is a sink: INSERT INTO a URI.

Rows are written before the position is committed here, so that a kill loses none. An exact sink stores the position
itself: if it is ahead of ours, a kill came between the two, and ours is set to it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond import faults, steps
from millpond.changes import Changes, Position
from millpond.connectors.sink import DividedSink, NativeSink, Sink, TaskWriter, find_sink, settled
from millpond.connectors.source import DELETED
from millpond.engine.states import Overtaken
from millpond.errors import NotSupported
from millpond.journal.catalog import Entry
from millpond.journal.journal import Journal
from millpond.plan.plans import GroupsPlan, RowsPlan
from millpond.store.snapshot import StoreSnapshot
from millpond.store.undo import safely
from millpond.streaming.aggregate import Merged
from millpond.streaming.aggregate_statement import Groups
from millpond.streaming.delivery_errors import DeliveryErrors, position_of_errors
from millpond.streaming.highest import high_of
from millpond.streaming.message_keys import key_texts
from millpond.streaming.row_statement import RowStatement
from millpond.streaming.stages import Spark
from millpond.streaming.statement import NO_MORE, RunningStatement
from millpond.types import Column, Schema

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.delivery import Encoded

IDENTITY = "identity"
"""The kind of the journal's entry that identifies a state directory."""
_KEY = "_key"


def _step(sink: Sink) -> str:
    return f"write to {sink.uri.partition(':')[0]}"


def deliver(spark: Spark, sink: Sink, rows: pa.Table, position: Position | None = None) -> None:
    """Writes rows, and returns when they are safe."""
    with steps.step(_step(sink)) as noted:
        noted.tell_of(rows)
        if not isinstance(sink, NativeSink) or not sink.by_spark:
            sink.write(rows, position)
            return
        from millpond.engine.delivery import deliver as by_spark

        sink.check(rows)
        by_spark(spark(sink.format), sink, rows)


@dataclass(kw_only=True, eq=False, repr=False)
class SinkStatement(RunningStatement):
    """Runs a statement whose target is a sink."""

    spark: Spark

    def __post_init__(self) -> None:
        super().__post_init__()
        self._fresh = False
        """Whether a position that the sink has is that of a dropped query of the same name."""

    def forget_earlier(self) -> None:
        super().forget_earlier()
        self._fresh = True

    def set_up(self) -> None:
        super().set_up()
        target = self.plan.target
        before: Sink | None = getattr(self, "_sink", None)
        if before is not None:
            before.close()  # it has other columns now
        durable = self.store.journal.durable
        options = settled(target.options, durable=durable)
        self._sink: Sink = find_sink(target.name)(target.name, options, self._written)
        if self._sink.exact and not durable:
            raise NotSupported(
                "exactly-once delivery needs a state directory: without one nothing is known after a restart",
                hint="millpond run app.sql --state DIR, or App(…, state=…)",
                place=self.plan.place,
            )
        self._open()
        faults.reach("sink opened")

    @property
    def _written(self) -> Schema:
        """Returns the columns of what is written."""
        return self.plan.batch.output

    def _open(self) -> bool:
        """Opens the sink; returns whether our position was set to that of the sink."""
        ours = self.position
        self._sink.known_batch = None if ours is None or self._fresh else ours.batch
        stored = self._sink.open(self._outside_name)
        if self._fresh and stored is not None:
            # A query of that name was dropped when the sink could not be reached, or a kill came before it was.
            self._sink.forget(self._outside_name)
            stored = self._sink.open(self._outside_name)
        self._fresh = False
        if stored is None or (ours is not None and ours.batch >= stored.batch):
            return False
        self.store.write(lambda snapshots: ({}, None), stored, into=())
        return True

    @property
    def sink(self) -> Sink:
        return self._sink

    @property
    def divides(self) -> bool:
        return self._sink.divides

    @property
    def _outside_name(self) -> str:
        """Returns a name of the query that is unique among all apps."""
        return f"{identity(self.store.journal)}-{self.plan.name}"

    def drop(self) -> None:
        super().drop()
        sink: Sink | None = getattr(self, "_sink", None)
        if sink is not None:
            sink.close()
            safely(partial(sink.forget, self._outside_name))

    def apply(self, batch: Batch, position: Position | None, more: Mapping[str, Changes] = NO_MORE) -> int:
        if not self._sink.is_open and self._open():
            raise Overtaken  # the sink has the batch whose write failed
        return super().apply(batch, position, more)

    def hand_out(self, rows: pa.Table, position: Position | None) -> None:
        """Writes the rows, or only checks whether they can be written."""
        if self._trying:
            self._sink.check(rows)
        elif rows.num_rows:
            deliver(self.spark, self._sink, rows, position)
            faults.reach("sink: written")

    @property
    def waiting(self) -> int | None:
        sink: Sink | None = getattr(self, "_sink", None)
        ours, theirs = super().waiting, None if sink is None else sink.waiting
        return ours if theirs is None else (ours or 0) + theirs

    def retry(self) -> int:
        self._sink.settle()
        return super().retry()

    def make_visible(self) -> int:
        sink: Sink | None = getattr(self, "_sink", None)
        if sink is not None:
            sink.make_visible()
        return 0

    def replay(self) -> int:
        self._sink.accept_refused()
        return super().replay()

    def close(self) -> None:
        sink: Sink | None = getattr(self, "_sink", None)
        if sink is not None:
            sink.close()


@dataclass(kw_only=True, eq=False, repr=False)
class SinkRows(SinkStatement, RowStatement):
    """Sends the rows of a query to a sink."""

    plan: RowsPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        self._delivery_errors: DeliveryErrors | None = None

    def _open(self) -> bool:
        followed = super()._open()
        if self._sink.exact:
            self._delivery_errors = DeliveryErrors(self.store, self.plan.name, self.plan.errors)
        return followed

    def _run(
        self,
        batch: Batch,
        snapshots: StoreSnapshot,
        position: Position | None,
        more: Callable[[], Mapping[str, Changes]],
    ) -> int:
        sink = self._sink
        if isinstance(sink, DividedSink) and (writer := self._task_writer(sink, batch)) is not None:
            written = self._stage.written(batch, snapshots, writer)
            return self._committed(more(), lambda: self._commit_written(written, sink, position))
        if not isinstance(sink, NativeSink) or not sink.by_spark or not self._stays_on_spark(batch):
            return super()._run(batch, snapshots, position, more)
        with closing(self._stage.encoded(batch, snapshots, sink)) as found:
            return self._committed(more(), lambda: self._commit_encoded(found, sink, position))

    def _stays_on_spark(self, batch: Batch) -> bool:
        """Returns whether executors have the results of the batch. Rows that were looked at here stay here."""
        return not batch.is_here and self._stage.is_for_spark(batch)

    def _task_writer(self, sink: DividedSink, batch: Batch) -> TaskWriter | None:
        """Returns what executors write the batch with; None if its rows come to the driver."""
        if not self._stays_on_spark(batch):
            return None
        from millpond.engine.session import is_local

        return sink.task_writer(local=is_local(self.spark()))

    def _commit_written(self, written: pa.Table, sink: DividedSink, position: Position | None) -> int:
        """Makes visible what executors have written, and commits the position."""
        if self._delivery_errors is not None and self._more and position is not None:
            self._put_aside(self._delivery_errors, position)
        rows = sum(written["rows"].to_pylist())
        if rows:
            with steps.step(_step(sink)) as noted:
                noted.tell(rows, sum(written["bytes"].to_pylist()))
                sink.publish(written, position)
            faults.reach("sink: written")
        self._note(position)
        return int(rows)

    def _commit_encoded(self, found: Encoded, sink: NativeSink, position: Position | None) -> int:
        """Writes the results that are on the executors, and commits the position."""
        if found.rows:
            with steps.step(_step(sink)) as noted:
                noted.tell(found.rows, found.bytes)
                found.save(sink)
            faults.reach("sink: written")
        self._note(position)
        return found.rows

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        aside = self._delivery_errors if self._more and not self._trying else None
        if aside is not None and position is not None:
            # When the sink has its commit the batch is not applied again: error records are committed before.
            self._put_aside(aside, position)
        self.hand_out(rows, position)
        if aside is not None and position is None:
            # Replayed rows leave the error table when the sink has them: after a fault in between they come again.
            self._put_aside(aside, None)
        if not self._trying:
            self._note(position)
        return int(rows.num_rows)

    def _put_aside(self, errors: DeliveryErrors, position: Position | None) -> None:
        more, self._more = self._more, NO_MORE
        errors.put(more, position)
        faults.reach("sink: put aside")

    def _note(self, position: Position | None) -> None:
        """Commits the position after a batch that is written."""
        self.write(lambda snapshots: ({}, None), position)
        if self._delivery_errors is not None:
            self._delivery_errors.noted()
        faults.reach("sink: noted")

    def forget_earlier(self) -> None:
        super().forget_earlier()
        self.store.forget(position_of_errors(self.plan.name))

    def drop(self) -> None:
        super().drop()
        safely(partial(self.store.forget, position_of_errors(self.plan.name)))


@dataclass(kw_only=True, eq=False, repr=False)
class SinkGroups(SinkStatement, Groups):
    """Sends the groups of a live aggregate to a sink as they change: a message for each, with its key, so that the last
    message of a key is the group, and a tombstone removes it.
    """

    plan: GroupsPlan

    @property
    def _written(self) -> Schema:
        aggregation = self.plan.aggregation
        columns = aggregation.final.schema.columns[: len(aggregation.final.schema) - 1]
        added = [Column(DELETED, pa.bool_())]
        if self._named_by:
            added.append(Column(_KEY, pa.string()))
        return Schema((*columns, *added))

    @property
    def _named_by(self) -> list[str]:
        """Returns the columns that become the key of a message; none if the query computes a key itself."""
        aggregation = self.plan.aggregation
        keyed = find_sink(self.plan.target.name).keyed
        if aggregation.once or not keyed or _KEY in aggregation.final.schema:
            return []
        return [name for name in aggregation.keys if name is not None]

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        merged = self._aggregate.merge(rows, self.store.snapshots(), high_of(rows))
        self.hand_out(self._messages(merged), position)
        if not self._trying:
            changes = {name: change for name, change in merged.changes.items() if len(change)}
            self.write(lambda snapshots: (changes, None), position, into=tuple(self._aggregate.tables))
        return int(merged.seen.num_rows)

    def _messages(self, merged: Merged) -> pa.Table:
        parts = [(merged.gone, True), (merged.seen, False), (merged.ended, True)]
        made = [
            rows.append_column(DELETED, pa.array([ended] * rows.num_rows, pa.bool_()))
            for rows, ended in parts
            if rows.num_rows or rows is merged.seen
        ]
        messages = pa.concat_tables(made)
        by = self._named_by
        return messages.append_column(_KEY, key_texts(messages.select(by))) if by else messages


def identity(journal: Journal) -> str:
    """Returns the identity of this state directory."""
    for entry in journal.entries():
        if entry.kind == IDENTITY:
            return str(entry.data["id"])
    fresh = uuid.uuid4().hex
    journal.put_entry(Entry(IDENTITY, IDENTITY, "", {"id": fresh}))
    return fresh
