"""Calls of functions: whether there is such a function, and whether a query may call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING

from sqlglot import exp

from millpond.errors import Place, SqlError, TypeMismatch, UnknownName, did_you_mean
from millpond.sql.calls import called, reaches_outside

if TYPE_CHECKING:
    from millpond.sql.userfunctions import UserFunction

Locate = Callable[[int, int], Place]
"""The place of a part of the text."""


def wrong_call(
    node: exp.Func, known: Set[str], own: Mapping[str, UserFunction], locate: Locate | None
) -> SqlError | None:
    """What is wrong with a call of a function, which is then of no known type. One of the user's ``own`` functions is
    noted at the call."""
    span = node._meta and "start" in node._meta
    if isinstance(node, exp.Anonymous):
        name = node.name
    elif span and locate:
        place = locate(node._meta["start"], node._meta["end"] + 1)  # type: ignore[index]
        name = place.text[place.column - 1 : place.column - 1 + place.length]
        if not name.replace("_", "").isalnum():
            return None
    else:
        return None
    refused = reaches_outside(called(node) or name.lower(), node)
    if refused is not None:
        node.meta["dtype"] = None
        return refused
    if name.lower() not in known:
        node.meta["dtype"] = None
        hint = did_you_mean(name, known, "SHOW FUNCTIONS lists them")
        return UnknownName(f'function "{name}" is not known', hint=hint)
    mine = own.get(name.lower())
    if mine is None:
        return None
    node.meta.update({"function": mine, "dtype": mine.returns})
    if len(node.expressions) == len(mine.arguments):
        return None
    message = f'function "{mine.name}" takes {len(mine.arguments)} arguments, not {len(node.expressions)}'
    return TypeMismatch(message, hint=mine.signature)
