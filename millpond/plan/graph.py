"""Defines the graph that EXPLAIN and the dashboard draw: nodes, edges, and their layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from millpond.errors import without_passwords

_SHAPES = {
    "source": ("[/", "/]"),
    "stream": ("([", "])"),
    "query": ("{{", "}}"),
    "table": ("[(", ")]"),
    "view": ("[", "]"),
    "sink": ("[\\", "\\]"),
}
"""The Mermaid shape of each kind."""


@dataclass
class Graph:
    """Contains nodes by id, with kind and name, and edges between ids, each with a label."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    edges: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def node(self, kind: str, name: str, **about: Any) -> str:
        """Adds the node, or its label, and returns its id."""
        name = without_passwords(name)
        id_ = f"{kind}:{name}"
        self.nodes.setdefault(id_, {"id": id_, "kind": kind, "name": name}).update(about)
        return id_

    def edge(self, start: str, end: str, **about: Any) -> None:
        """Adds the edge; of two between the same nodes the first one with a label stays."""
        self.edges[start, end] = self.edges.get((start, end)) or about

    def layers(self) -> dict[str, tuple[int, int]]:
        """Returns each node's column, left to right as the rows flow, and its row in that column."""
        column = dict.fromkeys(self.nodes, 0)
        for _ in self.nodes:
            before = dict(column)
            for a, b in self.edges:
                column[b] = max(column[b], min(column[a] + 1, len(self.nodes) - 1))
            if column == before:
                break
        # What nothing leads to is next to the first that reads it.
        led_to = {b for _, b in self.edges}
        for id_ in self.nodes:
            after = [column[b] for a, b in self.edges if a == id_]
            if after and id_ not in led_to:
                column[id_] = max(0, min(after) - 1)
        filled: Counter[int] = Counter()
        layers = {}
        for id_, at in column.items():
            layers[id_] = (at, filled[at])
            filled[at] += 1
        return layers

    def masked(self, mask: Callable[[str], str]) -> Graph:
        """Returns the graph with every text masked; texts may be quoted and shortened afterwards."""

        def hide(about: dict[str, Any]) -> dict[str, Any]:
            return {k: mask(v) if isinstance(v, str) else v for k, v in about.items()}

        return Graph(
            {mask(id_): hide(node) for id_, node in self.nodes.items()},
            {(mask(a), mask(b)): hide(about) for (a, b), about in self.edges.items()},
        )

    def as_json(self) -> dict[str, Any]:
        """Returns nodes, with their layers, and edges."""
        layers = self.layers()
        return {
            "nodes": [
                {**node, "column": layers[id_][0], "row": layers[id_][1]} for id_, node in self.nodes.items()
            ],
            "edges": [{"from": a, "to": b, **about} for (a, b), about in self.edges.items()],
        }

    def mermaid(self) -> str:
        """Returns the graph in Mermaid's syntax."""
        ids = {id_: f"n{number}" for number, id_ in enumerate(self.nodes)}
        lines = ["flowchart LR"]
        for id_, node in self.nodes.items():
            left, right = _SHAPES[node["kind"]]
            lines.append(f'    {ids[id_]}{left}"{_quoted(node["name"])}"{right}')
        for (a, b), about in self.edges.items():
            said = f'|"{_quoted(about["label"])}"|' if about.get("label") else ""
            lines.append(f"    {ids[a]} -->{said} {ids[b]}")
        return "\n".join(lines)


def _quoted(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace("\n", " ")
