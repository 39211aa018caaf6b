"""Splits a text into the statements that a shell runs one after another."""

from __future__ import annotations

from millpond.sql.text import pieces


def split_statements(text: str, *, unfinished: bool = False) -> list[str]:
    r"""Returns the statements that end with a semicolon; ``\d`` and the like are separate lines. A transaction from
    BEGIN to its end is one, since all of it is checked before anything runs.

    Each has the lines before it as empty lines, so that errors name the line of the whole text. What comes after the
    last semicolon is included with ``unfinished``.
    """
    found: list[str] = []
    start = 0
    for end in _together(text, _ends(text)):
        _add(found, text, start, end)
        start = end + 1
    if unfinished:
        _add(found, text, start, len(text))
    return found


def is_finished(text: str) -> bool:
    """Returns whether nothing is left after the last semicolon, or the text is a command."""
    if is_command(text) or not text.strip():
        return True
    ends = list(_ends(text))
    return bool(ends) and not _code(text[ends[-1] + 1 :]).strip()


def is_command(text: str) -> bool:
    r"""Returns whether it is for the shell itself: ``\d``, or a word that begins no statement."""
    return text.lstrip().startswith("\\") or text.strip().rstrip("; ").lower() in ("exit", "quit", "help")


def _together(text: str, ends: list[int]) -> list[int]:
    """Returns the ends without those inside of a transaction whose end is in the text too."""
    kept: list[int] = []
    inside: list[int] | None = None
    start = 0
    for end in ends:
        word = _first_word(text[start:end])
        start = end + 1
        if inside is None:
            inside = [end] if word == "BEGIN" else None
            if inside is None:
                kept.append(end)
        elif word in ("COMMIT", "ROLLBACK"):
            kept.append(end)
            inside = None
        else:
            inside.append(end)
    return kept + (inside or [])


def _first_word(statement: str) -> str:
    return next(iter(_code(statement).split()), "").upper()


def _ends(text: str) -> list[int]:
    """Returns the offsets at which statements end: semicolons outside of strings and comments, and ends of commands."""
    ends: list[int] = []
    start = 0
    while start < len(text):
        rest = text[start:]
        stripped = rest.lstrip()
        if stripped.startswith("\\"):
            newline = text.find("\n", start + len(rest) - len(stripped))
            end = newline if newline >= 0 else len(text)
        else:
            at = _code(rest).find(";")
            if at < 0:
                return ends
            end = start + at
        ends.append(end)
        start = end + 1
    return ends


def _code(text: str) -> str:
    """Returns the text with strings and comments blanked."""
    return "".join(
        text[p.start : p.end] if p.kind == "code" else " " * (p.end - p.start) for p in pieces(text)
    )


def _add(found: list[str], text: str, start: int, end: int) -> None:
    statement = text[start:end]
    if _code(statement).strip():
        found.append("\n" * text.count("\n", 0, start) + statement)
