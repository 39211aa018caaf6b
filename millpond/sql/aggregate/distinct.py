"""Lowers DISTINCT over a stream: each row is returned once, when it first arrives."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.grouping import contains_window, is_aggregated
from millpond.sql.resolve import Resolved


def lower_distinct(resolved: Resolved) -> None:
    """Turns SELECT DISTINCT over a stream into groups of all its columns, and shows only new groups."""
    select = resolved.expression
    if not isinstance(select, exp.Select) or select.args.get("distinct") is None or is_aggregated(select):
        return
    if any(contains_window(p) for p in select.expressions):
        return
    keys: list[exp.Expr] = []
    for output in select.expressions:
        if output.this not in keys:
            keys.append(output.this.copy())
    select.set("distinct", None)
    select.set("group", exp.Group(expressions=keys))
    select.meta["distinct"] = True
