"""Replaces the literals of a text: texts that differ only in them share a template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

LONGEST = 4_000
"""Longer texts are not worth the search."""
# Each alternative begins with its characteristic character, so that the search skips all others.
_TOKEN = re.compile(
    r"'(?<!\w')(?P<text>[^'\\$]*(?:''[^'\\$]*)*)'"
    r"|[0-9](?<![\w.$:`][0-9])(?P<number>[0-9]{0,17}(?:\.[0-9]{1,18})?)(?![\w.])"
    r"|(?P<mark>\?)"
    r"|:(?<![\w:]:)(?P<name>[^\W\d]\w*)"
    r"|(?P<kept>`[^`]*`|--[^\n]*|;\s*\Z)"
    r"|(?P<odd>['\"\\;]|/\*|\$\{|://)"
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Represents a value that the caller passes: by its number, or by its name in lower case."""

    which: int | str


@dataclass(frozen=True, slots=True)
class Template:
    """Represents a text without its literals. ``text`` has a parameter ``:__v0``, ``:__v1``, … in place of each literal
    and parameter of the original; ``holes`` are the literals' values and the parameters, ``places`` where each begins
    and ends in the original.
    """

    text: str
    holes: tuple[Any, ...]
    places: tuple[tuple[int, int], ...]

    def values(self, params: Sequence[Any] | Mapping[str, Any] | None) -> tuple[Any, ...] | None:
        """Returns the values for the holes; None if ``params`` do not match the parameters of the text."""
        asked = [h.which for h in self.holes if isinstance(h, Parameter)]
        if params is None:
            return None if asked else self.holes
        if isinstance(params, Mapping):
            given: Mapping[Any, Any] = {str(name).lower(): value for name, value in params.items()}
        else:
            given = dict(enumerate(params))
        if set(asked) != set(given) or len(given) != len(params):
            return None
        return tuple(given[h.which] if isinstance(h, Parameter) else h for h in self.holes)


def template_of(text: str) -> Template | None:
    """Returns the text without its literals; None for one with parts that only the parser understands."""
    if len(text) > LONGEST:
        return None
    parts: list[str] = []
    holes: list[Any] = []
    places: list[tuple[int, int]] = []
    at = marks = 0
    for found in _TOKEN.finditer(text):
        kind, value = found.lastgroup, found[0]
        if kind == "kept":
            continue
        if kind == "odd":
            return None
        if kind == "text":
            holes.append(value[1:-1].replace("''", "'"))
        elif kind == "number":
            holes.append(Decimal(value) if "." in value else int(value))
        elif kind == "mark":
            holes.append(Parameter(marks))
            marks += 1
        else:
            holes.append(Parameter(found["name"].lower()))
        start, end = found.span()
        parts += (text[at:start], f":{name_of(len(holes) - 1)}")
        places.append((start, end))
        at = end
    return Template("".join((*parts, text[at:])), tuple(holes), tuple(places))


def name_of(hole: int) -> str:
    """Returns the name of a hole's parameter."""
    return f"__v{hole}"
