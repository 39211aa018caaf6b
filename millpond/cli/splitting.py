"""A text as the statements that a shell runs one after another."""

from __future__ import annotations

from millpond.sql.text import pieces


def split_statements(text: str, *, unfinished: bool = False) -> list[str]:
    """The statements that end with a semicolon; ``\\d`` and the like are lines of their own.

    Each has the lines before it as empty lines, so that errors name the line of the whole text. What stands
    behind the last semicolon comes too if ``unfinished`` is asked for.
    """
    found: list[str] = []
    start = 0
    for end in _ends(text):
        _add(found, text, start, end)
        start = end + 1
    if unfinished:
        _add(found, text, start, len(text))
    return found


def is_finished(text: str) -> bool:
    """Whether nothing is left behind the last semicolon, or the text is a command."""
    if text.lstrip().startswith("\\") or not text.strip():
        return True
    ends = list(_ends(text))
    return bool(ends) and not _code(text[ends[-1] + 1 :]).strip()


def _ends(text: str) -> list[int]:
    """The offsets at which statements end: semicolons outside of strings and comments, and ends of commands."""
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
    """The text with strings and comments blanked."""
    return "".join(
        text[p.start : p.end] if p.kind == "code" else " " * (p.end - p.start) for p in pieces(text)
    )


def _add(found: list[str], text: str, start: int, end: int) -> None:
    statement = text[start:end]
    if _code(statement).strip():
        found.append("\n" * text.count("\n", 0, start) + statement)
