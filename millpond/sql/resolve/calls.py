"""Checks calls of functions: whether the function exists, and whether a query may call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from sqlglot import exp

from millpond.errors import Place, SqlError, TypeMismatch, UnknownName, did_you_mean
from millpond.extensions import offered
from millpond.sql.calls import called, reaches_outside
from millpond.sql.notes import notes_of
from millpond.sql.userfunctions import UserFunction, offered_function

Locate = Callable[[int, int], Place]
"""The place of a part of the text."""


def wrong_call(
    node: exp.Func, known: Set[str], own: Mapping[str, UserFunction], locate: Locate | None
) -> SqlError | None:
    """Returns what is wrong with a call of a function, whose type is then unknown. A call of one of the user's ``own``
    functions, or of one that another package offers, is marked.
    """
    notes = notes_of(node)
    if isinstance(node, exp.Anonymous):
        name = node.name
    elif "start" in notes and locate:
        place = locate(notes["start"], notes["end"] + 1)
        name = place.text[place.column - 1 : place.column - 1 + place.length]
        if not name.replace("_", "").isalnum():
            return None
    else:
        return None
    refused = reaches_outside(called(node) or name.lower(), node)
    if refused is not None:
        node.meta["dtype"] = None
        return refused
    mine = own.get(name.lower())
    if mine is None:
        if name.lower() in known:
            return None
        mine = offered_function(name.lower())
    if mine is None:
        node.meta["dtype"] = None
        hint = did_you_mean(name, {*known, *offered("function")}, "SHOW FUNCTIONS lists them")
        return UnknownName(f'function "{name}" is not known', hint=hint)
    node.meta.update({"function": mine, "dtype": mine.returns})
    if len(node.expressions) == len(mine.arguments):
        return None
    message = f'function "{mine.name}" takes {len(mine.arguments)} arguments, not {len(node.expressions)}'
    return TypeMismatch(message, hint=mine.signature)
