"""Answers that are kept with the commit they tell of: the same request, sent again, is answered and not done."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass

from millpond.journal.blobs import seal
from millpond.journal.database import verified


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered to the request ``key``. ``digest`` is of what it said; ``until`` is when it may be forgotten,
    in seconds since 1970."""

    key: str
    digest: str
    text: str
    until: float


def write_answer(connection: sqlite3.Connection, answer: Answer) -> None:
    """Keeps it, and lets go of those whose time is over."""
    connection.execute("DELETE FROM answers WHERE until < ?", (time.time(),))
    row = (answer.key, answer.digest, answer.text, answer.until)
    connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", (*row, seal(*row)))


def read_answer(connection: sqlite3.Connection, key: str) -> Answer | None:
    """The answer of a key, if its time is not over."""
    found = connection.execute(
        "SELECT * FROM answers WHERE key = ? AND until >= ?", (key, time.time())
    ).fetchone()
    if found is None:
        return None
    *row, stored = found
    verified(stored, f'the answer to "{key}"', *row)
    return Answer(*row)
