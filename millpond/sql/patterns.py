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
from millpond.sql.spans import span_of
from millpond.sql.trees import trees_in

Locate = Callable[[int, int], Place]

_LIKES = ("like", "ilike")
_MATCHES = (
    "rlike", "regexp", "regexp_like", "regexp_extract", "regexp_extract_all", "regexp_replace", "regexp_count",
    "regexp_instr", "regexp_substr", "split", "sentences", "str_to_map",
)  # fmt: skip
_OPEN_ENDED = 2
"""Parts of a pattern that can match any number of characters."""
_ATOM = re.compile(
    r"\\Q.*?\\E|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?<?[=!]|\((?:\?(?:[:>]|<\w+>|[a-z]+\)?))?|.", re.DOTALL
)
_TIMES = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})[?+]?")


def check_patterns(value: Any, locate: Locate) -> None:
    """Raises NotSupported for the first pattern of a statement, or of an expression, that Spark must not match."""
    for name, pattern in _patterns(value):
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            raise _refused("over HTTP this pattern must be written out", pattern, locate)
        written = str(pattern.this)
        if name in _LIKES:
            slow = len(re.findall(r"%+", written.strip("%"))) >= _OPEN_ENDED
        else:
            slow = is_slow(written)
        if slow:
            raise _refused("this pattern may take for ever to match", pattern, locate)


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


def is_slow(pattern: str) -> bool:
    """Returns whether a Java regular expression may backtrack too much: a repetition inside another, or of a choice, a
    back reference, or several parts of any length.
    """
    inside: list[bool] = [False]
    """For each open group: whether it contains a repetition or a choice."""
    many, at = 0, 0
    while at < len(pattern):
        atom = _ATOM.match(pattern, at)
        assert atom is not None
        at, piece = atom.end(), atom.group()
        if re.fullmatch(r"\\[1-9k].*", piece):
            return True
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
        if (again and holds) or many > _OPEN_ENDED + 1:
            return True
    return False


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
