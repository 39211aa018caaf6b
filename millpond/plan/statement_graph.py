"""Builds the graph of statements: sources, streams, queries, tables and sinks, and what flows between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millpond.plan.graph import Graph
from millpond.plan.pipeline import plan_batch, plan_join
from millpond.plan.plans import BatchPlan, JoinPlan
from millpond.predicates import text
from millpond.sql.aggregate import is_live_aggregate, split
from millpond.sql.checked import Checked, CheckedExplain, CheckedQuery, CheckedStream
from millpond.sql.pushdown import pushed


def graph_of(statements: Iterable[Checked]) -> Graph:
    """Returns what the statements of an app declare, read and fill."""
    graph = Graph()
    for number, checked in enumerate(statements, 1):
        kept = checked.running or checked.declares is not None or checked.changes is not None
        if kept and not isinstance(checked, CheckedExplain):
            _draw(graph, checked, f" {number}", alone=False)
    return graph


def graph_of_one(checked: Checked) -> Graph:
    """Returns what one statement reads, how, and what it fills; also for one that runs once."""
    graph = Graph()
    _draw(graph, checked, "", alone=True)
    return graph


def _draw(graph: Graph, checked: Checked, number: str, *, alone: bool) -> None:
    relation, target = checked.declares, checked.changes
    if relation is not None:
        made = graph.node(relation.kind, relation.name)
        if isinstance(checked, CheckedStream) and relation.uri:
            graph.edge(graph.node("source", relation.uri), made)
    elif alone or isinstance(checked, CheckedQuery):
        kind = type(checked.statement).__name__.lower()
        about = {"running": checked.running} if target is not None else {}
        made = graph.node("query", f"{kind}{number}", **about)
        if target is not None:
            graph.edge(made, graph.node(target.kind, target.name))
    else:
        return
    flows = _flows(checked) if alone and isinstance(checked, CheckedQuery) else ()
    said = {name: label.replace("`", "") for name, label in flows}
    for name, kind in ((i.relation.name, i.relation.kind) for i in checked.inputs if not i.relation.rows_of):
        graph.edge(graph.node(kind, name), made, **({"label": said[name]} if said.get(name) else {}))


def _flows(checked: CheckedQuery) -> Iterator[tuple[str, str]]:
    """Yields the names of what is read, with what is read of it or how it is found."""
    for batch in _batches(checked):
        where = f" where {batch.filter}" if batch.filter else ""
        yield batch.stream.relation.name, ", ".join(batch.columns) + where
        for table in batch.tables:
            by = table.lookup
            yield table.table, f"by {', '.join(by.columns)} = {', '.join(by.keys)}" if by else "whole"
    if not checked.running:
        conditions = pushed(checked.resolved)
        for i in checked.resolved.inputs:
            where_ = conditions.get(i.view)
            if where_ is not None and i.relation.place is not None:
                yield i.relation.name, f"where {text(where_)}"


def _batches(checked: CheckedQuery) -> Iterator[BatchPlan]:
    join = plan_join(checked.resolved)
    if join is not None:
        yield from _sides(join)
    if is_live_aggregate(checked.resolved):
        yield plan_batch(split(checked.resolved).partial)
    elif checked.running:
        yield plan_batch(checked.resolved)


def _sides(plan: JoinPlan) -> Iterator[BatchPlan]:
    for side in plan.sides:
        if side.below is not None:
            yield from _sides(side.below)
        yield side.batch
