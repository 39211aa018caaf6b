"""Computes the identity of a statement: its text, independent of layout."""

from __future__ import annotations

import hashlib
import re

from millpond.sql.statements import Statement
from millpond.sql.text import pieces

_SPACE = re.compile(r"\s+")
_REPLACES = re.compile(r"^create or replace ")
_AROUND = re.compile(r"\s*([(),=<>+*/;.-])\s*")


def identity(statement: Statement) -> str:
    """Returns a short name that two statements share if they differ only in spaces, comments and letter case, or in
    OR REPLACE.

    It is computed from the text before variables are replaced, so that a new password is not a new statement.
    """
    parts = []
    for piece in pieces(statement.text):
        text = statement.text[piece.start : piece.end]
        if piece.kind == "comment":
            parts.append(" ")
        elif piece.kind == "code":
            parts.append(_AROUND.sub(r"\1", _SPACE.sub(" ", text)).lower())
        else:
            parts.append(text)
    canonical = _REPLACES.sub("create ", _SPACE.sub(" ", "".join(parts)).strip())
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
