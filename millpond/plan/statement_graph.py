"""Builds the graph of statements: sources, streams, queries, tables and sinks, and what flows between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from millpond.plan.graph import Graph
from millpond.plan.plans import BatchPlan, JoinPlan, PipelinePlan
from millpond.plan.statement_plan import Planned
from millpond.predicates import text
from millpond.sql.checked import Checked, CheckedExplain, CheckedQuery, CheckedStream
from millpond.sql.pushdown import pushed


def graph_of(statements: Iterable[Checked]) -> Graph:
    """Returns what the statements of an app declare, read and fill."""
    graph = Graph()
    for number, checked in enumerate(statements, 1):
        kept = checked.running or checked.declares is not None or checked.changes is not None
        if kept and not isinstance(checked, CheckedExplain):
            _draw(graph, checked, f" {number}", {})
    return graph


def graph_of_one(planned: Planned) -> Graph:
    """Returns what one statement reads, how, and what it fills; also for one that runs once."""
    graph = Graph()
    _draw(graph, planned.checked, "", dict(_flows(planned)), alone=True)
    return graph


def _draw(
    graph: Graph, checked: Checked, number: str, labels: Mapping[str, str], *, alone: bool = False
) -> None:
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
    for name, kind in ((i.relation.name, i.relation.kind) for i in checked.inputs if not i.relation.rows_of):
        graph.edge(graph.node(kind, name), made, **({"label": labels[name]} if labels.get(name) else {}))


def _flows(planned: Planned) -> Iterator[tuple[str, str]]:
    """Yields the names of what is read, with what is read of it or how it is found."""
    if isinstance(planned.plan, PipelinePlan):
        for batch in _batches(planned.plan):
            where = f" where {batch.filter}" if batch.filter else ""
            yield batch.stream.relation.name, (", ".join(batch.columns) + where).replace("`", "")
            for table in batch.tables:
                by = table.lookup
                found = f"by {', '.join(by.columns)} = {', '.join(by.keys)}" if by else "whole"
                yield table.table, found.replace("`", "")
    elif isinstance(planned.checked, CheckedQuery):
        conditions = pushed(planned.checked.resolved)
        for i in planned.checked.resolved.inputs:
            where_ = conditions.get(i.view)
            if where_ is not None and i.relation.stored_in is not None:
                yield i.relation.name, f"where {text(where_)}".replace("`", "")


def _batches(plan: PipelinePlan) -> Iterator[BatchPlan]:
    if plan.join is not None:
        yield from _sides(plan.join)
    yield plan.batch


def _sides(plan: JoinPlan) -> Iterator[BatchPlan]:
    for side in plan.sides:
        if side.below is not None:
            yield from _sides(side.below)
        yield side.batch
