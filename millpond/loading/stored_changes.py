"""Follows the logs of databases for tables that are stored in them: what other programs change there reaches views,
changefeeds and caches.

The rows are in the database, so there is nothing to load: the log only tells which rows have changed. It tells the
app's own commits too, in their place between those of others; nothing else does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millpond import faults
from millpond.changes import ROW, Changes, Offset, Position
from millpond.connectors.cdc.log import ADDED, CHANGES, EMPTIED, ENDED, KEPT, MOVED, OP, log_schema
from millpond.connectors.cdc.stored_log import StoredLog, logged_schema
from millpond.connectors.databases.server_table import ServerTable
from millpond.errors import CaptureLost, UnknownName
from millpond.loading.bulk_load import fingerprint, last_of_each
from millpond.loading.capture_tables import let_go, with_kept
from millpond.loading.followers import Followers, Mask, News
from millpond.sql.catalog import Relation
from millpond.store.store import Store
from millpond.tables.base import Backend

log = logging.getLogger("millpond")


class StoredChanges:
    """Tells what the log of one stored table contains. Its position is in the journal."""

    reads: Sequence[Relation] = ()

    def __init__(self, table: str, url: str, store: Store, identity: str, mask: Mask):
        self._table = table
        self._store = store
        self._mask = mask
        self._pipeline = pipeline_of(table)
        self._known = self._stored
        self._log = StoredLog(self._known, url, f"{identity}/stored:{table}")
        self._turn = threading.RLock()
        """A log has one user at a time: the follower, or a check whether there is more."""

    @property
    def _stored(self) -> ServerTable:
        return stored_of(self._store.backend(self._table))

    @property
    def _at(self) -> Offset | None:
        position = self._store.position(self._pipeline)
        return None if position is None else position.offsets["at"]

    def news(self) -> list[News]:
        return [self._log.log.news]

    @property
    def settled(self) -> bool:
        with self._turn:
            at = self._at
            return at is not None and dict(self._log.log.latest(at, CHANGES)) == dict(at)

    def begin(self) -> None:
        """Begins at the end of the log. Raises CaptureRefused."""
        with self._turn:
            self._log.log.check()
            self._reach(None, self._log.log.start("latest"))

    def advance(self) -> int:
        with self._turn:
            at = self._at
            try:
                return self._follow(at) if at is not None else self._begin_anew("its log was not followed")
            except CaptureLost as error:
                log.warning('all rows of table "%s" count as changed: %s', self._table, error.message)
                return self._begin_anew(self._mask(error.message))

    def _begin_anew(self, why: str) -> int:
        """Goes on at the end of the log: what lies before it is not known."""
        self.begin()
        self._store.logged.lose(self._table, why)
        return 1

    def _follow(self, at: Offset) -> int:
        count, table = 0, self._stored
        if table is not self._known:  # it was altered: what the log has from before it has other columns
            self._known, self._log.log.schema = table, logged_schema(table)
            if dict(self._log.log.latest(at, CHANGES)) != dict(at):
                return self._begin_anew("the columns of the table have changed")
        while self._stored is self._known and dict(end := self._log.log.latest(at, CHANGES)) != dict(at):
            count += self._tell(at, end)
            at = end
        return count

    def _tell(self, at: Offset, end: Offset) -> int:
        table = self._known
        schema = log_schema(self._log.log.schema)
        logged = pa.Table.from_batches(list(self._log.log.read(at, end)), schema)
        ops = logged[OP].to_numpy()
        emptied = bool((ops == EMPTIED).any())
        changes = None if emptied or not logged.num_rows else changes_of(logged, ops, table)
        faults.reach("stored: read")
        self._reach(at, end)
        try:
            faults.reach("stored: reached")
            if changes is not None:
                self._store.logged.notify({self._table.lower(): changes})
        except BaseException:
            # The log has gone on behind them.
            self._store.logged.lose(self._table, "its changes could not be told")
            raise
        if emptied:
            self._store.logged.lose(self._table, "the table was emptied at once")
        return len(logged)

    def _reach(self, at: Offset | None, end: Offset) -> None:
        self._store.commit(position=Position(self._pipeline, fingerprint(at, end), 0, {"at": end}))

    def release(self) -> None:
        """Removes what the database stores for the table, which was dropped."""
        with self._turn:
            let_go(self._mask, f'table "{self._table}"', self._log.log.drop)
            self._store.forget(self._pipeline)

    def close(self) -> None:
        if not self._store.journal.durable:
            self.release()
        self._log.close()


def changes_of(logged: pa.Table, ops: np.ndarray, table: ServerTable) -> Changes:
    """Returns what logged changes, in their order, do to the rows of a table."""
    names = [c.name for c in table.columns]
    columns = [
        table.decode(logged.column(i).to_pylist(), c.type)
        if pa.types.is_nested(c.type)
        else logged.column(i).cast(c.type)
        for i, c in enumerate(table.columns)
    ]
    rows = pa.table(columns, schema=pa.schema([pa.field(c.name, c.type) for c in table.columns]))
    key = [table.column(name).name for name in table.identity]
    if logged[KEPT].null_count < logged.num_rows:
        places = {i: i for i in range(len(names))}
        rows = with_kept(rows, ops, logged[KEPT], places, key, table.snapshot())
    if key == [ROW] and (ops == ADDED).all():
        return Changes(rows.drop_columns([ROW]))
    ended = pa.array((ops == ENDED) | (ops == MOVED))
    last = last_of_each(rows.append_column("__ended", ended), key)
    return Changes(last.drop_columns(["__ended"]), last["__ended"].combine_chunks())


def pipeline_of(table: str) -> str:
    return f"log:{table.lower()}"


def stored_of(backend: Backend) -> ServerTable:
    """Returns the table of the database, behind its cache if it has one."""
    found = backend.behind
    assert isinstance(found, ServerTable)
    return found


class StoredLogs:
    """Manages the logs that stored tables follow. ``identity`` distinguishes this app from others there."""

    def __init__(self, store: Store, followers: Followers, identity: str, mask: Mask):
        self._store = store
        self._followers = followers
        self._identity = identity
        self._mask = mask

    def add(self, table: str) -> None:
        """Follows the log for a new table whose options say so. Raises CaptureRefused."""
        if not self._wanted(table):
            return
        self._store.forget(pipeline_of(table))
        changes = self._make(table)
        try:
            changes.begin()
        except BaseException:
            changes.release()
            changes.close()
            raise
        self._go(table, changes)

    def resume(self, table: str) -> None:
        """Goes on with the log of a restored table."""
        if self._wanted(table):
            self._go(table, self._make(table))

    def end(self, table: str) -> None:
        """Ends it for a table that is dropped, also if nothing follows it now."""
        if not self._wanted(table):
            return
        changes = self._followers.kept(pipeline_of(table)) or self._make(table)
        self._followers.remove(pipeline_of(table))
        self._store.logged.discard(table)
        assert isinstance(changes, StoredChanges)
        changes.release()
        changes.close()

    def _go(self, table: str, changes: StoredChanges) -> None:
        self._store.logged.add(table)
        self._followers.add(pipeline_of(table), changes)

    def _wanted(self, table: str) -> bool:
        return bool(self._store.options.get(table.lower(), {}).get("cdc")) and (
            self._store.table(table) is not None
        )

    def _make(self, table: str) -> StoredChanges:
        options = self._store.options[table.lower()]
        url = str(options.get("cache.over") or options.get("url"))
        if "://" not in url:
            raise UnknownName(f'table "{table}": the log of "{url}" cannot be read')
        return StoredChanges(table, url, self._store, self._identity, self._mask)
