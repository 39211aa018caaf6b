"""Builds the graph of statements: sources, streams, queries, tables and sinks, and what flows between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from millpond.plan.graph import Graph
from millpond.plan.pipeline import plan_batch, plan_join
from millpond.plan.plans import BatchPlan, JoinPlan
from millpond.predicates import text
from millpond.sql import statements as st
from millpond.sql.aggregate import is_live_aggregate, split
from millpond.sql.checked import Checked
from millpond.sql.joins.model import all_inputs
from millpond.sql.pushdown import pushed


def graph_of(statements: Iterable[Checked]) -> Graph:
    """Returns what the statements of an app declare, read and fill."""
    graph = Graph()
    for number, checked in enumerate(_flat(statements), 1):
        if checked.resolved is None or checked.running or _makes(checked) or checked.target is not None:
            _draw(graph, checked, f" {number}", alone=False)
    return graph


def graph_of_one(checked: Checked) -> Graph:
    """Returns what one statement reads, how, and what it fills; also for one that runs once."""
    statement = checked.statement
    if isinstance(statement, st.Explain):
        checked = dataclasses.replace(checked, statement=statement.statement)
    graph = Graph()
    _draw(graph, checked, "", alone=True)
    return graph


def _flat(statements: Iterable[Checked]) -> Iterable[Checked]:
    for checked in statements:
        yield from checked.block or (checked,)


def _makes(checked: Checked) -> bool:
    made = isinstance(checked.statement, st.CreateStream | st.CreateTable | st.CreateView)
    return made and checked.relation is not None


def _draw(graph: Graph, checked: Checked, number: str, *, alone: bool) -> None:
    relation, target = checked.relation, checked.target
    made = None
    if relation is not None and _makes(checked):
        made = graph.node(relation.kind, relation.name)
        if relation.kind == "stream" and relation.uri and checked.resolved is None:
            graph.edge(graph.node("source", relation.uri), made)
    if made is None and (alone or checked.resolved is not None):
        kind = type(checked.statement).__name__.lower()
        about = {"running": checked.running} if target is not None else {}
        made = graph.node("query", f"{kind}{number}", **about)
        if target is not None:
            graph.edge(made, graph.node(target.kind, target.name))
    if checked.resolved is None or made is None:
        return
    said = {name: label.replace("`", "") for name, label in _flows(checked)} if alone else {}
    inputs = (
        *all_inputs(checked.resolved.inputs),
        *(checked.fold.tables if checked.fold is not None else ()),
    )
    for i in inputs:
        name = i.relation.name
        graph.edge(
            graph.node(i.relation.kind, name), made, **({"label": said[name]} if said.get(name) else {})
        )


def _flows(checked: Checked) -> Iterator[tuple[str, str]]:
    """Yields the names of what is read, with what is read of it or how it is found."""
    assert checked.resolved is not None
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


def _batches(checked: Checked) -> Iterator[BatchPlan]:
    assert checked.resolved is not None
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
