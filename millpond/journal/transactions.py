"""Writes to the files of the journal: transactions of its database, and its log of small commits.

The facts in memory are replaced only when a write has succeeded, so that memory and files agree.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TypeVar

from millpond import faults
from millpond.errors import Closed, StateUnwritable
from millpond.journal import commit_cache
from millpond.journal.blob_rows import Rows, Schemas
from millpond.journal.commit_cache import Facts
from millpond.journal.database import (
    NewestRevision,
    check,
    guarded,
    open_to_read,
    open_to_write,
    set_sync,
    shrink,
    sync_log,
)
from millpond.journal.late import LateSync
from millpond.journal.read_only import inspect
from millpond.journal.row_log import ROWS
from millpond.journal.state import sync_directory
from millpond.journal.tail import Logged, Tail

T = TypeVar("T")

_SHRINK_PAGES = 500

_log = logging.getLogger(__name__)


class Transactions:
    """Writes for one thread at a time, the one that holds ``lock``."""

    def __init__(self, directory: Path, *, durable: bool, read_only: bool):
        self.directory = directory
        self.durable = durable
        self.lock = Lock()
        self.schemas = Schemas()
        self._read_only = read_only
        self._closed = False
        self._late = LateSync(self.sync)
        self._waits_for_disk = True
        self._tail = Tail(directory, self.schemas)
        self._database = Synced()
        self._log = Synced()
        with guarded(directory):
            if durable:
                inspect(directory)
            self._connection = open_to_read(directory) if read_only else open_to_write(directory, durable)
            self._newest = NewestRevision(directory, read_only=read_only)
            try:
                check(self._connection, directory)
                self.facts = commit_cache.read(self._connection)
                if durable:
                    self._tail.recover(self._connection, self.facts)
                self._newest.check(self.facts.revision)
                if not read_only:
                    self._clean_up()
                    if durable:
                        self._begin()
            except BaseException:
                self._newest.close()
                self._connection.close()
                raise

    def _clean_up(self) -> None:
        """Removes what an earlier run has left."""

    def _changed(self, tables: Iterable[str]) -> None:
        """Is called when the database has got changes of these tables from the log."""

    def _begin(self) -> None:
        """Records in the database itself, and not only in its log, that an app works on it. So a missing log is
        noticed. The database gets the small commits of the last run, and its revision passes all that their log had.
        """
        self.facts.revision = max(self.facts.revision, self._tail.highest)
        self._transaction(lambda connection, after: None)
        self._connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        self._tail.close(remove=True)
        sync_directory(self.directory)

    def transaction(self, write: Callable[[sqlite3.Connection, Facts], T], *, sync: bool = True) -> T:
        """Runs ``write`` in a separate transaction. It changes the facts that it gets as it writes."""
        with self.lock:
            return self._transaction(write, sync=sync)

    def shrink(self) -> bool:
        """Returns some free pages to the disk; returns whether there are more."""
        with self.reading() as connection:
            self._wait_for_disk(False)
            return shrink(connection, _SHRINK_PAGES)

    def fold(self) -> None:
        """Writes to the database what only the log has."""
        with self.lock:
            self.check_open()
            if not self._read_only and self._tail:
                self._transaction(lambda connection, after: None, sync=False)

    def has_logged(self, table: str) -> bool:
        """Returns whether the log has changes of the table that the database does not have."""
        with self.lock:
            return self._tail.has(table)

    def logged(self, table: str) -> list[tuple[int, Rows, bool]]:
        """Returns the changes of the table that only the log has, with the numbers of their commits, and whether their
        last column says which rows are deletes.
        """
        with self.lock:
            return list(self._tail.changes_of(table))

    def sync(self) -> None:
        """Syncs what was committed without waiting; other commits continue meanwhile."""
        with self.lock:
            if self._closed or not (self._database.behind or self._log.behind):
                return
            if self._tail.broken:
                self._transaction(lambda connection, after: None)
                return
            revision, database, log = self.facts.revision, self._database.written, self._log.written
            database_behind, log_behind = self._database.behind, self._log.behind
        try:
            if log_behind:
                self._tail.sync()
            if database_behind:
                sync_log(self.directory)
        except OSError as e:
            raise StateUnwritable(
                f'the journal in "{self.directory}" cannot be synced: {e.strerror or e}'
            ) from e
        with self.lock:
            if not self._closed:
                self._log.reached(log)
                self._database.reached(database)
                self._newest.write(revision)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Provides the connection, while nothing is being written."""
        with self.lock, guarded(self.directory):
            self.check_open()
            yield self._connection

    def check_open(self) -> None:
        if self._closed:
            raise Closed("the journal is closed")

    def _check_writable(self) -> None:
        if self._read_only:
            raise StateUnwritable(f'the state directory "{self.directory}" is open for reading only')

    def close(self) -> None:
        self._late.end()
        self.sync()
        with self.lock:
            if self._closed:
                return
            if not self._read_only:
                if self._tail:
                    self._transaction(lambda connection, after: None)
                with guarded(self.directory):
                    self._wait_for_disk(True)
                    self.facts.write(self._connection, clean=True)
            self._closed = True
            self._connection.close()
            self._tail.close(remove=not self._read_only)
            self._newest.close()

    def abandon(self) -> None:
        self._late.end()
        with self.lock:
            if not self._closed:
                self._closed = True
                self._connection.close()
                self._tail.close()
                self._newest.close()

    @contextmanager
    def _settled(self, holds: Callable[[], bool], committed: Callable[[], None]) -> Iterator[None]:
        """Calls ``committed`` if the file ``holds`` what the code inside has written, and only then, also if it is
        interrupted. An error after that does not fail the commit.
        """
        try:
            yield
            committed()
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if not holds():
                raise
            committed()
            if not isinstance(error, Exception):
                raise
            _log.warning("a commit succeeded, and what came after it failed: %r", error)

    def _holds(self, revision: int) -> bool:
        found = self._connection.execute("SELECT revision FROM state WHERE id = 1").fetchone()
        return found is not None and int(found[0]) == revision

    def _transaction(
        self,
        write: Callable[[sqlite3.Connection, Facts], T],
        *,
        sync: bool = True,
        committed: Callable[[], None] = lambda: None,
    ) -> T:
        """Runs a transaction; the database gets what only the log has before that. ``committed`` is called when the
        file contains it, before anything else happens.
        """
        self.check_open()
        self._check_writable()
        sync = sync or self._tail.broken
        after = self.facts.copy()
        revision = after.revision + 1
        result: list[T] = []
        changed: list[str] = []

        def take_note() -> None:
            self.facts = after
            self._tail.forget()
            committed()

        with guarded(self.directory):
            self._wait_for_disk(sync)
            try:
                with self._settled(lambda: self._holds(revision), take_note):
                    self._connection.execute("BEGIN IMMEDIATE")
                    changed += self._tail.write_to_database(self._connection, after)
                    result.append(write(self._connection, after))
                    after.revision = revision
                    after.write(self._connection, clean=False)
                    faults.reach("journal: written")
                    self._connection.execute("COMMIT")
                    faults.reach("journal: committed")
            except BaseException:
                # With unknown schemas the next commit goes to the database, not to the log: SQLite may have left a
                # complete transaction of this revision in its own log, which only another one overwrites.
                self.schemas.forget()
                raise
        self._written(sync)
        self._changed(changed)
        return result[0]

    def _wait_for_disk(self, sync: bool) -> None:
        if self.durable and sync != self._waits_for_disk:
            set_sync(self._connection, sync)
            self._waits_for_disk = sync

    def _written(self, synced: bool) -> None:
        """Records the outcome of a commit. A sync of the database includes all that was written to it before, and to
        the log.
        """
        if not self.durable:
            return
        self._database.written = self.facts.revision
        if synced:
            self._database.reached(self.facts.revision)
            self._log.reached(self.facts.revision)
            self._tail.restart()
            self._newest.write(self.facts.revision)
        else:
            self._late.due()

    def _write_logged(self, logged: Logged, committed: Callable[[], None], *, sync: bool) -> None:
        """Writes a commit to the log. It is on the disk when all before it are."""

        def take_note() -> None:
            self._tail.note(logged, self.facts)
            self._log.written = logged.revision
            committed()

        try:
            if sync and self._database.behind:
                sync_log(self.directory)
                self._database.reached(self._database.written)
            with self._settled(lambda: self._tail.holds(logged, self.facts), take_note):
                self._tail.write(logged, sync=sync)
                faults.reach("journal: committed")
        except OSError as e:
            raise StateUnwritable(f'"{self.directory / ROWS}" cannot be written: {e.strerror or e}') from e
        except BaseException:
            self._late.due()
            raise
        if sync:
            self._log.reached(logged.revision)
            self._newest.write(logged.revision)
        else:
            self._late.due()
        if self._tail.due:
            self._write_tail()

    def _write_tail(self) -> None:
        """Writes the commits in the log to the database. They have succeeded, so a failure only delays this."""
        try:
            faults.reach("journal: folding")
            self._transaction(lambda connection, after: None, sync=self._tail.full)
        except Exception as e:
            _log.warning("the last commits stay in the log: %s", e)
            self._tail.delay()


class Synced:
    """Records up to which revision a file was written, and is on the disk."""

    def __init__(self) -> None:
        self.written = self._synced = 0

    @property
    def behind(self) -> bool:
        return self.written > self._synced

    def reached(self, revision: int) -> None:
        """Records that all up to the revision is on the disk."""
        self._synced = max(self._synced, revision)
