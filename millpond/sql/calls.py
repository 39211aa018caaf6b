"""Finds the functions that a statement calls, by the names in the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from millpond.errors import NotSupported
from millpond.sql.functions import FOR_CLIENTS, by_name, function_classes
from millpond.sql.notes import notes_of
from millpond.sql.trees import trees_in

CALLED = "called"
"""The key in an expression's meta: the lower-case name of the function as written."""


def called(node: exp.Expr) -> str | None:
    """Returns the lower-case name of the function that a node calls; None for operators and other syntax."""
    if not isinstance(node, exp.Func):
        return None
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower()
    name = notes_of(node).get(CALLED)
    if name:
        return str(name)
    known = function_classes()
    return next((n for n in (s.lower() for s in node.sql_names()) if n in known), None)


def calls_in(value: Any) -> Iterator[tuple[str, exp.Expr]]:
    """Yields every function that a statement or expression calls, with its node. Searches the statement as parsed, not
    the views that it names.
    """
    for tree in trees_in(value):
        for node in tree.walk():
            name = called(node)
            if name is not None:
                yield name, node


def calls_for_everybody(value: Any) -> bool:
    """Returns whether a statement or expression calls only built-in functions that clients may also call."""
    classes = function_classes()
    return all(classes.get(name) in FOR_CLIENTS for name, _ in calls_in(value))


def reaches_outside(name: str, node: exp.Expr) -> NotSupported | None:
    """Returns the error for a call that would reach outside SQL, whoever makes it."""
    if function_classes().get(name) == "outside":
        return NotSupported(
            f'function "{name}" reaches files, hosts or the JVM, and is not called',
            hint="write what it would do as a Python function: @app.function",
        )
    row = by_name().get(name)
    if row is None or row.outside is None:
        return None
    at, option = row.outside
    for options in arguments_of(node)[at:]:
        texts = [str(n.this).lower() for n in options.find_all(exp.Literal)]
        if option in texts:
            return NotSupported(
                f'the option "{option}" of {name} names a file or host outside, and is not used',
                hint="leave it out",
            )
        if not all(isinstance(n, exp.Literal) or called(n) in ("map", "array") for n in options.walk()):
            return NotSupported(
                f"the options of {name} are not written out", hint="write them as map('name', 'value')"
            )
    return None


def arguments_of(node: exp.Expr) -> list[exp.Expr]:
    """Returns the arguments of a call, in order."""
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    found: list[exp.Expr] = []
    for value in node.args.values():
        found += [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, exp.Expr)]
    return found
