"""Statements as a graph: sources, streams, queries, tables and sinks, and what flows between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from millpond.errors import without_passwords
from millpond.plan.pipeline import plan_batch, plan_join
from millpond.plan.plans import BatchPlan, JoinPlan
from millpond.predicates import text
from millpond.sql import statements as st
from millpond.sql.aggregate import is_live_aggregate, split
from millpond.sql.checked import Checked
from millpond.sql.joins.model import all_inputs
from millpond.sql.pushdown import pushed

_SHAPES = {
    "source": ("[/", "/]"),
    "stream": ("([", "])"),
    "query": ("{{", "}}"),
    "table": ("[(", ")]"),
    "view": ("[", "]"),
    "sink": ("[\\", "\\]"),
}
"""How Mermaid draws each kind."""


@dataclass
class Graph:
    """Nodes by id, with kind and name, and edges between ids with what is said of them."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    edges: dict[tuple[str, str], str] = field(default_factory=dict)

    def node(self, kind: str, name: str, **about: Any) -> str:
        name = without_passwords(name)
        id_ = f"{kind}:{name.lower()}"
        self.nodes.setdefault(id_, {"id": id_, "kind": kind, "name": name}).update(about)
        return id_

    def edge(self, start: str, end: str, label: str = "") -> None:
        self.edges[start, end] = self.edges.get((start, end)) or label

    def masked(self, mask: Callable[[str], str]) -> Graph:
        """The graph with every text masked; what is written of it afterwards may be quoted and shortened."""
        nodes = {
            mask(id_): {k: mask(v) if isinstance(v, str) else v for k, v in node.items()}
            for id_, node in self.nodes.items()
        }
        return Graph(nodes, {(mask(a), mask(b)): mask(label) for (a, b), label in self.edges.items()})

    def as_json(self) -> dict[str, Any]:
        edges = [
            {"from": a, "to": b, **({"label": label} if label else {})}
            for (a, b), label in self.edges.items()
        ]
        return {"nodes": list(self.nodes.values()), "edges": edges}

    def mermaid(self) -> str:
        """The graph in Mermaid's words."""
        ids = {id_: f"n{number}" for number, id_ in enumerate(self.nodes)}
        lines = ["flowchart LR"]
        for id_, node in self.nodes.items():
            left, right = _SHAPES[node["kind"]]
            lines.append(f'    {ids[id_]}{left}"{_quoted(node["name"])}"{right}')
        for (a, b), label in self.edges.items():
            said = f'|"{_quoted(label)}"|' if label else ""
            lines.append(f"    {ids[a]} -->{said} {ids[b]}")
        return "\n".join(lines)


def _quoted(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace("\n", " ")


def graph_of(statements: Iterable[Checked]) -> Graph:
    """What the statements of an app declare, read and fill."""
    graph = Graph()
    for number, checked in enumerate(_flat(statements), 1):
        if checked.resolved is None or checked.running or _makes(checked) or checked.target is not None:
            _draw(graph, checked, f" {number}", alone=False)
    return graph


def graph_of_one(checked: Checked) -> Graph:
    """What one statement reads, how, and what it fills; also of one that answers once."""
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
        graph.edge(graph.node(i.relation.kind, name), made, said.get(name, ""))


def _flows(checked: Checked) -> Iterator[tuple[str, str]]:
    """The names of what is read, with what is read of it or how it is found."""
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
