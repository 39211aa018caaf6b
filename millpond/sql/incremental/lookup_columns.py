"""Says by which columns the rows of an operator are found."""

from __future__ import annotations

from millpond.sql.incremental.nodes import (
    DistinctNode,
    GroupNode,
    IndexNode,
    JoinNode,
    Node,
    ScanNode,
    SetNode,
    StepNode,
    TopNode,
    UnionNode,
    WindowNode,
    is_key,
)


def finds(node: Node, columns: tuple[int, ...]) -> bool:
    """Returns whether the rows of an operator can be found by the values of these columns, without reading all; if
    there are no columns, whether all can be read.
    """
    return bool(found_by(node, columns)) if columns else _lists(node)


def _lists(node: Node) -> bool:
    match node:
        case ScanNode() | GroupNode() | IndexNode() | DistinctNode() | TopNode():
            return True
        case StepNode(child):
            return _lists(child)
        case JoinNode(left=left):
            return _lists(left)
        case UnionNode(children):
            return all(_lists(child) for child in children)
        case WindowNode() | SetNode():
            return False


def found_by(node: Node, columns: tuple[int, ...]) -> tuple[int, ...]:
    """Returns those of the columns by which the rows of an operator are found; none if they cannot."""
    match node:
        case ScanNode():
            return tuple(c for c in dict.fromkeys(columns) if is_key(node.types[c]))
        case StepNode(child, outputs):
            below = {p: c for c in columns if (p := outputs.picks[c]) is not None}
            return tuple(below[p] for p in found_by(child, tuple(below)))
        case GroupNode(outputs=outputs, keys=keys):
            picked = {outputs.picks[c]: c for c in columns}
            found = [picked.get(k) for k in range(keys)]
            return tuple(c for c in found if c is not None) if keys and None not in found else ()
        case JoinNode(kind, left, right, pairs):
            width = len(left.types)
            own = found_by(left, tuple(c for c in columns if c < width))
            if own or kind != "inner":
                return own
            other = found_by(right, tuple(c - width for c in columns if c >= width))
            return tuple(c + width for c in other) if finds(left, tuple(p for p, _ in pairs)) else ()
        case UnionNode(children):
            sides = [set(found_by(child, columns)) for child in children]
            return tuple(c for c in dict.fromkeys(columns) if all(c in side for side in sides))
        case IndexNode():
            return tuple(c for c in dict.fromkeys(columns) if is_key(node.types[c]))
        case DistinctNode():
            return tuple(dict.fromkeys(columns)) if set(columns) == set(range(len(node.types))) else ()
        case TopNode() | WindowNode() | SetNode():
            return ()
