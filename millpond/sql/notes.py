"""Reads sqlglot's notes on the nodes of a tree, and copies trees with them.

``node.meta`` creates a dictionary for each node that it is read from; the private field behind it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sqlglot import exp

_NONE: Mapping[str, Any] = MappingProxyType({})


def notes_of(node: exp.Expr) -> Mapping[str, Any]:
    """Returns the notes of a node, to be read only."""
    return node._meta or _NONE


def copied(tree: exp.Expr) -> exp.Expr:
    """Copies a tree. Does not copy the notes deeply, which takes most of the time of sqlglot's own copy."""
    root = tree.__class__()
    waiting: list[tuple[exp.Expr, exp.Expr]] = [(tree, root)]
    while waiting:
        node, made = waiting.pop()
        made.comments, made._type = node.comments, node._type
        if node._meta is not None:
            made._meta = dict(node._meta)
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                child = value.__class__()
                waiting.append((value, child))
                made.set(key, child)
            elif type(value) is list:
                made.args[key] = []
                for item in value:
                    one = item.__class__() if isinstance(item, exp.Expr) else item
                    if isinstance(item, exp.Expr):
                        waiting.append((item, one))
                    made.append(key, one)
            else:
                made.args[key] = value
    return root
