"""Translates Java regular expressions to RE2's syntax, for the part where both match the same.

A dot and ``\\s`` are written out, because the two differ on line ends; look-around, back references, possessive
quantifiers, flags and Unicode classes go to Spark.
"""

from __future__ import annotations

import re

from millpond.sql.render.duckdb.names import Unrenderable

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_DOT = f"[^{_LINE_ENDS}]"
_DOLLAR = rf"(?:\r\n|[{_LINE_ENDS}])?\z"
_ESCAPES = {
    **{c: "\\" + c for c in "dDwWntrf" + r".\+*?()[]{}|^$-/"},
    "s": r"[\t\n\x0B\f\r ]",
    "S": r"[^\t\n\x0B\f\r ]",
}
_IN_CLASS = {**_ESCAPES, "s": r"\t\n\x0B\f\r "}
_PIECES = re.compile(
    r"(?P<escape>\\.)|(?P<class>\[\^?\]?(?:\\.|[^\]\\\[&])*\])|(?P<group>\((?:\?:)?(?!\?))"
    r"|(?P<quantifier>(?:[*+?]|\{\d+(?:,\d*)?\})\??(?!\+))"
    r"|(?P<dot>\.)|(?P<dollar>\$)|(?P<plain>[^\\\[\](){}*+?|.$])|(?P<mark>[)|])",
    re.DOTALL,
)


def translate(pattern: str, *, finds: bool = False) -> tuple[str, int]:
    """Returns the pattern for RE2, and its number of groups. ``$`` is accepted where the matched text does not
    matter.
    """
    parts: list[str] = []
    groups = at = 0
    while at < len(pattern):
        found = _PIECES.match(pattern, at)
        if found is None:
            raise Unrenderable("a regular expression of Java's own kind")
        kind, piece, at = found.lastgroup, found.group(), found.end()
        if kind == "escape":
            piece = _escaped(piece[1], _ESCAPES)
        elif kind == "class":
            piece = re.sub(r"\\(.)", lambda m: _escaped(m.group(1), _IN_CLASS), piece, flags=re.DOTALL)
        elif kind == "dot":
            piece = _DOT
        elif kind == "dollar":
            if not finds:
                raise Unrenderable('"$" in a regular expression that extracts or replaces')
            piece = _DOLLAR
        groups += piece == "("
        parts.append(piece)
    if not _is_one(pattern):
        raise Unrenderable("a regular expression that is none")
    return "".join(parts), groups


def _is_one(pattern: str) -> bool:
    """Returns whether brackets and quantifiers are well-formed."""
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _escaped(char: str, known: dict[str, str]) -> str:
    if char not in known:
        raise Unrenderable(f'"\\{char}" in a regular expression')
    return known[char]


def finds_nothing(pattern: str) -> bool:
    """Returns whether a pattern may match an empty text: Java and RE2 then continue at different places."""
    return re.compile(pattern).search("") is not None or re.search(r"\\[bB]|[\^$]", pattern) is not None


def plain_text(pattern: str) -> str | None:
    """Returns the text that a pattern without operators matches, else None."""
    text = re.sub(r"\\([^0-9A-Za-z])", lambda m: f"\0{ord(m.group(1))};", pattern)
    if re.search(r"[\\\[\](){}*+?|.^$]", text):
        return None
    return re.sub("\0(\\d+);", lambda m: chr(int(m.group(1))), text)


def replacement(text: str, groups: int) -> str:
    """Returns a replacement with ``$1`` in RE2's syntax, with ``\\1``."""

    def one(found: re.Match[str]) -> str:
        if int(found.group(1)) > groups:
            raise Unrenderable("a replacement that names a group which is not there")
        return "\\" + found.group(1)

    if "\\" in text or re.search(r"\$(?![0-9](?![0-9]))", text):
        raise Unrenderable("a replacement with escapes")
    return re.sub(r"\$([0-9])", one, text)
