"""Shows the place of something in a text, without the passwords in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PASSWORD = re.compile(r"(?<=://)([^\s:/@'\"]*):([^\s/@'\"]+)(?=@)")
_SECRET = (
    r"(?:[\w.-]*(?:password|passwd|secret|token|credential|authorization|cookie|api[-_.]?key"
    r"|jaas\.config|user\.info|private\.key)[\w.-]*|(?:\w+\.)?(?:header|fs)\.[\w.-]+)"
)
_SETTING = re.compile(
    rf"""(['"]{_SECRET}['"]\s*=\s*)('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")""", re.IGNORECASE
)
_PARAMETER = re.compile(
    rf"([?&](?:{_SECRET}|(?:[\w.-]*[-_.])?(?:key|sig|signature|auth)|access[\w.-]*)=)([^&\s'\"]+)",
    re.IGNORECASE,
)
_LONG_LINE = 400
"""Characters of a line that a message shows."""
_LOOKED_AT = 20_000


def without_passwords(text: str) -> str:
    """Returns the text with stars for the password of every URI in it, as many as it has letters, and for the values of
    settings whose names mark them as secret.
    """
    text = _PASSWORD.sub(lambda m: f"{m[1]}:{'*' * len(m[2])}", text)
    text = _SETTING.sub(lambda m: f"{m[1]}'***'", text)
    return _PARAMETER.sub(lambda m: f"{m[1]}***", text)


@dataclass(frozen=True, slots=True)
class Place:
    """Describes a place in a text: 1-based line and column, and the line itself."""

    line: int
    column: int
    length: int
    text: str

    @staticmethod
    def of(text: str, start: int, end: int | None = None) -> Place:
        """Returns the place of ``text[start:end]``."""
        start = max(0, min(start, len(text)))
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", start)
        if line_end < 0:
            line_end = len(text)
        stop = min(end if end is not None else start + 1, line_end)
        return Place(
            line=text.count("\n", 0, start) + 1,
            column=start - line_start + 1,
            length=max(1, stop - start),
            text=text[line_start:line_end].rstrip("\r"),
        )

    def caret(self) -> str:
        """Returns the line, without passwords, with a caret under the place. Of a long line, returns what is near the
        place.
        """
        text, at, length = self.text, self.column - 1, self.length
        if len(text) > _LOOKED_AT:  # what is far away is neither searched for passwords nor shown
            first = max(0, at - _LOOKED_AT // 2)
            text, at = text[first : first + _LOOKED_AT], at - first
        line = without_passwords(text)
        if len(line) > _LONG_LINE:
            first = max(0, at - _LONG_LINE // 2)
            end = first + _LONG_LINE
            lead, rest = "…" * (first > 0), "…" * (end < len(line))
            line, at = lead + line[first:end] + rest, at - first + len(lead)
            length = max(1, min(length, len(line) - at))
        pad = "".join("\t" if c == "\t" else " " for c in line[:at])
        return f"{line}\n{pad}{'^' * length}"


@dataclass(frozen=True, slots=True)
class Caution:
    """Describes a warning about a statement that can run: what, what to do about it, and where it is."""

    message: str
    hint: str
    place: Place | None = None
