"""Processes SQL text before it is tokenized: its strings, comments and URIs, and the variables ``${…}`` in it."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from millpond.errors import Place, SqlSyntaxError
from millpond.sql.uris import SCHEME, end_of_uri

PieceKind = Literal["code", "string", "name", "comment", "uri", "variable"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Represents a part of SQL text; ``closed`` is False for a string, name or comment that never ends."""

    kind: PieceKind
    start: int
    end: int
    closed: bool = True


_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?:(:-|:\?)([^}]*))?\}")
_SPECIAL = re.compile(rf"--|/\*|(?<!\w)[rR](?=['\"])|['\"`]|\$\{{|(?<![\w.]){SCHEME}")
_STRINGS = {
    "'": re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL),
    '"': re.compile(r'"(?:[^"\\]|\\.|"")*"', re.DOTALL),
    "`": re.compile(r"`(?:[^`]|``)*`"),
    "r'": re.compile(r"[rR]'[^']*'"),
    'r"': re.compile(r'[rR]"[^"]*"'),
}
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def pieces(text: str) -> Iterator[Piece]:
    """Yields the whole text as consecutive pieces."""
    at = code = 0
    while special := _SPECIAL.search(text, at):
        start, mark = special.start(), special[0]
        kind: PieceKind
        closed = True
        if mark == "--":
            newline = text.find("\n", start)
            kind, end = "comment", len(text) if newline < 0 else newline
        elif mark == "/*":
            kind, (end, closed) = "comment", _end_of_comment(text, start)
        elif mark == "${":
            variable = _VARIABLE.match(text, start)
            if variable is None:
                at = start + 2
                continue
            kind, end = "variable", variable.end()
        elif mark.endswith("://"):
            kind, end = "uri", end_of_uri(text, start)
        else:
            raw = mark in "rR"
            match = _STRINGS["r" + text[start + 1] if raw else mark].match(text, start)
            kind = "name" if mark == "`" else "string"
            closed = match is not None
            end = match.end() if match else len(text)
        if start > code:
            yield Piece("code", code, start)
        yield Piece(kind, start, end, closed)
        at = code = end
    if code < len(text):
        yield Piece("code", code, len(text))


def _end_of_comment(text: str, start: int) -> tuple[int, bool]:
    """Returns the offset after a comment, which may contain comments, and whether it is closed."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end(), True
    return len(text), False


@dataclass(frozen=True, slots=True)
class _Replacement:
    """Represents a part of the expanded text that came from a variable of the original."""

    start: int
    end: int
    original_start: int
    original_end: int


@dataclass(frozen=True)
class Script:
    """Represents a SQL text with its variables replaced. Offsets are of ``expanded``; places are in ``original``."""

    original: str
    expanded: str
    secrets: frozenset[str] = frozenset()
    errors: tuple[tuple[int, SqlSyntaxError], ...] = ()
    """Variables without a value: the offset in ``expanded`` where it is missing, and the error."""
    _names: Mapping[str, str] = field(default_factory=dict, repr=False)
    _replacements: tuple[_Replacement, ...] = field(default=(), repr=False)

    @staticmethod
    def of(text: str, env: Mapping[str, str] | None = None) -> Script:
        """Expands the text with ``env``, by default the environment of the process."""
        if "${" not in text:
            return Script(text, text)
        return _Expansion(text, os.environ if env is None else env).run()

    def original_offset(self, offset: int, *, end: bool = False) -> int:
        """Returns the offset in ``original`` for an offset of ``expanded``; inside a value, an edge of its variable."""
        index = bisect_right(self._replacements, offset - end, key=lambda r: r.start) - 1
        if index < 0:
            return offset
        found = self._replacements[index]
        if offset - end < found.end:
            return found.original_end if end else found.original_start
        return offset - found.end + found.original_end

    def place(self, start: int, end: int | None = None) -> Place:
        """Returns the place in ``original`` of ``expanded[start:end]``."""
        stop = self.original_offset(end, end=True) if end is not None else None
        return Place.of(self.original, self.original_offset(start), stop)

    def slice(self, start: int, end: int) -> str:
        """Returns the original text of ``expanded[start:end]``."""
        return self.original[self.original_offset(start) : self.original_offset(end, end=True)]

    def mask(self, text: str) -> str:
        """Returns ``text`` with every value from the environment replaced by its ``${NAME}``.

        Leaves values of one or two characters: they are in every text.
        """
        for value in sorted(self._names, key=len, reverse=True):
            if len(value) > 2:
                text = text.replace(value, self._names[value])
        return text


class _Expansion:
    """Builds a Script piece by piece."""

    def __init__(self, text: str, env: Mapping[str, str]):
        self.text = text
        self.env = env
        self.parts: list[str] = []
        self.length = 0
        self.replacements: list[_Replacement] = []
        self.names: dict[str, str] = {}
        self.errors: list[tuple[int, SqlSyntaxError]] = []

    def run(self) -> Script:
        for piece in pieces(self.text):
            if piece.kind in ("comment", "code"):
                self.keep(piece.start, piece.end)
            else:
                self.expand(piece)
        return Script(
            original=self.text,
            expanded="".join(self.parts),
            secrets=frozenset(self.names),
            errors=tuple(self.errors),
            _names=self.names,
            _replacements=tuple(self.replacements),
        )

    def keep(self, start: int, end: int) -> None:
        self.parts.append(self.text[start:end])
        self.length += end - start

    def expand(self, piece: Piece) -> None:
        last = piece.start
        for match in _VARIABLE.finditer(self.text, piece.start, piece.end):
            self.keep(last, match.start())
            value = _escaped(self.value(match), piece.kind, self.text[piece.start])
            start = self.length
            self.parts.append(value)
            self.length += len(value)
            self.replacements.append(_Replacement(start, self.length, match.start(), match.end()))
            last = match.end()
        self.keep(last, piece.end)

    def value(self, match: re.Match[str]) -> str:
        name, operator, operand = match.groups()
        value = self.env.get(name)
        if value:
            self.names[value] = f"${{{name}}}"
            return value
        if operator == ":-":
            return str(operand)
        if value is not None and operator is None:
            return value
        message = f'variable "{name}" is not set'
        self.errors.append(
            (
                self.length,
                SqlSyntaxError(
                    f"{message}: {operand}" if operand else message,
                    hint=f"set {name} in the environment, or write ${{{name}:-default}}",
                    place=Place.of(self.text, match.start(), match.end()),
                ),
            )
        )
        return ""


def _escaped(value: str, kind: PieceKind, first: str) -> str:
    """Escapes a value so that it cannot end the string, name or URI around it."""
    if kind == "string" and first not in "rR":
        return value.replace("\\", "\\\\").replace(first, "\\" + first)
    if kind == "name":
        return value.replace("`", "``")
    if kind == "uri":
        return re.sub(r"[\s;'\"`()]", lambda m: f"%{ord(m[0]):02X}", value)
    return value
