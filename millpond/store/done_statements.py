"""Notes beside the mark of each statement of the file that ran once which table or stream it has changed.

A mark says that the statement does not run again. If what it changed is dropped, the mark goes too.
"""

from __future__ import annotations

from collections.abc import Iterable

from millpond.changes import Position
from millpond.journal.journal import Journal

_CHANGED = " changed "


def note(mark: str, name: str) -> str:
    """Returns what the journal stores beside a mark."""
    return f"{mark}{_CHANGED}{name.lower()}"


def is_note(stored: str) -> bool:
    return _CHANGED in stored


def marks_of(journal: Journal, name: str) -> list[str]:
    """Returns the marks of the statements that have changed a table or stream."""
    return [mark for mark, changed in changes(journal) if changed == name.lower()]


def changes(journal: Journal) -> list[tuple[str, str]]:
    """Returns the marks with the names, in lower case, of what their statements have changed."""
    noted = sorted(stored for stored in journal.all_done() if is_note(stored))
    return [(mark, name) for mark, _, name in (stored.partition(_CHANGED) for stored in noted)]


def in_database(stored: Iterable[str]) -> list[Position]:
    """Returns the marks as a database stores them, in the commit of the rows; it needs no notes."""
    return [Position(f"done:{mark}", "", 0) for mark in stored if not is_note(mark)]


def with_notes(marks: list[str], name: str) -> list[str]:
    """Returns marks together with the notes of what their statements have changed."""
    return [*marks, *(note(mark, name) for mark in marks)]
