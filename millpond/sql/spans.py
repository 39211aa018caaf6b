"""Where a piece of a parsed tree stands in the text."""

from __future__ import annotations

from sqlglot import exp


def span_of(node: exp.Expr) -> tuple[int, int] | None:
    """Offsets (start, end) of a node, from the positions its parts carry; None when none does."""
    start: int | None = None
    end: int | None = None
    for part in node.walk():
        meta = part._meta
        if meta and "start" in meta:
            start = meta["start"] if start is None else min(start, meta["start"])
            end = meta["end"] + 1 if end is None else max(end, meta["end"] + 1)
    return None if start is None or end is None else (start, end)


def own_span(node: exp.Expr) -> tuple[int, int] | None:
    """Offsets of the node's own token (a function's name, an identifier)."""
    meta = node._meta
    return (meta["start"], meta["end"] + 1) if meta and "start" in meta else span_of(node)
