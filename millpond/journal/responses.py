"""Stores the response of a request in its commit, so that a repeated request gets it and does not run again."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass

from millpond.journal.blobs import row_checksum
from millpond.journal.database import verified


@dataclass(frozen=True, slots=True)
class Answer:
    """Stores the response to the request ``key``. ``digest`` is that of the request; ``until`` is when it expires, in
    seconds since 1970.
    """

    key: str
    digest: str
    text: str
    until: float


def write_answer(connection: sqlite3.Connection, answer: Answer) -> None:
    """Stores it, and removes expired ones."""
    connection.execute("DELETE FROM answers WHERE until < ?", (time.time(),))
    row = (answer.key, answer.digest, answer.text, answer.until)
    connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", (*row, row_checksum(*row)))


def read_answer(connection: sqlite3.Connection, key: str) -> Answer | None:
    """Returns the stored response of a key, if it has not expired."""
    found = connection.execute(
        "SELECT * FROM answers WHERE key = ? AND until >= ?", (key, time.time())
    ).fetchone()
    if found is None:
        return None
    *row, stored = found
    verified(stored, f'the answer to "{key}"', *row)
    return Answer(*row)
