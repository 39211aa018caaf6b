"""Stores small commits in a log next to the database, until it has them.

A commit of a few rows is one write to the end of this file, where SQLite would write four pages. The database gets many
of them at once, in one transaction; then the log begins again at its start.

    header    "millrow1", eight bytes that differ in every run
    record    length, checksum, revision, then so many bytes; the checksum includes the header's bytes

A record counts if its checksum is right and its revision follows that of the record, or of the database, before it. So
a torn record ends the log, and so does one that a restart of the log has left behind.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from millpond.journal.blobs import corrupt
from millpond.journal.state import sync_directory

ROWS = "journal.rows"
_MAGIC = b"millrow1"
_BEGIN = len(_MAGIC) + 8
_RECORD = struct.Struct("<IIQ")


class RowLog:
    """Writes the log. The file is created with the first record. All methods raise OSError."""

    def __init__(self, directory: Path):
        self._path = directory / ROWS
        self._file: int | None = None
        self._run = b""
        self._failed = b""
        self.broken = False
        """Whether a write or a sync has failed: what the disk has is not known, and a later sync would not tell."""
        self.end = _BEGIN
        """Where the next record goes. The writer advances it when a record counts."""

    def record(self, revision: int, content: bytes) -> bytes:
        """Returns the bytes of a record."""
        if self._file is None:
            self._create()
        checked = struct.pack("<Q", revision) + content
        return _RECORD.pack(len(content), zlib.crc32(checked, zlib.crc32(self._run)), revision) + content

    def write(self, record: bytes, *, sync: bool) -> None:
        """Writes the record to the end; with ``sync`` it waits for the disk. If it raises, the record does not
        count.
        """
        assert self._file is not None
        try:
            written = os.pwrite(self._file, record, self.end)
            while written < len(record):
                written += os.pwrite(self._file, record[written:], self.end + written)
            if sync:
                os.fdatasync(self._file)
        except OSError:
            self._failed, self.broken = record, True
            os.pwrite(self._file, bytes(_RECORD.size), self.end)
            raise

    def holds(self, record: bytes) -> bool:
        """Returns whether the record is complete at the end."""
        if self._file is None or record is self._failed:
            return False
        return os.pread(self._file, len(record), self.end) == record

    def sync(self) -> None:
        """Waits until all that was written is on the disk."""
        file = self._file
        try:
            if file is not None:
                os.fdatasync(file)
        except OSError:
            self.broken = True
            raise

    def restart(self) -> None:
        """Begins again at the start: the database has all records, and they are on the disk there. After a failure the
        next record begins another file.
        """
        self.end = _BEGIN
        if self.broken:
            self.close()
            self.broken = False

    def close(self, *, remove: bool = False) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if remove:
            self._path.unlink(missing_ok=True)

    def _create(self) -> None:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._run = os.urandom(8)
            if os.pwrite(file, _MAGIC + self._run, 0) < _BEGIN:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(file)
            sync_directory(self._path.parent)
        except BaseException:
            os.close(file)
            raise
        self._file = file


class Found:
    """Contains the records of a log that a database of that revision does not have, and the highest revision in it, of
    records that count or not.
    """

    def __init__(self, directory: Path, revision: int):
        self.records: list[tuple[int, bytes]] = []
        self.revision = self.highest = revision
        for number, content in _read(directory):
            self.highest = max(self.highest, number)
            if number == self.revision + 1:
                self.records.append((number, content))
                self.revision = number


def _read(directory: Path) -> Iterator[tuple[int, bytes]]:
    """Yields the records with right checksums, up to one that is older than the one before it."""
    try:
        data = (directory / ROWS).read_bytes()
    except FileNotFoundError:
        return
    if len(data) < _BEGIN:
        return
    if not data.startswith(_MAGIC):
        raise corrupt(f'"{directory / ROWS}" is not as it was written')
    run = zlib.crc32(data[len(_MAGIC) : _BEGIN])
    at, newest = _BEGIN, 0
    while at + _RECORD.size <= len(data):
        length, checksum, revision = _RECORD.unpack_from(data, at)
        content = data[at + _RECORD.size : at + _RECORD.size + length]
        checked = struct.pack("<Q", revision) + content
        if len(content) < length or revision <= newest or zlib.crc32(checked, run) != checksum:
            return
        yield revision, content
        at, newest = at + _RECORD.size + length, revision
