"""Running statements whose rows leave the app: INSERT INTO a URI.

Rows are written before the position counts here, so that a kill loses none. A sink that is exact holds the position
itself: where it is further than ours, a kill came between the two, and ours follows.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.app.running import NO_MORE, Rows
from millpond.changes import Changes, Position
from millpond.errors import NotSupported, TimedOut
from millpond.journal.catalog import Entry
from millpond.sinks.base import NativeSink, Sink, find_sink

if TYPE_CHECKING:
    from millpond.engine.batch import Batch

IDENTITY = "identity"
"""The kind of the journal's entry that tells a state directory from all others."""


class Outgoing(Rows):
    """A query whose rows go to a sink."""

    def set_up(self) -> None:
        super().set_up()
        target = self.plan.target
        self._sink: Sink = find_sink(target.name)(target.name, target.options, self.plan.batch.output)
        if self._sink.exact and not self.app._state.durable:
            raise NotSupported(
                "'delivery' = 'exactly-once' needs a state directory: without one nothing is known after a restart",
                hint="millpond run app.sql --state DIR, or App(…, state=…)",
                place=self.plan.place,
            )
        self._open()

    def _open(self) -> bool:
        """Makes the sink ready; whether our position had to follow it."""
        held = self._sink.open(f"{_identity(self)}-{self.plan.name}")
        ours = self.position
        if held is None or (ours is not None and ours.batch >= held.batch):
            return False
        self.app._store.write(lambda moment: ({}, None), held, into=())
        return True

    def apply(self, batch: Batch, position: Position | None, more: Mapping[str, Changes] = NO_MORE) -> int:
        if not self._sink.is_open and self._open():
            raise TimedOut("the sink has a batch that was thought lost; going on after it")
        return super().apply(batch, position, more)

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        if self._trying:
            self._sink.check(rows)
            return int(rows.num_rows)
        if rows.num_rows:
            self._deliver(rows, position)
        self.write(lambda moment: ({}, None), position)
        return int(rows.num_rows)

    def _deliver(self, rows: pa.Table, position: Position | None) -> None:
        sink = self._sink
        if not isinstance(sink, NativeSink) or not sink.by_spark:
            sink.write(rows, position)
            return
        from millpond.engine.onspark import deliver

        sink.check(rows)
        deliver(self.app._spark(), sink, rows)

    def drop(self) -> None:
        self._sink.close()
        super().drop()


def _identity(statement: Outgoing) -> str:
    """What tells this state directory from all others."""
    journal = statement.app._journal
    for entry in journal.entries():
        if entry.kind == IDENTITY:
            return str(entry.data["id"])
    fresh = uuid.uuid4().hex
    journal.put_entry(Entry(IDENTITY, IDENTITY, "", {"id": fresh}))
    return fresh
