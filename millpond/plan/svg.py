"""Draws a graph as an SVG picture: layers from left to right, in the colours of the page around it."""

from __future__ import annotations

from html import escape
from typing import Any

from millpond.plan.graph import Graph

WIDTH, HEIGHT, GAP_X, GAP_Y, EDGE = 190, 44, 110, 18, 6
NAME_LETTERS, LABEL_LETTERS = 25, 18
_STYLE = (
    ".millpond text{fill:#17242b;font:12px system-ui,sans-serif}.millpond .soft{fill:#5d6f79;font-size:11px}"
    ".millpond path{fill:none;stroke:#5d6f79;stroke-width:1.2}"
    ".millpond rect{fill:#f6f8f9;stroke:#1f6f8b;stroke-width:1.5}"
    "@media(prefers-color-scheme:dark){.millpond text{fill:#e3ecf0}.millpond .soft{fill:#93a5af}"
    ".millpond path{stroke:#93a5af}.millpond rect{fill:#18232a;stroke:#5bb8d6}}"
)
"""A separate class, because the styles of a picture within a page are those of the page."""


def draw_svg(graph: Graph) -> str:
    """Returns the picture; what does not fit is in the titles."""
    places = {
        id_: (column * (WIDTH + GAP_X) + EDGE, row * (HEIGHT + GAP_Y) + EDGE)
        for id_, (column, row) in graph.layers().items()
    }
    wide = max((x for x, _ in places.values()), default=0) + WIDTH + EDGE
    high = max((y for _, y in places.values()), default=0) + HEIGHT + EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="millpond" width="{wide}" height="{high}" '
        f'viewBox="0 0 {wide} {high}">',
        f"<style>{_STYLE}</style>",
    ]
    parts += [_edge(places[a], places[b], about.get("label", "")) for (a, b), about in graph.edges.items()]
    parts += [_node(places[id_], node) for id_, node in graph.nodes.items()]
    return "\n".join([*parts, "</svg>"])


def _edge(start: tuple[int, int], end: tuple[int, int], label: str) -> str:
    a, b, c, d = start[0] + WIDTH, start[1] + HEIGHT // 2, end[0], end[1] + HEIGHT // 2
    middle = (a + c) // 2
    path = f'<path d="M{a} {b}C{middle} {b} {middle} {d} {c} {d}"/>'
    if not label:
        return path
    shown = escape(_cut(label, LABEL_LETTERS))
    return (
        f'<g>{path}<title>{escape(label)}</title><text class="soft" x="{middle}" y="{(b + d) // 2 - 4}" '
        f'text-anchor="middle">{shown}</text></g>'
    )


def _node(place: tuple[int, int], node: dict[str, Any]) -> str:
    x, y = place
    round_ = 20 if node["kind"] == "query" else 6
    return (
        f'<g transform="translate({x} {y})"><title>{escape(node["name"])}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="{round_}"/>'
        f'<text x="12" y="18">{escape(_cut(node["name"], NAME_LETTERS))}</text>'
        f'<text class="soft" x="12" y="34">{escape(node["kind"])}</text></g>'
    )


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if "://" in text else f"{text[: most - 1]}…"
