"""Finds the columns of tables by which the operators of a view look rows up."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.sql.incremental.lookup_columns import found_by
from millpond.sql.incremental.nodes import (
    GroupNode,
    JoinNode,
    Node,
    ScanNode,
    StepNode,
    UnionNode,
    WindowNode,
    walk,
)

Lookup = tuple[str, tuple[str, ...]]
"""A table, and columns of it."""


def lookups(root: Node) -> list[Lookup]:
    """Returns the lookups, each once."""
    found: dict[Lookup, None] = {}
    for visit in walk(root):
        match visit.node:
            case JoinNode(left=left, right=right, pairs=pairs):
                found |= dict.fromkeys(_below(left, tuple(a for a, _ in pairs)))
                found |= dict.fromkeys(_below(right, tuple(b for _, b in pairs)))
            case GroupNode(regrouped=regrouped) if regrouped is not None:
                found |= dict.fromkeys(_below(regrouped.child, tuple(regrouped.keys)))
            case WindowNode(child=child, columns=columns):
                found |= dict.fromkeys(_below(child, tuple(columns)))
            case _:
                pass
    return list(found)


def _below(node: Node, columns: tuple[int, ...]) -> Iterator[Lookup]:
    """Yields the lookups that find the rows of an operator by these columns."""
    columns = found_by(node, columns)
    if not columns:
        return
    match node:
        case ScanNode():
            yield node.table, tuple(node.names[c] for c in columns)
        case StepNode(child=child, outputs=outputs):
            yield from _below(child, tuple(p for c in columns if (p := outputs.picks[c]) is not None))
        case JoinNode(left=left, right=right):
            width = len(left.types)
            if all(c < width for c in columns):
                yield from _below(left, columns)
            else:
                yield from _below(right, tuple(c - width for c in columns))
        case UnionNode(children=children):
            for child in children:
                yield from _below(child, columns)
        case _:
            return
