"""The statements of an app as a graph: sources, streams, queries, tables and sinks, and what flows between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from millpond.errors import without_passwords
from millpond.sql import statements as st
from millpond.sql.checked import Checked
from millpond.sql.joins.model import all_inputs

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
    """Nodes by id, with kind and name, and edges between ids."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)

    def node(self, kind: str, name: str, **about: Any) -> str:
        name = without_passwords(name)
        id_ = f"{kind}:{name.lower()}"
        self.nodes.setdefault(id_, {"id": id_, "kind": kind, "name": name}).update(about)
        return id_

    def edge(self, start: str, end: str) -> None:
        if (start, end) not in self.edges:
            self.edges.append((start, end))

    def as_json(self) -> dict[str, Any]:
        return {"nodes": list(self.nodes.values()), "edges": [{"from": a, "to": b} for a, b in self.edges]}

    def mermaid(self) -> str:
        """The graph in Mermaid's words."""
        ids = {id_: f"n{number}" for number, id_ in enumerate(self.nodes)}
        lines = ["flowchart LR"]
        for id_, node in self.nodes.items():
            left, right = _SHAPES[node["kind"]]
            label = node["name"].replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
            lines.append(f'    {ids[id_]}{left}"{label}"{right}')
        lines += [f"    {ids[a]} --> {ids[b]}" for a, b in self.edges]
        return "\n".join(lines)


def graph_of(statements: Iterable[Checked]) -> Graph:
    """What the statements declare, read and fill."""
    graph = Graph()
    for number, checked in enumerate(_flat(statements), 1):
        _draw(graph, checked, number)
    return graph


def _flat(statements: Iterable[Checked]) -> Iterable[Checked]:
    for checked in statements:
        yield from checked.block or (checked,)


def _draw(graph: Graph, checked: Checked, number: int) -> None:
    statement, relation = checked.statement, checked.relation
    made = None
    if relation is not None and isinstance(statement, st.CreateStream | st.CreateTable | st.CreateView):
        made = graph.node(relation.kind, relation.name)
        if relation.kind == "stream" and relation.uri and checked.resolved is None:
            graph.edge(graph.node("source", relation.uri), made)
    if checked.resolved is None:
        return
    inputs = (
        *all_inputs(checked.resolved.inputs),
        *(checked.fold.tables if checked.fold is not None else ()),
    )
    read = [graph.node(i.relation.kind, i.relation.name) for i in inputs]
    if made is None and checked.target is None:
        if not checked.running:
            return  # it answers once, and nothing comes of it
        made = graph.node("query", f"select {number}")
    if made is None:
        assert checked.target is not None
        kind = type(statement).__name__.lower()
        target = graph.node(checked.target.kind, checked.target.name)
        made = graph.node("query", f"{kind} {number}", running=checked.running)
        graph.edge(made, target)
    for start in read:
        graph.edge(start, made)
