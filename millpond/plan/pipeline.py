"""A checked running statement becomes a pipeline."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.plan.lookups import table_inputs
from millpond.plan.plans import BatchPlan, MissPlan, PipelinePlan, Target, target_of
from millpond.sql.aggregate import is_live_aggregate, split
from millpond.sql.checked import Checked
from millpond.sql.grouping import is_aggregated
from millpond.sql.render import spark
from millpond.sql.resolve import Input, Resolved
from millpond.sql.running import Streams, from_items
from millpond.types import Column, Schema, quote

SEQ = "_seq"


def plan_pipeline(checked: Checked, name: str, target: Target) -> PipelinePlan:
    assert checked.resolved is not None
    aggregation = split(checked.resolved) if is_live_aggregate(checked.resolved) else None
    return PipelinePlan(
        name=name,
        text=checked.statement.text,
        batch=plan_batch(aggregation.partial if aggregation is not None else checked.resolved),
        target=target,
        reads=checked.reads,
        place=checked.statement.place,
        aggregation=aggregation,
        fold=checked.fold,
        on_error=checked.query_options.get("on.error", "table"),
        errors_into=getattr(checked.statement, "errors_into", None),
        miss=_plan_misses(checked),
    )


def plan_block(checked: Checked, name: str) -> PipelinePlan:
    """BEGIN … COMMIT over a stream: one pipeline."""
    assert checked.resolved is not None
    members = tuple(
        plan_pipeline(c, f"{name}.{n}", target_of(c.target))
        for n, c in enumerate(checked.block)
        if c.target is not None
    )
    tables = [m.target for m in members if m.target.kind == "table"]
    return PipelinePlan(
        name=name,
        text=checked.statement.text,
        batch=plan_batch(checked.resolved),
        target=(tables or [members[0].target])[0],
        reads=checked.reads,
        place=checked.statement.place,
        block=members,
    )


def _plan_misses(checked: Checked) -> MissPlan | None:
    if checked.misses is None:
        return None
    query, tables = checked.misses
    return MissPlan(plan_batch(query), tables, checked.query_options.get("on.miss") == "fail")


def plan_batch(resolved: Resolved, by: Input | None = None) -> BatchPlan:
    """The batch stage of a query over one stream, or over the source ``by`` read in chunks."""
    stream = by or next(i for i in resolved.inputs if i.relation.running)
    tree = resolved.expression.copy()
    streams = Streams(Resolved(tree, resolved.schema, resolved.inputs))
    streams.views = {stream.view}
    grouped = isinstance(tree, exp.Select) and is_aggregated(tree)
    if not grouped:
        _carry_seq(tree, streams)
    direct = _select_of(tree, stream.view)
    needed = _columns_of(tree, stream, direct)
    inputs = tuple(i for i in resolved.inputs if i.view != stream.view)
    order = () if grouped else (Column(SEQ, pa.int64()),)
    # Beside rows of a table that no row of the stream meets, conditions on the stream do not come first.
    plain = direct is not None and not streams.keeps_table_rows(direct)
    return BatchPlan(
        stream=stream,
        columns=needed,
        filter=_stream_filter(direct, stream) if direct is not None and plain else None,
        tables=table_inputs(
            Resolved(tree, resolved.schema, inputs), direct or tree, stream.alias if plain else None
        ),
        query=Resolved(tree, Schema((*resolved.schema.columns, *order)), resolved.inputs),
        sql=spark.render(tree),
        output=resolved.schema,
        keeps=_keeps(tree, streams),
    )


def _keeps(tree: exp.Expr, streams: Streams) -> bool:
    return any(streams.keeps_table_rows(select) for select in tree.find_all(exp.Select))


def _carry_seq(query: exp.Expr, streams: Streams) -> None:
    """Every SELECT from the stream to the outermost also gives the stream's ``_seq``."""
    while isinstance(query, exp.Subquery):
        query = query.this
    for item, _ in from_items(query):
        if not streams.is_stream(item):
            continue
        if isinstance(item, exp.Subquery):
            _carry_seq(item.this, streams)
        elif isinstance(item, exp.Table) and item.name not in streams.views:
            inner = streams.ctes[item.name.lower()]
            if not any(p.alias == SEQ for p in inner.expressions):
                _carry_seq(inner, streams)
        names = item.args.get("alias")
        if isinstance(names, exp.TableAlias) and names.args.get("columns"):
            names.append("columns", exp.to_identifier(SEQ, quoted=True))
        column = exp.Column(
            this=exp.to_identifier(SEQ, quoted=True),
            table=exp.to_identifier(item.alias_or_name, quoted=True),
        )
        column.meta["dtype"] = pa.int64()
        query.append("expressions", exp.alias_(column, SEQ, quoted=True))
        return


def _select_of(tree: exp.Expr, view: str) -> exp.Select | None:
    """The SELECT that reads the stream itself, when only renaming SELECTs stand around it."""
    select = tree
    while True:
        while isinstance(select, exp.Subquery):
            select = select.this
        if not isinstance(select, exp.Select):
            return None
        items = list(from_items(select))
        if any(isinstance(i, exp.Table) and i.name == view for i, _ in items):
            return select
        if len(items) != 1 or not isinstance(items[0][0], exp.Subquery) or select.args.get("where"):
            return None
        select = items[0][0]


def _columns_of(tree: exp.Expr, stream: Input, direct: exp.Select | None) -> tuple[str, ...]:
    """The columns of the stream that the query names."""
    alias = stream.alias.lower()
    used = {c.name.lower() for c in tree.find_all(exp.Column) if c.table.lower() == alias}
    if direct is None:
        return stream.relation.schema.names
    return tuple(n for n in stream.relation.schema.names if n.lower() in used)


def _stream_filter(select: exp.Select, stream: Input) -> str | None:
    """The conjuncts of WHERE that look at the stream alone."""
    where = select.args.get("where")
    if where is None:
        return None
    parts: list[exp.Expr] = []

    def collect(node: exp.Expr) -> None:
        node = node.unnest()
        if isinstance(node, exp.And):
            collect(node.left)
            collect(node.right)
        elif not node.find(exp.Select) and all(
            c.table.lower() == stream.alias.lower() for c in node.find_all(exp.Column)
        ):
            parts.append(exp.Paren(this=node.copy()))

    collect(where.this)
    return " AND ".join(spark.expression(p) for p in parts) or None


def stream_select(batch: BatchPlan) -> str:
    """The stream stage as a projection: the columns that the batch needs."""
    return ", ".join(quote(c) for c in (*batch.columns, SEQ))
