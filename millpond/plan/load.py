"""Plans a table that is loaded once, from finite sources."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
from sqlglot import exp

from millpond.engine_rule import rule_of
from millpond.plan.plans import LoadPlan, Target
from millpond.sql.catalog import Relation
from millpond.sql.checked import CheckedTableAs
from millpond.sql.errortables import error_table
from millpond.sql.grouping import contains_window, is_aggregated
from millpond.sql.order import SEQ, carry_seq
from millpond.sql.resolve import Input, Resolved
from millpond.sql.running_queries import Streams, from_items
from millpond.types import Column, Schema


def plan_load(checked: CheckedTableAs, name: str, target: Target) -> LoadPlan:
    s, resolved, options = checked.statement, checked.resolved, checked.table_options
    rejects = any(i.relation.rejects for i in resolved.inputs)
    errors = error_table(name) if rejects and checked.query_options.get("on.error") != "fail" else None
    return LoadPlan(
        name,
        s.text,
        resolved,
        target,
        chunk_by(resolved),
        s.place,
        errors,
        once=options.get("refresh") == "once",
        null_keys=bool(options.get("null_keys")),
        source_options=checked.source_options,
        rule=rule_of(checked.query_options),
    )


def plan_copy(relation: Relation) -> LoadPlan:
    """Plans a copy of all columns of a source, in a table of its name."""
    name = relation.name
    source = Input(name, name, dataclasses.replace(relation, kind="source"))
    select = exp.Select(
        expressions=[exp.Column(this=exp.to_identifier(c.name, quoted=True)) for c in relation.schema],
        from_=exp.From(this=exp.Table(this=exp.to_identifier(name, quoted=True))),
    )
    query = Resolved(select, relation.schema, (source,))
    return LoadPlan(f"copy:{name}", "", query, Target("table", name), source)


def with_seq(resolved: Resolved, by: Input) -> Resolved:
    """Returns the query with the sequence numbers of its source's rows as an additional column."""
    tree = resolved.expression.copy()
    streams = Streams(Resolved(tree, resolved.schema, resolved.inputs))
    streams.views = {by.view}
    carry_seq(tree, streams)
    return Resolved(tree, Schema((*resolved.schema.columns, Column(SEQ, pa.int64()))), resolved.inputs)


def chunk_by(resolved: Resolved) -> Input | None:
    """Returns the source whose chunks the query can be evaluated by: its rows are independent."""
    sources = [i for i in resolved.inputs if i.relation.kind == "source"]
    if len(sources) != 1:
        return None
    source = sources[0]
    select = resolved.expression
    while True:
        while isinstance(select, exp.Subquery):
            select = select.this
        if not isinstance(select, exp.Select) or not _row_by_row(select):
            return None
        items = list(from_items(select))
        for item, join in items:
            if isinstance(item, exp.Table) and item.name == source.view:
                kept = all((j.side or "").upper() in ("", "LEFT") for _, j in items if j is not None)
                left = join is None or not join.side
                return source if kept and left and not _elsewhere(select, source.view) else None
        if len(items) != 1 or not isinstance(items[0][0], exp.Subquery):
            return None
        select = items[0][0]


_ORDERED = (
    *(exp.Limit, exp.Offset, exp.Window, exp.First, exp.Last, exp.FirstValue, exp.LastValue, exp.AnyValue),
    *(exp.ArgMax, exp.ArgMin, exp.Mode, exp.ArrayAgg, exp.ArrayUniqueAgg, exp.GroupConcat),
    *(exp.ApproxDistinct, exp.ApproxQuantile),
)


def order_matters(resolved: Resolved, *, keyed: bool) -> bool:
    """Returns whether what a query over all rows leaves in its target depends on their order, or is only near the exact
    result: it is then not the same on several tasks as in one process. A ``keyed`` target keeps the last row of a key.
    """
    if chunk_by(resolved) is not None:
        return False
    return resolved.expression.find(*_ORDERED) is not None or (keyed and not _is_grouped(resolved))


def _is_grouped(resolved: Resolved) -> bool:
    """Returns whether the rows of a query are groups."""
    select = resolved.expression
    while isinstance(select, exp.Subquery):
        select = select.this
    return isinstance(select, exp.Select) and is_aggregated(select)


def _row_by_row(select: exp.Select) -> bool:
    return not (
        is_aggregated(select)
        or any(
            select.args.get(k)
            for k in ("distinct", "order", "limit", "offset", "qualify", "laterals", "with_")
        )
        or any(contains_window(p) for p in select.expressions)
    )


def _elsewhere(select: exp.Select, view: str) -> bool:
    return sum(t.name == view for t in select.find_all(exp.Table)) > 1
