"""Reads the changelog of a PostgreSQL table: logical replication by ``pgoutput``.

An offset is a position in the log after a commit, of one slot of one server: ``{"slot", "lsn", "table", "system"}``,
with the state of the table: its ``key`` and its ``partitions``, and whether the slot is ``ours``. The slot may remove
only what is before the start of the last call of ``latest``, so that it is never ahead of what is stored.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

import psycopg
import pyarrow as pa
from psycopg import sql

from millpond.changes import Offset
from millpond.connectors.cdc.log import Log, LogPosition
from millpond.connectors.postgresql.catalog import Table, by_oid, check, check_server, key_of, partitions
from millpond.connectors.postgresql.login import Connected, Login, explained, lsn_of, lsn_text
from millpond.connectors.postgresql.pgoutput import Relation, decode
from millpond.connectors.postgresql.replication import Stream, Transaction, pieces
from millpond.connectors.postgresql.slot import Slot, system_of
from millpond.connectors.postgresql.types import Catalog, PgType, holds
from millpond.errors import CaptureLost, CaptureRefused, ConnectionLost, Error, InvalidOption, SourceChanged
from millpond.retry import Patience
from millpond.types import Column, Schema, type_name

T = TypeVar("T")
log = logging.getLogger("millpond")
_BATCH = 65_536
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
_LOOK = 5.0
"""Seconds between two checks of the state of the slot and the table."""
_SHORT = Patience(5.0, 0.05, "fixed")
"""How long to wait for a slot whose last reader has just left."""


class PostgresLog(Log):
    """Reads the log. ``warn_at``: the bytes of log retained for the slot above which it warns."""

    idle: ClassVar[int] = 16 << 20
    """The bytes of log without a change of the table after which a later offset is returned all the same: the server
    need not retain them.
    """

    def __init__(self, login: Login, slot: Slot, schema: Schema, *, warn_at: int):
        self.schema = schema
        self._login = login
        self._slot = slot
        self._warn_at = warn_at
        self._desk: Connected | None = None
        self._maker: Connected | None = None
        self._stream: Stream | None = None
        self._types: dict[Relation, list[PgType]] = {}
        self._kept = 0
        """The position up to which everything is stored elsewhere."""
        self._used = False
        """Whether the slot is known to be for this table."""
        self._looked = 0.0
        self._table: Table | None = None
        self._turn = threading.RLock()
        """Held while the stream is used: others may request its progress while one follows it."""
        self._closed = False

    # connections

    @property
    def _asking(self) -> Connected:
        """Returns the connection for queries."""
        if self._desk is None or self._desk.closed:
            self._desk = self._login.open()
        return self._desk

    def _failed(self, error: Exception) -> Error:
        """Translates a failure of the stream of changes."""
        if isinstance(error, psycopg.errors.ObjectInUse):
            return self._slot.in_use(error)
        gone = (
            psycopg.errors.UndefinedObject,
            psycopg.errors.ObjectNotInPrerequisiteState,
            psycopg.errors.UndefinedFile,
        )
        if isinstance(error, gone):
            said = str(error).strip().partition("\n")[0]
            return CaptureLost(
                f'{self._login.name} cannot continue with the slot "{self._slot.name}": {said}',
                hint="drop the table and create it again; nothing else may use its slot and publication",
            )
        return explained(error, self._login.name, self._login.user, lost=True)

    def _open_stream(self, start: Offset) -> Stream:
        position, desk = lsn_of(start["lsn"]), self._asking
        self._look(start, desk)
        connection = self._replicating(desk)
        try:
            system, end = system_of(connection)
            if system != start["system"] or end < position:
                raise CaptureLost(
                    f"{self._login.name} is another server than the one that was read, or an older state of it",
                    hint="drop the table and create it again",
                )
            command = sql.SQL(
                "START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names {})"
            ).format(
                sql.Identifier(self._slot.name),
                sql.SQL(lsn_text(position)),
                sql.Literal(f'"{self._slot.name}"'),
            )
            result = connection.pgconn.exec_(command.as_bytes(connection))
            if result.status != psycopg.pq.ExecStatus.COPY_BOTH:
                raise psycopg.errors.error_from_result(result)
            return Stream(connection, start["table"], position, self._failed)
        except psycopg.Error as error:
            connection.close()
            raise self._failed(error) from None
        except BaseException:
            connection.close()
            raise

    def _replicating(self, desk: Connected) -> Connected:
        """Opens a connection for replication. Raises CaptureRefused if that is no longer allowed."""
        try:
            return self._login.open(replication=True)
        except ConnectionLost:  # before the login the server's messages are only text
            check_server(self._login, desk)
            raise

    def _streaming(self, start: Offset) -> Stream:
        """Returns the stream, which has everything after a position or will have it."""
        if self._closed:
            raise ConnectionLost(f"the log of {self._login.name} is not followed any more")
        position = lsn_of(start["lsn"])
        stream = self._stream
        if stream is not None and (stream.ended is not None or stream.at > position):
            self._end_stream()
            if stream.ended is not None and stream.ended.retryable:
                raise stream.ended
        if self._stream is None:
            self._stream, self._used = self._patient(lambda: self._open_stream(start)), True
        return self._stream

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _patient(self, work: Callable[[], T]) -> T:
        """Waits for the slot: a reader that has left may still hold it, until the server notices. A new reader ends it;
        one that has read before may itself be the one that should have left.
        """
        for number in range(int(_SHORT.timeout / _SHORT.interval)):
            try:
                return work()
            except ConnectionLost as error:
                in_use = "is in use" in error.message
                if not in_use and "max_wal_senders" not in error.message:
                    raise
                if in_use and self._slot.own and not self._used:
                    self._slot.free(self._asking)
                time.sleep(_SHORT.pause(number))
        return work()

    # beginning

    def check(self) -> None:
        desk = self._asking
        check(self._login, desk, self._slot.table(desk), self.schema)

    def begin(self) -> tuple[Offset, str | None]:
        return self._made(snapshot=True)

    def _made(self, *, snapshot: bool) -> tuple[Offset, str | None]:
        self._end_stream()
        self.begun()
        self.check()
        self._kept = 0
        desk = self._asking
        before = self._described(desk)
        made = self._patient(lambda: self._slot.make(desk, snapshot=snapshot))
        self._maker, self._used = made.connection, True
        if not snapshot:
            self.begun()
        return self._offset(made.place, made.system, before), made.snapshot

    def _described(self, desk: Connected) -> dict[str, Any]:
        """Returns what an offset contains about the table."""
        table = self._slot.table(desk)
        parts = partitions(self._login, desk, table, None)
        more = {"partitions": parts} if parts is not None else {}
        return {"table": table.oid, "key": list(self.schema.key), **more}

    def _offset(self, position: int, system: str, described: dict[str, Any]) -> Offset:
        ours = {"ours": self._slot.made}
        return {"slot": self._slot.name, "lsn": lsn_text(position), "system": system, **ours, **described}

    def begun(self) -> None:
        maker, self._maker = self._maker, None
        if maker is not None:
            maker.close()

    def start(self, where: str) -> Offset:
        wanted = where.strip().lower()
        if wanted not in ("earliest", "latest") and not _LSN.fullmatch(where.strip()):
            raise InvalidOption(
                f'option "cdc.start" cannot be "{where}"',
                hint="earliest, latest, or a position in the log: 16/B374D848",
            )
        state = self._slot.state(self._asking)
        if wanted == "latest" or (state is None and wanted == "earliest"):
            return self._made(snapshot=False)[0]
        self.check()
        self._kept = 0
        if state is None or state.confirmed is None:
            raise CaptureRefused(
                f'{self._login.name} has no slot "{self._slot.name}": it has kept no log to begin at {where} in',
                hint="a slot must be there before the changes are: name it by 'slot.name', or begin at 'latest'",
            )
        self._slot.is_ours(self._asking)
        self._slot.publish(self._asking)
        self._used = True
        position = state.confirmed if wanted == "earliest" else lsn_of(where.strip())
        if position < state.confirmed:
            raise CaptureLost(
                f'the slot "{self._slot.name}" has the log from {lsn_text(state.confirmed)} on, not from {where}',
                hint="'cdc.start' = 'earliest' begins where it does",
            )
        connection = self._login.open(replication=True)
        try:
            return self._offset(position, system_of(connection)[0], self._described(self._asking))
        finally:
            connection.close()

    # changes

    def horizon(self, start: Offset, rows: int) -> LogPosition:
        position = lsn_of(start["lsn"])
        with self._turn:
            if position < self._kept:  # called by one who does not know the current offset yet
                return (self._kept,)
            self._kept = position
            self._slot.made = self._slot.made or start.get("ours", False)
            stream, desk = self._streaming(start), self._asking
            stream.forget(position)
            if time.monotonic() - self._looked > _LOOK:
                self._look(start, desk)
            ((now,),) = self._login.ask(desk, "SELECT pg_current_wal_flush_lsn()::text")
            stream.catch_up(lsn_of(now), rows, self._push)
            return (stream.horizon(rows),)

    def until(self, start: Offset, position: LogPosition) -> Offset:
        (limit,), first = position, lsn_of(start["lsn"])
        with self._turn:
            if first < self._kept:
                return {**start, "lsn": lsn_text(self._kept)}
            stream = self._streaming(start)
            stream.catch_up(limit, 1 << 62, self._push)
            if stream.received < limit:
                raise ConnectionLost(
                    f"the log of {self._login.name} was opened again, and has not come so far yet"
                )
            end = stream.last_until(limit)
        if end is None and limit - first >= self.idle:
            end = limit
        if end is None:
            return start
        assert self._table is not None
        parts = partitions(self._login, self._asking, self._table, start.get("partitions"))
        more = {"partitions": parts} if parts is not None else {}
        return {**start, "lsn": lsn_text(end), **more}

    def fresh(self, start: Offset, end: Offset) -> Schema:
        found: dict[str, Column] = {}
        relations = (s.relation for t in self._transactions(start, end) for s in t.pieces)
        for relation in dict.fromkeys(relations):
            self._check_key(relation, start.get("key", self.schema.key))
            for part, kind in zip(relation.parts, self._types_of(relation), strict=True):
                known = self.schema.find(part.name)
                if known is None:
                    found[part.name] = Column(part.name, kind.arrow)
                elif known.type is not None and not holds(known.type, kind.arrow):
                    raise SourceChanged(
                        f'the column "{part.name}" of {relation.namespace}.{relation.name} is'
                        f" {type_name(kind.arrow)} now, and was {type_name(known.type)}",
                        hint="drop the table and create it again",
                    )
        return Schema(tuple(found.values()))

    def _check_key(self, relation: Relation, key: Sequence[str]) -> None:
        """Raises SourceChanged if rows are no longer identified by the same key."""
        logged, known = {p.name.lower() for p in relation.parts if p.key}, {k.lower() for k in key}
        if not self.schema.key or logged == known:
            return
        now = key_of(self._login, self._asking, relation.oid)
        if {n.lower() for n in now} != known:
            raise SourceChanged(
                f"the key of {relation.namespace}.{relation.name} is ({', '.join(now) or 'none'}) now, and was"
                f" ({', '.join(key)})",
                hint="drop the table and make it again",
            )

    def read(self, start: Offset, end: Offset) -> Iterator[pa.RecordBatch]:
        for piece in pieces(self._transactions(start, end), _BATCH):
            yield decode(piece, self.schema, self._types_of)

    def _transactions(self, start: Offset, end: Offset) -> list[Transaction]:
        first, last = lsn_of(start["lsn"]), lsn_of(end["lsn"])
        if last <= first:
            return []
        with self._turn:
            stream = self._streaming(start)
            stream.catch_up(last, 1 << 62, self._push)
            return stream.between(first, last)

    def _push(self) -> None:
        """Commits a transaction of our own, which flushes all that was logged before it to disk."""
        self._login.ask(self._asking, "SELECT pg_current_xact_id()")

    def _types_of(self, relation: Relation) -> list[PgType]:
        if relation not in self._types:
            catalog = Catalog(lambda query, values: self._login.ask(self._asking, query, values))
            self._types[relation] = catalog.types((p.type, p.modifier) for p in relation.parts)
        return self._types[relation]

    def news(self, stop: threading.Event) -> Iterator[None]:
        seen, checked = -1, time.monotonic()
        while not stop.is_set():
            stream = self._stream
            if stream is None or stream.ended is not None:
                stop.wait(0.1)
                yield
                continue
            count = stream.wait(seen, 0.1)
            waits = count != seen or stream.has_some() or stream.received - stream.at >= self.idle
            if waits or time.monotonic() - checked > _LOOK:
                seen, checked = count, time.monotonic()
                yield

    # state

    def _look(self, start: Offset, desk: Connected) -> None:
        """Raises CaptureLost if slot or table are gone; warns of what the server retains."""
        state = self._slot.standing(desk)
        if state.confirmed is not None and state.confirmed > lsn_of(start["lsn"]):
            raise CaptureLost(
                f'the slot "{self._slot.name}" of {self._login.name} was read up to {lsn_text(state.confirmed)} by'
                f" another reader: what lies after {start['lsn']} is gone",
                hint="drop the table and create it again; each reader needs a 'slot.name' of its own",
            )
        table = by_oid(self._login, desk, start["table"])
        if table is None:
            raise CaptureLost(
                f"the table of the slot {self._slot.name} is not in {self._login.name} any more",
                hint="if there is a new table of that name, drop the table here and create it again",
            )
        if self._table is not None and table.quoted != self._table.quoted:
            log.warning("%s is %s now: its changes are followed", self._table.quoted, table.quoted)
        self._table = table
        partitions(self._login, desk, table, start.get("partitions"))
        if self._slot.published(desk, table) is False:
            raise CaptureLost(
                f'the publication "{self._slot.name}" does not give all changes of {table.quoted} any more',
                hint="drop the table and create it again; nothing else may use its slot and publication",
            )
        self._looked = time.monotonic()
        self._slot.warn(state, self._warn_at)

    def lag(self) -> int | None:
        state = self._slot.state(self._asking)
        return state.lag if state is not None else None

    def drop(self) -> None:
        self._end()
        desk = self._asking
        self._patient(lambda: self._slot.remove(desk))

    def _end(self) -> None:
        """Ends the stream, also one that a thread is opening, and lets no other begin."""
        self._closed = True
        self._end_stream()  # a thread that waits for it goes on
        with self._turn:
            self._end_stream()
        self.begun()

    def close(self) -> None:
        self._end()
        desk, self._desk = self._desk, None
        if desk is not None:
            with suppress(Exception):
                desk.close()
