"""Describes a statement by its text: its title, and where a word is in it."""

from __future__ import annotations

import re

from millpond.errors import Error, Place
from millpond.sql import statements as st
from millpond.sql.statements import Statement
from millpond.sql.text import pieces

_QUOTED = re.compile(r'"([^"]+)"')
_CLAUSE = re.compile(
    r"(EMIT|ERROR INTO|LIMIT|OFFSET|ORDER BY|HAVING|DISTINCT|QUALIFY|OR REPLACE)( FINAL| CHANGES)?\b"
)


def point_at_word(error: Error, statement: Statement) -> None:
    """Sets the place of an error about the whole statement to the first name that its message quotes, or to the clause
    that its message begins with, if the statement has that word.
    """
    if error.place is None:
        error.place = statement.place
    if error.place is not statement.place:
        return
    clause = _CLAUSE.match(error.message)
    for name in [*_QUOTED.findall(error.message), *([clause[0]] if clause else ())]:
        place = place_of_word(statement, name)
        if place is not None:
            error.place = place
            return


def place_of_word(statement: Statement, word: str) -> Place | None:
    """Returns the place where the word first occurs in the statement, alone or in back-ticks, outside strings and
    comments.
    """
    if statement.place is None or not statement.text:
        return None
    text = statement.text
    plain = re.compile(rf"(?<![\w$]){re.escape(word)}(?![\w$])", re.IGNORECASE)
    for piece in pieces(text):
        content = text[piece.start : piece.end]
        if piece.kind == "code" and (found := plain.search(content)) is not None:
            return _within(statement.place, text, piece.start + found.start(), len(word))
        if piece.kind == "name" and content[1:-1].replace("``", "`").lower() == word.lower():
            return _within(statement.place, text, piece.start, len(content))
    return None


def _within(whole: Place, text: str, offset: int, length: int) -> Place:
    """Returns the place of a part of a statement's text."""
    above = text.count("\n", 0, offset)
    if not above:
        return Place(whole.line, whole.column + offset, length, whole.text)
    begin = text.rfind("\n", 0, offset) + 1
    return Place(whole.line + above, offset - begin + 1, length, text.splitlines()[above])


def after_columns(text: str) -> str:
    """Returns what follows the columns in the text of CREATE TABLE."""
    depth = 0
    for piece in pieces(text):
        for at in range(piece.start, piece.end) if piece.kind == "code" else ():
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            if text[at] == ")" and not depth:
                return text[at + 1 :]
    return ""


def title(statement: Statement) -> str:
    """Returns what messages call a statement of this kind."""
    words: dict[type[Statement], str] = {
        st.Upsert: "UPSERT",
        st.Update: "UPDATE",
        st.Delete: "DELETE",
        st.Merge: "MERGE",
        st.Truncate: "TRUNCATE",
        st.AlterTable: "ALTER TABLE",
        st.ExplainUpgrade: "EXPLAIN UPGRADE",
        st.Replay: "REPLAY",
        st.DescribeHistory: "DESCRIBE HISTORY",
        st.Optimize: "OPTIMIZE",
        st.Vacuum: "VACUUM",
    }
    if isinstance(statement, st.ControlQuery):
        return f"{statement.action.upper()} QUERY"
    return words.get(type(statement), type(statement).__name__)
