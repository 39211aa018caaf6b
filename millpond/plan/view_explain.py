"""Describes how a view is kept, for EXPLAIN."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.plan.plans import ViewPlan
from millpond.sql.incremental.nodes import DistinctNode, GroupNode, IndexNode, Node, SetNode, walk
from millpond.steps import size_text


def explain_view(plan: ViewPlan) -> Iterator[str]:
    """Yields how changes reach the view: its operators with their state, and what is recomputed."""
    if plan.in_commit:
        names = dict.fromkeys(i.relation.name for i in plan.query.inputs)
        yield f"changes in the same commit as its inputs: whoever writes to {', '.join(names)} waits for it"
    if plan.refresh == "full":
        yield "follows its inputs: a change recomputes all rows and compares them, as 'refresh' = 'full' says"
        return
    again = (
        f"a change recomputes the rows with the same {', '.join(plan.parts.columns)}"
        if plan.parts is not None
        else "a change recomputes all rows and compares them"
    )
    root, reason = plan.by_changes.root, plan.by_changes.reason
    if root is None:
        yield f"follows its inputs: {again}"
        yield f"not kept by changes: {reason}"
        return
    rest = "" if plan.refresh == "incremental" else f"; where so many change that it is cheaper, {again}"
    yield f"follows its inputs: by changes through operators{rest}"
    yield from _operators(root)
    grows = growing_state(plan)
    if grows:
        limit = "" if plan.state_limit is None else f", up to {size_text(plan.state_limit)}"
        yield f"state: in memory; it grows with the {grows}{limit}"


def growing_state(plan: ViewPlan) -> str:
    """Returns what the state of the view in memory grows with, in words; empty if it keeps none, or always the same."""
    root = plan.by_changes.root
    if root is None or plan.refresh == "full":
        return ""
    return ", and with the ".join(
        dict.fromkeys(what for visit in walk(root) for what in _grows_with(visit.node))
    )


def _operators(root: Node) -> Iterator[str]:
    """Yields the operators; one that several others read has a number, and is described once."""
    visits = list(walk(root))
    shared = {id(visit.node) for visit in visits if visit.again}
    numbers: dict[int, int] = {}
    for visit in visits:
        start, at = "  " * visit.depth, id(visit.node)
        if at not in shared:
            yield f"{start}operator {visit.node}"
        elif visit.again:
            yield f"{start}operator [{numbers[at]}], as above"
        else:
            numbers[at] = len(numbers) + 1
            yield f"{start}operator [{numbers[at]}] {visit.node}"


def _grows_with(node: Node) -> Iterator[str]:
    """Yields what the state of an operator grows with."""
    match node:
        case GroupNode() if node.keys:
            yield "groups"
            if any(a is not None and a.values is not None for a in node.aggregates):
                yield "different values of groups"
        case GroupNode() if any(a is not None and a.values is not None for a in node.aggregates):
            yield "different values"
        case DistinctNode() | SetNode():
            yield "different rows"
        case IndexNode():
            yield "rows that are joined"
