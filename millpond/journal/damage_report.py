"""Reports what a damaged state still contains."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from millpond.errors import Error
from millpond.journal.blob_rows import Schemas, read_blobs
from millpond.journal.commit_cache import read_ledger
from millpond.journal.database import guarded
from millpond.journal.read_only import untouched
from millpond.journal.row_log import ROWS, Found

_MOST = 20


def survey(directory: Path) -> str:
    """Returns one line about each table: complete, or the last commit up to which it can be read."""
    try:
        with guarded(directory), untouched(directory) as connection:
            names = [row[0] for row in connection.execute("SELECT name FROM tables ORDER BY name")]
            lines = [f'table "{name}": {_readable(connection, directory, name)}' for name in names[:_MOST]]
            state = connection.execute("SELECT revision FROM state WHERE id = 1").fetchone()
    except Error as error:
        return f"nothing of it can be read: {error.message}"
    except OSError as error:
        return f"nothing of it can be read: {error.strerror or error}"
    if len(names) > _MOST:
        lines.append(f"and {len(names) - _MOST} tables more")
    try:
        if logged := len(Found(directory, int(state[0]) if state else 0).records):
            lines.append(f"{logged} small commits after that are in {ROWS}")
    except (Error, OSError) as error:
        lines.append(f"{ROWS}, which has the small commits after that, cannot be read: {error}")
    return "; ".join(lines) if lines else "no table has rows in it"


def _readable(connection: sqlite3.Connection, directory: Path, name: str) -> str:
    last = rows = 0
    try:
        with guarded(directory):
            ledger = read_ledger(connection, name)
            for number, _, batch in read_blobs(connection, directory, name, Schemas(), *ledger):
                last, rows = number, rows + batch.num_rows
    except Error:
        return f"damaged after commit {last}, {rows} changes before that" if rows else "damaged"
    return f"whole, {rows} changes up to commit {last}"
