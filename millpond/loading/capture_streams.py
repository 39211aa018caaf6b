"""Sends the changelog of a database to a stream, as Debezium envelopes.

The app stores such a stream like any other that programs send to; it contains what the log has, with the place in the
log in the same commit.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from millpond import faults
from millpond.changelog import ORIGIN, envelope
from millpond.changes import Offset, Position
from millpond.connectors.cdc.capture_source import Capturing
from millpond.connectors.cdc.log import ADDED, EMPTIED, ENDED, MOVED, OP
from millpond.connectors.source import SEQ, Source
from millpond.loading.bulk_load import Reached, fingerprint
from millpond.loading.capture_tables import let_go
from millpond.loading.followers import Followers, Mask, OverSources
from millpond.loading.open_sources import Sources
from millpond.sql.catalog import Relation
from millpond.sql.checked import CheckedCapture
from millpond.store.store import Store

READ = 5
"""In addition to the kinds of changes: a row that existed before."""
_OPS = {ADDED: "c", ENDED: "d", MOVED: "d", EMPTIED: "t", READ: "r"}


class CapturedStream(OverSources):
    """Sends the changelog of a database to a stream."""

    def __init__(self, stream: str, source: Source, store: Store, identity: str, mask: Mask):
        self._stream = stream
        self._store = store
        self._mask = mask
        self.name = f"stream:{stream}"
        assert isinstance(source, Capturing)
        self._source = source.claimed(f"{identity}/{self.name}")

    @property
    def sources(self) -> dict[str, Source]:
        return {self._stream: self._source}

    @property
    def reads(self) -> tuple[Relation, ...]:
        """Returns nothing: it uses the columns that it began with."""
        return ()

    @property
    def _at(self) -> Offset | None:
        at = Reached.of(self._store.position(self.name)).at
        return None if at is None else at[self._stream]

    @property
    def settled(self) -> bool:
        at = self._at
        return at is not None and self._source.settled(at)

    def advance(self) -> int:
        at = self._at
        if at is None:
            return self._load(self._source.begin_capture())
        count = 0
        while not self._source.reached(at, end := self._source.latest(at)):
            batches = [b for s in self._source.splits(at, end) for b in self._source.read(s)]
            logged = pa.Table.from_batches(batches) if batches else None
            rows = self._envelopes(logged, logged[OP].to_numpy(), end) if logged is not None else None
            self._send(rows, end, fingerprint(at, end))
            count += 0 if rows is None else rows.num_rows
            at = end
        return count

    def _load(self, end: Offset) -> int:
        """Sends the existing rows, and then the place from which on changes come.

        The snapshot that is read ends with the process, so that an interrupted load cannot continue. What an earlier
        load has sent is removed first: nobody reads the stream before its load has ended.
        """
        count = 0
        self._store.journal.drop_stream(self._stream)
        try:
            faults.reach("tap: begun")
            for split in self._source.splits(None, end):
                for batch in self._source.read(split):
                    rows = pa.Table.from_batches([batch.drop_columns([SEQ])])
                    found = self._envelopes(rows, np.full(rows.num_rows, READ), end)
                    self._store.commit(sent={self._stream: found})
                    faults.reach("tap: part of the rows sent")
                    count += rows.num_rows
        finally:
            self._source.begun()
        self._send(None, end, fingerprint(end))
        return count

    def _send(self, rows: pa.Table | None, end: Offset, checkpoint: str) -> None:
        """Sends rows together with their end in the log."""
        position = Position(self.name, checkpoint, 0, {"at": {self._stream: end}})
        faults.reach("tap: read")
        self._store.commit(position=position, sent={} if rows is None else {self._stream: rows})
        faults.reach("tap: sent")

    def _envelopes(self, rows: pa.Table, ops: np.ndarray, end: Offset) -> pa.Table:
        schema = self._source.schema()
        fields = list(schema.arrow())
        columns = [rows[f.name].combine_chunks() for f in fields]
        gone = np.isin(ops, (ENDED, MOVED))
        there = ~gone & (ops != EMPTIED)
        count = len(ops)
        whence = self._source.origin | {
            "position": _text(end),
            "snapshot": "true" if (ops == READ).all() else "false",
        }
        return pa.table(
            [
                pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(~gone)),
                pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(~there)),
                pa.array([_OPS.get(int(op), "u") for op in ops], pa.string()),
                pa.array(np.full(count, int(time.time() * 1000), np.int64)),
                pa.array([whence] * count, ORIGIN),
            ],
            schema=envelope(schema).arrow(),
        )

    def release(self) -> None:
        let_go(self._mask, f'stream "{self._stream}"', self._source.release)

    def close(self) -> None:
        if not self._store.journal.durable:
            self.release()
        super().close()


class CapturedStreams:
    """Manages the streams that changelogs of databases are sent to. ``identity`` distinguishes this app from others
    there.
    """

    def __init__(self, store: Store, sources: Sources, followers: Followers, identity: str, mask: Mask):
        self._store = store
        self._sources = sources
        self._followers = followers
        self._identity = identity
        self._mask = mask

    def add(self, checked: CheckedCapture) -> None:
        """Sends the changes that a stream captures to it, from now on."""
        self._sources.values.update(checked.source_options)
        name, store = checked.relation.name, self._store
        if not store.journal.durable:
            store.journal.forget(f"stream:{name}")
        captured = CapturedStream(
            name, self._sources.open(checked.captured), store, self._identity, self._mask
        )
        try:
            captured.advance()
        except BaseException:
            if store.position(captured.name) is None:
                captured.release()
            captured.close()
            raise
        self._followers.add(f"stream:{name.lower()}", captured)


def _text(end: Offset) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(end["log"].items()))
