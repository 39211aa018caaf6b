"""Opens the SQLite file, and defines its tables and what its errors mean.

Every row has a checksum over all its values (``seal``), and each table a count of its blobs, so that damage is reported
and never read as data. Names are stored in lower case.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from millpond.errors import StateLocked, StateUnwritable
from millpond.journal.blobs import corrupt, row_checksum

FILE = "journal.db"
LOG = FILE + "-wal"
_MARK = "journal.mark"
_CHECKED_BYTES = 1 << 26
_LOG_BYTES = 1 << 25
_INCREMENTAL = 2
_FREE_PAGES = 2_000

_TABLES = """
CREATE TABLE IF NOT EXISTS state (
    id INTEGER PRIMARY KEY, last INTEGER, revision INTEGER, clean INTEGER, seal INTEGER);
CREATE TABLE IF NOT EXISTS schemas (id INTEGER PRIMARY KEY, data BLOB, seal INTEGER);
CREATE TABLE IF NOT EXISTS tables (name TEXT PRIMARY KEY, blobs INTEGER, total INTEGER, seal INTEGER);
CREATE TABLE IF NOT EXISTS changes (
    id INTEGER PRIMARY KEY, name TEXT, number INTEGER, is_snapshot INTEGER, has_deletes INTEGER,
    schema INTEGER, rows INTEGER, length INTEGER, crc INTEGER, data BLOB, file TEXT, offset INTEGER,
    seal INTEGER);
CREATE INDEX IF NOT EXISTS changes_of_table ON changes (name, number, id);
CREATE INDEX IF NOT EXISTS snapshots_of_table ON changes (name, number) WHERE is_snapshot = 1;
CREATE INDEX IF NOT EXISTS files_of_changes ON changes (file) WHERE file IS NOT NULL;
CREATE TABLE IF NOT EXISTS positions (
    pipeline TEXT PRIMARY KEY, checkpoint TEXT, batch INTEGER, offsets TEXT, seal INTEGER);
CREATE TABLE IF NOT EXISTS streams (name TEXT PRIMARY KEY, next INTEGER, seal INTEGER);
CREATE TABLE IF NOT EXISTS segments (
    id INTEGER PRIMARY KEY, name TEXT, first INTEGER, sent REAL,
    schema INTEGER, rows INTEGER, length INTEGER, crc INTEGER, data BLOB, file TEXT, offset INTEGER,
    seal INTEGER);
CREATE UNIQUE INDEX IF NOT EXISTS segments_of_stream ON segments (name, first);
CREATE INDEX IF NOT EXISTS files_of_segments ON segments (file) WHERE file IS NOT NULL;
CREATE TABLE IF NOT EXISTS entries (
    kind TEXT, name TEXT, spelled TEXT, text TEXT, data TEXT, seal INTEGER, UNIQUE (kind, name));
CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY, seal INTEGER);
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, digest TEXT, answer TEXT, until REAL, seal INTEGER);
CREATE INDEX IF NOT EXISTS ends_of_answers ON answers (until);
"""

_NEWEST = "COALESCE((SELECT MAX(number) FROM changes WHERE name = :name AND is_snapshot = 1), -1)"
LIVE = f"(number > {_NEWEST} OR number = {_NEWEST} AND is_snapshot = 1)"
"""Selects the valid changes of the table ``:name``: its newest snapshot, and what came after it. The others are waiting
to be removed.
"""


@contextmanager
def guarded(directory: Path) -> Iterator[None]:
    """Translates SQLite's errors to Millpond's."""
    try:
        yield
    except sqlite3.DatabaseError as e:
        code = getattr(e, "sqlite_errorcode", 0)
        file = directory / FILE
        broken = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_ERROR)
        if not code and isinstance(e, sqlite3.ProgrammingError):
            raise
        if not code or code & 0xFF in broken or code == sqlite3.SQLITE_IOERR_SHORT_READ:
            raise corrupt(f'"{file}" cannot be read: {e}') from e
        if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StateLocked(f'"{file}" is locked by another program') from e
        raise StateUnwritable(
            f'"{file}" cannot be used: {e}', hint="check the free space and the mode of the directory"
        ) from e


def open_to_write(directory: Path, durable: bool) -> sqlite3.Connection:
    """Opens the one writing connection, and creates the tables. The caller holds the directory's exclusive lock."""
    connection = _connect(directory, "rwc")
    # Freed space is returned to the disk. For a new file only: an existing one is changed by VACUUM.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
    connection.executescript(_TABLES)
    _give_back(connection)
    return connection


