"""Inspects the journal without changing anything in its directory.

SQLite treats a damaged write-ahead log as one that ends earlier, and the last connection that closes removes it. So
before the database itself is opened, a copy of the log is read under another name of the database.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from millpond.journal.blobs import corrupt
from millpond.journal.database import FILE, LOG, guarded, read_newest_revision
from millpond.journal.row_log import Found

_PREFIX = "inspect-"


@contextmanager
def untouched(directory: Path) -> Iterator[sqlite3.Connection]:
    """Opens a connection that sees all that can be read, and leaves every file as it is. Raises sqlite3's errors."""
    if not os.access(directory, os.W_OK):
        # SQLite cannot change anything here either.
        with closing(_connect(directory, "ro" if (directory / LOG).exists() else "ro&immutable=1")) as found:
            yield found
        return
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=directory) as folder:
        copy = Path(folder)
        try:
            os.link(directory / FILE, copy / FILE)
        except OSError:
            shutil.copyfile(directory / FILE, copy / FILE)
        if (directory / LOG).exists():
            shutil.copyfile(directory / LOG, copy / LOG)
        with closing(_connect(copy, "ro")) as found:
            yield found


def inspect(directory: Path) -> None:
    """Raises StateCorrupt if commits are lost; called before anything is read or written."""
    mark = read_newest_revision(directory)
    if not (directory / FILE).exists():
        if mark:
            raise corrupt(f'"{directory / FILE}" is missing')
        return
    has_log = (directory / LOG).exists()
    alone = closing(_connect(directory, "ro&immutable=1"))
    with guarded(directory), untouched(directory) if has_log else alone as connection:
        revision, closed = _state(connection)
    revision = Found(directory, revision).revision
    if mark is not None and mark > revision:
        raise corrupt(f'"{directory / FILE}" has lost its last {mark - revision} writes')
    if mark is None and not has_log and not closed:
        raise corrupt(f'"{directory / LOG}" and its journal.mark are missing')


def remove_copies(directory: Path) -> None:
    """Removes what an interrupted inspection has left. The caller holds the directory's exclusive lock."""
    for left in directory.glob(f"{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)


def _state(connection: sqlite3.Connection) -> tuple[int, bool]:
    """Returns the number of the newest write, and whether the app was closed cleanly, as it is when there was none."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'state'").fetchone() is None:
        return 0, True
    row = connection.execute("SELECT revision, clean FROM state WHERE id = 1").fetchone()
    return (0, True) if row is None else (int(row[0]), bool(row[1]))


def _connect(directory: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{(directory / FILE).as_uri()}?mode={mode}", uri=True, isolation_level=None)
