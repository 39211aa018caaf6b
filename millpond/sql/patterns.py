"""Checks patterns that a client lets Spark match: only those that cannot take forever are allowed.

DuckDB matches in time that grows with the text. Java backtracks, cannot be stopped while it does, and occupies a core
of Spark all the time: for some patterns longer than a lifetime.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from sqlglot import exp

from millpond.errors import NotSupported, Place
from millpond.sql.calls import arguments_of, called
from millpond.sql.growth import longest_text
from millpond.sql.spans import span_of
from millpond.sql.trees import trees_in

Locate = Callable[[int, int], Place]

_LIKES = ("like", "ilike")
_MATCHES = (
    "rlike", "regexp", "regexp_like", "regexp_extract", "regexp_extract_all", "regexp_replace", "regexp_count",
    "regexp_instr", "regexp_substr", "split", "sentences", "str_to_map",
)  # fmt: skip
_OPEN_ENDED = 3
"""How many parts of a pattern may match any number of characters."""
_TEXTS = {1: 20_000, 2: 1_000, 3: 200}
"""How long the texts of a client may be by the number of these parts: each multiplies the time by the length, and so
does the search for the place where a match begins.
"""
_ATOM = re.compile(
    r"\\Q.*?\\E|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?<?[=!]|\((?:\?(?:[:>]|<\w+>|[a-z]+\)?))?|.", re.DOTALL
)
_TIMES = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})[?+]?")


def check_patterns(value: Any, locate: Locate) -> None:
    """Raises NotSupported for the first pattern of a statement, or of an expression, that Spark must not match."""
    longest: float | None = None
    for name, pattern in _patterns(value):
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            raise _refused("over HTTP this pattern must be written out", pattern, locate)
        parts = _parts_of_like(str(pattern.this)) if name in _LIKES else open_ended(str(pattern.this))
        if parts is None:
            raise _refused("this pattern may take for ever to match", pattern, locate)
        if not parts:
            continue
        longest = longest_text(value, locate) if longest is None else longest
        if longest > _TEXTS[parts]:
            raise _refused(
                f"this pattern may take for ever to match a text of more than {_TEXTS[parts]:,} characters, "
                "and the statement makes longer ones",
                pattern,
                locate,
            )


def _parts_of_like(pattern: str) -> int | None:
    parts = len(re.findall(r"%+", pattern.strip("%")))
    return parts if parts < _OPEN_ENDED - 1 else None


def _refused(what: str, pattern: exp.Expr, locate: Locate) -> NotSupported:
    span = span_of(pattern) or (span_of(pattern.parent) if pattern.parent is not None else None)
    return NotSupported(
        what,
        hint="use contains(), startswith() or a simpler pattern, without repetitions inside of repetitions",
        place=locate(*span) if span is not None else None,
    )


def has_patterns(value: Any) -> bool:
    """Returns whether any pattern is matched."""
    return next(_patterns(value), None) is not None


def open_ended(pattern: str) -> int | None:
    """Returns how many parts of a Java regular expression match any number of characters. None if it may backtrack too
    much: a repetition inside another, or of a choice, a back reference, or too many such parts.
    """
    inside: list[bool] = [False]
    """For each open group: whether it contains a repetition or a choice."""
    many, at = 0, 0
    while at < len(pattern):
        atom = _ATOM.match(pattern, at)
        assert atom is not None
        at, piece = atom.end(), atom.group()
        if re.fullmatch(r"\\[1-9k].*", piece):
            return None
        holds = False
        if piece.startswith("(") and not piece.endswith(")"):
            inside.append(False)
            continue
        if piece == ")" and len(inside) > 1:
            holds = inside.pop()
            inside[-1] |= holds
        elif piece == "|":
            inside[-1] = True
            continue
        times = _TIMES.match(pattern, at)
        if times is None:
            continue
        at, count = times.end(), times.group()
        inside[-1] = True
        many += count[0] in "*+" or "," in count
        again = count[0] != "?" and not count.startswith(("{0,1}", "{1}"))
        if (again and holds) or many > _OPEN_ENDED:
            return None
    return many


def _patterns(value: Any) -> Iterator[tuple[str, exp.Expr]]:
    """Yields the patterns with the names of the functions that match them."""
    for tree in trees_in(value):
        for node in tree.walk():
            yield from _of(node)


def _of(node: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    if isinstance(node, exp.Like | exp.ILike):
        several = node.expression
        if isinstance(several, exp.Any | exp.All):
            inner = several.this
            items = inner.expressions if isinstance(inner, exp.Tuple) else [getattr(inner, "this", inner)]
            yield from (("like", item) for item in items)
        else:
            yield "like", several
    elif isinstance(node, exp.RegexpLike | exp.RegexpILike):
        yield "rlike", node.expression
    else:
        name = called(node)
        if name in _MATCHES or name in _LIKES:
            given = arguments_of(node)
            for pattern in given[1:] if name == "str_to_map" else given[1:2]:
                yield str(name), pattern
