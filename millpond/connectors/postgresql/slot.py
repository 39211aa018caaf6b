"""Creates what change capture of a table needs in a PostgreSQL database: a publication that names it, and a slot that
retains the log for one reader.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from dataclasses import dataclass

import psycopg
from psycopg import sql

from millpond.connectors.postgresql.catalog import Table, by_name
from millpond.connectors.postgresql.driver import said
from millpond.connectors.postgresql.login import Connected, Login, explained, lsn_of
from millpond.errors import CaptureLost, CaptureRefused, ConnectionLost, Error, InvalidOption, TableMissing

log = logging.getLogger("millpond")
_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_OURS = "made by Millpond"
"""The beginning of the comment of a publication that Millpond created; then comes for whom, and whether it was created
with the slot.
"""
_STATE = (
    "SELECT confirmed_flush_lsn::text, active_pid, wal_status, safe_wal_size,"
    " pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8, plugin, database = current_database()"
    " FROM pg_catalog.pg_replication_slots WHERE slot_name = %s"
)


@dataclass(frozen=True, slots=True)
class Made:
    """Describes a new slot: the connection that created it, which holds the ``snapshot`` at its ``place``
    until it is used for anything else, and the identity of the server.
    """

    connection: Connected
    place: int
    snapshot: str | None
    system: str


@dataclass(frozen=True, slots=True)
class SlotState:
    """Describes the state of a slot: where reading continues, who reads it, what the server retains for it."""

    confirmed: int | None
    reader: int | None
    status: str | None
    left: int | None
    lag: int | None


def slot_name(given: str | None, owner: str) -> str:
    """Returns the name of slot and publication: the specified one, or one for the owner."""
    if given is None:
        return f"millpond_{hashlib.sha256(owner.encode()).hexdigest()[:16]}"
    if not _SLOT.fullmatch(given):
        raise InvalidOption(
            f'option "slot.name" cannot be "{given}"',
            hint="lower-case letters, digits and _, at most 63 characters",
        )
    return given


class Slot:
    """Represents a slot and its publication, by name, for one table."""

    def __init__(self, login: Login, name: str, table: str, *, own: bool, owner: str):
        self.name = name
        self.own = own
        """Whether nobody else can have a slot of this name."""
        self.made = own
        """Whether the slot is known to be created by this owner."""
        self._mark = f"{_OURS} for {slot_name(None, owner)}"
        self._warned = 0.0
        self._login = login
        self._regclass = table
        """The name of the table, quoted, as ``to_regclass`` reads it."""

    def table(self, desk: Connected) -> Table:
        found = by_name(self._login, desk, self._regclass)
        if found is None:
            raise TableMissing(f"{self._login.name} has no table {self._regclass}")
        return found

    # creating and removing

    def make(self, desk: Connected, *, snapshot: bool) -> Made:
        """Creates a new slot, which replaces an existing one, and the publication."""
        if self.state(desk) is not None and not self.is_ours(desk):
            raise CaptureRefused(
                f'{self._login.name} has a slot "{self.name}" already, which was not made for this table',
                hint="take another 'slot.name'; or, if nobody needs it, SELECT pg_drop_replication_slot"
                f"('{self.name}'); or go on where it stands: 'initial.load' = 'none', 'cdc.start' = 'earliest'",
            )
        self.publish(desk)
        self._remove_slot(desk)
        try:
            maker = self._login.open(replication=True)
        except Error as error:
            raise self._refused(error) from None
        command = sql.SQL("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput {}").format(
            sql.Identifier(self.name), sql.SQL("EXPORT_SNAPSHOT" if snapshot else "NOEXPORT_SNAPSHOT")
        )
        try:
            system, _ = system_of(maker)
            result = maker.pgconn.exec_(command.as_bytes(maker))
            if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
                raise psycopg.errors.error_from_result(result)
        except psycopg.Error as error:
            maker.close()
            raise self._refused(error) from None
        place, name = result.get_value(0, 1), result.get_value(0, 2)
        assert place is not None
        self.made = True
        return Made(maker, lsn_of(place.decode()), name.decode() if snapshot and name else None, system)

    def publish(self, desk: Connected) -> None:
        """Creates the publication, if it does not exist."""
        table = self.table(desk)
        there = self.published(desk, table)
        if there:
            return
        wanted = (
            f'CREATE PUBLICATION "{self.name}" FOR TABLE {table.quoted} WITH (publish_via_partition_root)'
        )
        comment = self._comment(desk)
        if there is not None and not (self.own and comment.startswith(_OURS)):
            raise CaptureRefused(
                f'the publication "{self.name}" does not give all changes of {table.quoted}, of all rows and columns',
                hint=f'DROP PUBLICATION "{self.name}"; {wanted}',
            )
        name = sql.Identifier(self.name)
        alone = self.state(desk) is not None and not self.made
        mark = f"{self._mark}; {'the slot of this name is not' if alone else 'goes with its slot'}"
        command = sql.SQL(
            "DROP PUBLICATION IF EXISTS {}; CREATE PUBLICATION {} FOR TABLE {}"
            " WITH (publish_via_partition_root = true); COMMENT ON PUBLICATION {} IS {}"
        ).format(name, name, sql.Identifier(table.schema, table.name), name, sql.Literal(mark))
        try:
            desk.execute(command)
        except psycopg.errors.InsufficientPrivilege as error:
            raise CaptureRefused(
                f"{self._login.name}: {said(error)}",
                hint=f"the owner of the table, with CREATE on the database, must run: {wanted}",
            ) from None
        except psycopg.Error as error:
            raise explained(error, self._login.name, self._login.user, lost=desk.closed) from None

    def published(self, desk: Connected, table: Table) -> bool | None:
        """Returns whether the publication reports partitions as their table, and has all kinds of changes of the table,
        all of its rows and columns; None if it does not exist.
        """
        found = self._login.ask(
            desk,
            "SELECT (p.pubviaroot OR %s) AND p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate AND"
            " (p.puballtables OR EXISTS (SELECT FROM pg_catalog.pg_publication_tables t"
            " WHERE t.pubname = p.pubname AND t.schemaname = %s AND t.tablename = %s))"
            # these columns exist from version 15 on
            " AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = %s"
            " AND (to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL))"
            " FROM pg_catalog.pg_publication p WHERE p.pubname = %s",
            (table.kind != "p", table.schema, table.name, table.oid, self.name),
        )
        return bool(found[0][0]) if found else None

    def _comment(self, desk: Connected) -> str:
        """Returns the comment of the publication about its creator."""
        found = self._login.ask(
            desk,
            "SELECT obj_description(oid, 'pg_publication') FROM pg_catalog.pg_publication WHERE pubname = %s",
            (self.name,),
        )
        return (found[0][0] or "") if found else ""

    def is_ours(self, desk: Connected) -> bool:
        """Returns whether the slot, if it exists, was created for this owner."""
        self.made = self.made or self._comment(desk) == f"{self._mark}; goes with its slot"
        return self.made

    def _refused(self, error: Exception) -> Error:
        if isinstance(error, psycopg.errors.ConfigurationLimitExceeded):
            return CaptureRefused(
                f"{self._login.name} has no free replication slot: {said(error)}",
                hint="drop those that nobody uses (SELECT * FROM pg_replication_slots), or raise max_replication_slots",
            )
        if isinstance(error, ConnectionLost) and "max_wal_senders" in error.message:
            return CaptureRefused(error.message, hint="raise max_wal_senders, then restart the server")
        if isinstance(error, Error):
            return error
        return explained(error, self._login.name, self._login.user, lost=False)

    def _remove_slot(self, desk: Connected) -> None:
        try:
            desk.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots WHERE slot_name = %s",
                (self.name,),
            )
        except psycopg.errors.ObjectInUse as error:
            raise self.in_use(error) from None
        except psycopg.Error as error:
            raise explained(error, self._login.name, self._login.user, lost=desk.closed) from None

    def remove(self, desk: Connected) -> None:
        """Removes the slot and the publication, each if we have created it."""
        if self.is_ours(desk):
            self._remove_slot(desk)
        if self._comment(desk).startswith(_OURS if self.own else self._mark):
            try:
                desk.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(self.name)))
            except psycopg.Error as error:
                raise explained(error, self._login.name, self._login.user, lost=desk.closed) from None

    def free(self, desk: Connected) -> None:
        """Ends the reader of a slot that nobody else can have: it is one of ours that has not ended properly."""
        self._login.ask(
            desk,
            "SELECT pg_terminate_backend(active_pid) FROM pg_catalog.pg_replication_slots"
            " WHERE slot_name = %s AND active_pid IS NOT NULL",
            (self.name,),
        )

    def in_use(self, error: psycopg.Error) -> Error:
        return ConnectionLost(
            f'the slot "{self.name}" of {self._login.name} is in use: {said(error)}',
            hint="another reader, or one that the server has not found to be gone: each needs a 'slot.name' of its own",
        )

    # state

    def state(self, desk: Connected) -> SlotState | None:
        found = self._login.ask(desk, _STATE, (self.name,))
        if not found:
            return None
        confirmed, reader, status, left, lag, plugin, here = found[0]
        if plugin != "pgoutput" or not here:
            raise CaptureRefused(
                f'the slot "{self.name}" of {self._login.name} is for something else',
                hint="take another 'slot.name'",
            )
        return SlotState(lsn_of(confirmed) if confirmed else None, reader, status, left, lag)

    def standing(self, desk: Connected) -> SlotState:
        """Returns its state. Raises CaptureLost if it does not retain the log any longer."""
        state = self.state(desk)
        if state is None:
            raise CaptureLost(
                f'{self._login.name} has no slot "{self.name}" any more: changes since then are not known',
                hint="drop the table and create it again; nothing else may drop the slot",
            )
        if state.status == "lost":
            raise CaptureLost(
                f'{self._login.name} has given up the slot "{self.name}": it kept more log than max_slot_wal_keep_size',
                hint="drop the table and create it again; raise max_slot_wal_keep_size, or keep the reader running",
            )
        return state

    def warn(self, state: SlotState, most: int) -> None:
        """Warns, once a minute, if the server retains more bytes of log than that for it, or is about to give it up."""
        lag, left = state.lag, state.left
        endangered = state.status == "unreserved" or (left is not None and left < most)
        if (lag is None or lag < most) and not endangered:
            return
        if time.monotonic() - self._warned < 60 and self._warned:
            return
        self._warned = time.monotonic()
        end = "the slot is given up" if left is not None else "its disk is full"
        log.warning(
            'the server keeps %d MB of log for the slot "%s" of %s: read on, or drop the table, before %s',
            (lag or 0) >> 20,
            self.name,
            self._login.name,
            end,
        )


def system_of(connection: Connected) -> tuple[str, int]:
    """Returns the identity of the server behind a connection for replication, and the end of its log."""
    result = connection.pgconn.exec_(b"IDENTIFY_SYSTEM")
    if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
        raise psycopg.errors.error_from_result(result)
    system, end = result.get_value(0, 0), result.get_value(0, 2)
    assert system is not None and end is not None
    return system.decode(), lsn_of(end.decode())
