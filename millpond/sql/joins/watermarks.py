"""Finds the watermark that the times of an input follow."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millpond.sql.joins.model import JoinedStreams, StreamWatermark
from millpond.sql.nodes import WindowStart
from millpond.sql.resolve import Input, Resolved
from millpond.sql.running_queries import from_items
from millpond.sql.windowing import micros


def watermark_of(item: exp.Expr, column: str, inputs: Sequence[Input]) -> StreamWatermark | None:
    """Returns the watermark that a column of an item of FROM follows, if it is an unchanged column of the stream."""
    alias = item.args.get("alias")
    renamed = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    place = next((n for n, c in enumerate(renamed or ()) if c.name.lower() == column.lower()), None)
    if isinstance(item, exp.Table):
        stream = next((i.relation for i in inputs if i.view == item.name), None)
        if stream is None:
            return None
        if place is not None:
            column = stream.schema.names[place]
        if isinstance(stream, JoinedStreams):
            join = stream.join
            times = [s.time for s in join.sides]
            return (
                StreamWatermark(column, 0)
                if column in times and join.bounded(0) and join.bounded(1)
                else None
            )
        mark = stream.watermark
        if mark is None or mark.column.lower() != column.lower():
            return None
        return StreamWatermark(mark.column, micros(mark.seconds))
    select = item.this if isinstance(item, exp.Subquery) else None
    if not isinstance(select, exp.Select):
        return None
    outputs = select.expressions
    found = (
        outputs[place]
        if place is not None
        else next((o for o in outputs if o.alias.lower() == column.lower()), None)
    )
    value = found.unalias() if found is not None else None
    if not isinstance(value, exp.Column):
        return None
    inner = next((i for i, _ in from_items(select) if i.alias_or_name.lower() == value.table.lower()), None)
    return None if inner is None else watermark_of(inner, value.name, inputs)


def window_watermark(resolved: Resolved) -> str | None:
    """Returns the column of joined rows that says how far the time of the query's window has come."""
    group = resolved.expression.args.get("group")
    start = next((k for k in group.expressions if isinstance(k, WindowStart)), None) if group else None
    if start is None or not isinstance(start.this, exp.Column):
        return None
    table = start.this.table.lower()
    item = next((i for i, _ in from_items(resolved.expression) if i.alias_or_name.lower() == table), None)
    mark = watermark_of(item, start.this.name, resolved.inputs) if item is not None else None
    return mark.column if mark is not None else None
