"""Lists the queries that operators of a view evaluate."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.sql.incremental.nodes import (
    DistinctNode,
    GroupNode,
    IndexNode,
    JoinNode,
    Node,
    SetNode,
    StepNode,
    TopNode,
    WindowNode,
)
from millpond.sql.resolve import Resolved


def queries(node: Node) -> Iterator[Resolved]:
    """Yields the queries that one operator evaluates."""
    match node:
        case StepNode(outputs=outputs):
            yield outputs.query
        case GroupNode(regrouped=regrouped, outputs=outputs):
            yield outputs.query
            yield from () if regrouped is None else (regrouped.query,)
        case JoinNode(residual=residual):
            yield from () if residual is None else (residual.query,)
        case WindowNode(query=query):
            yield query
    yield from loads(node)


def loads(node: Node) -> Iterator[Resolved]:
    """Yields the queries that set the state of one operator."""
    if isinstance(node, GroupNode | DistinctNode | IndexNode | TopNode):
        yield node.load
    if isinstance(node, SetNode):
        yield from node.loads
    if isinstance(node, GroupNode):
        yield from (a.values for a in node.aggregates if a is not None and a.values is not None)
