"""Contains the commits that are in the log and not in the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from millpond.journal.blob_rows import Rows, Schemas
from millpond.journal.commit_cache import BLOB_WEIGHT, Facts
from millpond.journal.row_log import Found, RowLog
from millpond.journal.small_changes import (
    LARGEST,
    BlobChange,
    Pending,
    RowForm,
    SmallChange,
    by_table,
    from_record,
    merged,
    to_record,
    write_pending,
)

__all__ = ["BlobChange", "Logged", "Tail"]

_MOST_COMMITS = 500
_MOST_BYTES = 1 << 18
_LOG_BYTES = 1 << 24
"""The size of the log from which on it begins again, which waits for the disk."""


class Logged:
    """Contains changes on their way to the log: as the commit of that revision, the last of them with that number."""

    __slots__ = ("changes", "last", "record", "revision")

    def __init__(self, changes: Sequence[tuple[int, SmallChange]], facts: Facts, record: bytes, last: int):
        self.changes = list(changes)
        self.last, self.revision = last, facts.revision + 1
        self.record = record


class Tail:
    """Writes small commits to the log, and later to the database. The writer holds its lock."""

    def __init__(self, directory: Path, schemas: Schemas):
        self._directory = directory
        self._schemas = schemas
        self._log = RowLog(directory)
        self._pending: Pending = {}
        self._write_at = _MOST_COMMITS
        self._written_to = self._log.end
        self._restart_at = _LOG_BYTES
        self._weights: dict[str, int] = {}
        self.highest = 0
        """The highest revision that was in the log at the start."""

    def recover(self, connection: sqlite3.Connection, facts: Facts) -> None:
        """Reads the commits that the database does not have, and updates the facts to them. Raises StateCorrupt."""
        found = Found(self._directory, facts.revision)
        forms: dict[int, RowForm] = {}
        for revision, content in found.records:
            self._pending[revision] = changes = list(from_record(content, self._schemas, connection, forms))
            facts.last = max(facts.last, *(number for number, _ in changes))
            facts.revision = revision
        self.highest = found.highest

    def encoded(self, changes: Sequence[tuple[int, SmallChange]], facts: Facts, last: int) -> Logged | None:
        """Returns changes as the next commit; None if they are too large, or have a schema that is not known, or the
        log cannot be written.
        """
        if self._log.broken:
            return None
        for _, change in changes:
            schema = change.rows.schema if isinstance(change, BlobChange) else change.form.schema
            if self._schemas.known(schema) is None:
                return None
        content = to_record(changes, self._schemas)
        if len(content) > LARGEST:
            return None
        try:
            record = self._log.record(facts.revision + 1, content)
        except OSError:  # then the database tells why
            return None
        return Logged(changes, facts, record, last)

    def write(self, logged: Logged, *, sync: bool) -> None:
        """Writes the commit to the log. If it raises OSError it does not count."""
        self._log.write(logged.record, sync=sync)

    def holds(self, logged: Logged, facts: Facts) -> bool:
        return facts.revision == logged.revision or self._log.holds(logged.record)

    def note(self, logged: Logged, facts: Facts) -> None:
        """Records that the log has the commit. A second call changes nothing."""
        if facts.revision == logged.revision:
            return
        end = self._log.end + len(logged.record)
        self._pending[logged.revision] = logged.changes
        for _, change in logged.changes:
            if isinstance(change, BlobChange):
                weight = change.rows.blobs[0].length + BLOB_WEIGHT
                self._weights[change.table] = self._weights.get(change.table, 0) + weight
        facts.last = logged.last
        self._log.end, facts.revision = end, logged.revision

    @property
    def due(self) -> bool:
        """Returns whether it is time to write to the database what is pending."""
        if len(self._pending) >= self._write_at or self._log.end - self._written_to >= _MOST_BYTES:
            return True
        return self._log.end >= self._restart_at

    @property
    def full(self) -> bool:
        """Returns whether the log is to begin again: then the database has to be on the disk."""
        return self._log.end >= _LOG_BYTES

    @property
    def broken(self) -> bool:
        """Returns whether the log failed: then the database has to be on the disk, and another log begins."""
        return self._log.broken

    def delay(self) -> None:
        """Puts off what failed until as much again is pending."""
        self._write_at = len(self._pending) + _MOST_COMMITS
        self._written_to = self._log.end
        self._restart_at = self._log.end + _LOG_BYTES

    def __bool__(self) -> bool:
        """Returns whether something is pending."""
        return bool(self._pending)

    def write_to_database(self, connection: sqlite3.Connection, after: Facts) -> Sequence[str]:
        """Writes in a transaction what is pending; returns the tables."""
        if not self._pending:
            return ()
        write_pending(self._pending, connection, after, self._schemas)
        return list(by_table(self._pending))

    def forget(self) -> None:
        """Forgets what is pending: the transaction is committed."""
        self._pending.clear()
        self._weights.clear()
        self._write_at = _MOST_COMMITS
        self._written_to = self._log.end

    def restart(self) -> None:
        """Begins the log again: nothing is pending, and the database is on the disk."""
        self._log.restart()
        self._written_to = self._log.end
        self._restart_at = _LOG_BYTES

    def weight(self, table: str) -> int:
        """Returns what the pending blobs of the table add to the weight of its changes."""
        return self._weights.get(table, 0)

    def has(self, table: str) -> bool:
        return table in by_table(self._pending)

    def changes_of(self, table: str) -> Iterator[tuple[int, Rows, bool]]:
        """Yields the pending changes of a table."""
        return merged(by_table(self._pending).get(table, []))

    def sync(self) -> None:
        self._log.sync()

    def close(self, *, remove: bool = False) -> None:
        self._log.close(remove=remove)
