"""Finds where a part of a parsed tree is in the text."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.notes import notes_of


def span_of(node: exp.Expr) -> tuple[int, int] | None:
    """Returns the offsets (start, end) of a node, from the positions of its parts; None if no part has one."""
    start: int | None = None
    end: int | None = None
    for part in node.walk():
        meta = notes_of(part)
        if "start" in meta:
            start = meta["start"] if start is None else min(start, meta["start"])
            end = meta["end"] + 1 if end is None else max(end, meta["end"] + 1)
    return None if start is None or end is None else (start, end)


def own_span(node: exp.Expr) -> tuple[int, int] | None:
    """Returns the offsets of the node's own token (a function's name, an identifier)."""
    meta = notes_of(node)
    return (meta["start"], meta["end"] + 1) if "start" in meta else span_of(node)