def _give_back(connection: sqlite3.Connection) -> None:
    """Shrinks a file that is mostly free pages, from a version that did not release them."""
    if connection.execute("PRAGMA auto_vacuum").fetchone() == (_INCREMENTAL,):
        return
    free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count")
    )
    if free > max(_FREE_PAGES, size // 2):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("VACUUM")


def shrink(connection: sqlite3.Connection, pages: int) -> bool:
    """Returns up to so many free pages to the disk, and reports whether there are more. Some stay, for what is written
    next.
    """
    free = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
    if free > _FREE_PAGES:
        connection.execute(f"PRAGMA incremental_vacuum({min(pages, free - _FREE_PAGES)})").fetchall()
    return free - pages > _FREE_PAGES


def set_sync(connection: sqlite3.Connection, waits: bool) -> None:
    """Sets whether a commit waits for the disk. One that does not wait also survives the end of the process, and always
    exists completely or not at all: the log is read up to the last complete commit.
    """
    connection.execute(f"PRAGMA synchronous = {'FULL' if waits else 'NORMAL'}")


def sync_log(directory: Path) -> None:
    """Waits until the log is on the disk. Raises OSError."""
    log = os.open(directory / LOG, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(log)
    finally:
        os.close(log)


def open_to_read(directory: Path) -> sqlite3.Connection:
    """Opens a connection that only reads, from any process, while a writer continues. Raises sqlite3's errors."""
    try:
        connection = _connect(directory, "rw")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.OperationalError:
        # Without write permission, SQLite reads a file only if it need not create its shared index.
        connection = _connect(directory, "ro" if (directory / LOG).exists() else "ro&immutable=1")
    return connection


def _connect(directory: Path, mode: str) -> sqlite3.Connection:
    place = (directory / FILE).as_uri()
    return sqlite3.connect(
        f"{place}?mode={mode}", uri=True, timeout=30, isolation_level=None, check_same_thread=False
    )


def check(connection: sqlite3.Connection, directory: Path) -> None:
    """Raises StateCorrupt if SQLite finds damage; a large file is checked only after a crash."""
    closed_in_order = connection.execute("SELECT clean FROM state").fetchone() == (1,)
    if closed_in_order and os.stat(directory / FILE).st_size > _CHECKED_BYTES:
        return
    found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    if found != ["ok"]:
        raise corrupt(f'"{directory / FILE}": {"; ".join(found)}')


def verified(stored: int, what: str, *values: object) -> None:
    """Raises StateCorrupt, naming ``what``, if a row's checksum is not that of its values."""
    if row_checksum(*values) != stored:
        raise corrupt(f"{what}: the row is not the one that was written")


class NewestRevision:
    """Stores the number of the newest write next to the database.

    SQLite treats a damaged write-ahead log as one that ends earlier; the mark shows the difference. It is written after
    the commit and not synced, so it is never ahead of a commit that is on the disk.
    """

    def __init__(self, directory: Path, *, read_only: bool):
        self._path = directory / _MARK
        self._file = None if read_only else os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def check(self, revision: int) -> None:
        marked = read_newest_revision(self._path.parent)
        if marked is not None and marked > revision:
            raise corrupt(f'"{self._path.parent / FILE}" has lost its last {marked - revision} writes')

    def write(self, revision: int) -> None:
        """Writes the mark. Its failure does not fail the commit: that has succeeded, and an older mark is valid too."""
        assert self._file is not None
        with suppress(OSError):
            os.pwrite(self._file, struct.pack(">QI", revision, row_checksum(revision)), 0)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def read_newest_revision(directory: Path) -> int | None:
    """Returns the number of the newest marked write; None if there is no mark. Raises StateCorrupt."""
    path = directory / _MARK
    content = path.read_bytes() if path.exists() else b""
    if not content:
        return None
    if len(content) != 12 or row_checksum(*struct.unpack(">Q", content[:8])) != int.from_bytes(
        content[8:], "big"
    ):
        raise corrupt(f'"{path}" is not as it was written')
    return int(struct.unpack(">Q", content[:8])[0])
