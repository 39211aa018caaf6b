"""Turns a checked running statement into a pipeline plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypedDict

import pyarrow as pa
from sqlglot import exp

from millpond.changelog import CHANGES, KEY, changelog_schema
from millpond.connectors.source import DELETED, MESSAGE
from millpond.engine_rule import EngineRule, rule_of
from millpond.errors import Place
from millpond.plan.lookups import table_inputs
from millpond.plan.plans import (
    WAIT,
    BatchPlan,
    BlockPlan,
    ChangesPlan,
    FoldPlan,
    GroupsPlan,
    JoinedStreamPlan,
    JoinPlan,
    KeyedPlan,
    KeyPlan,
    MissPlan,
    PipelinePlan,
    RowsPlan,
    SidePlan,
    StatementPlan,
    Target,
    target_of,
)
from millpond.sql.aggregate import Aggregation, is_live_aggregate, split
from millpond.sql.catalog import Relation
from millpond.sql.checked import ChangesForm, CheckedBlock, CheckedFold, CheckedInsert, CheckedRunnable
from millpond.sql.grouping import is_aggregated
from millpond.sql.joins import JoinedStreams, Side, joins_of
from millpond.sql.lineage import over_stream
from millpond.sql.materialized_view import changing_functions
from millpond.sql.on_miss import miss_options
from millpond.sql.order import SEQ, carry_seq
from millpond.sql.render import spark
from millpond.sql.resolve import Input, Resolved
from millpond.sql.running_queries import Streams, from_items
from millpond.sql.userfunctions import functions_in
from millpond.types import Column, Schema, quote


class _Every(TypedDict):
    """Lists what the plans of all kinds have."""

    name: str
    text: str
    target: Target
    reads: tuple[str, ...]
    place: Place | None


def _every(checked: CheckedRunnable, name: str, target: Target) -> _Every:
    s = checked.statement
    return _Every(name=name, text=s.text, target=target, reads=checked.reads, place=s.place)


class _Handling(TypedDict):
    """Lists what happens to rows that cannot be processed, and before the first one is."""

    on_error: Literal["table", "fail"]
    errors_into: str | None
    miss: MissPlan | None
    wait: float
    rule: EngineRule
    start: Literal["earliest", "latest"] | None
    join: JoinPlan | None


def plan_pipeline(checked: CheckedRunnable, name: str, target: Target) -> StatementPlan:
    """Plans a running statement. A block writes to the targets of its members."""
    if isinstance(checked, CheckedBlock):
        return plan_block(checked, name)
    return _plan_member(checked, name, target)


def _plan_member(checked: CheckedRunnable, name: str, target: Target) -> RowsPlan | GroupsPlan | FoldPlan:
    query, options, every = checked.resolved, checked.query_options, _every(checked, name, target)
    handling = _Handling(
        on_error=options.get("on.error", "table"),
        errors_into=getattr(checked.statement, "errors_into", None),
        miss=_plan_misses(checked),
        wait=options.get("table.wait.timeout", WAIT),
        rule=rule_of(options),
        start=options.get("start"),
        join=plan_join(query),
    )
    if isinstance(checked, CheckedFold):
        return FoldPlan(**every, **handling, batch=plan_batch(query), fold=checked.fold)
    if is_live_aggregate(query):
        aggregation = split(query)
        batch, mark = plan_batch(aggregation.partial), _plan_mark(query, aggregation)
        return GroupsPlan(**every, **handling, batch=batch, aggregation=aggregation, mark=mark)
    if checked.form is not None:
        return _plan_changes(checked, checked.form, every, handling)
    batch, keys = plan_batch(query), _plan_keys(query, checked.changes, target)
    if keys is not None:
        return KeyedPlan(**every, **handling, batch=batch, keys=keys)
    return RowsPlan(**every, **handling, batch=batch)


def _plan_changes(
    checked: CheckedRunnable, form: ChangesForm, every: _Every, handling: _Handling
) -> ChangesPlan:
    """Plans a statement over the changes of a table: its batches are rows of a changelog of its own."""
    batch, target = plan_batch(checked.resolved), checked.changes
    table = batch.stream.relation
    assert target is not None
    named = checked.sink_options.get("key") if isinstance(checked, CheckedInsert) else None
    if form.style == "message" and KEY in checked.resolved.schema:
        named = KEY
    known = {n.lower(): n for n in checked.resolved.schema.names}
    wanted = [n.strip() for n in str(named or "").split(",") if n.strip()]
    changelog = Relation(f"{every['name']}{CHANGES}", "stream", changelog_schema(table.schema), running=True)
    return ChangesPlan(
        **every,
        **handling,
        batch=replace(batch, stream=replace(batch.stream, relation=changelog)),
        table=table.name,
        key=table.schema.key,
        named_by=tuple(known.get(n.lower(), n) for n in wanted),
        form=form,
        written=target.schema,
    )


def _plan_keys(resolved: Resolved, relation: Relation | None, target: Target) -> KeyPlan | None:
    """Plans which rows of a keyed target messages of the stream delete, if they can."""
    if target.kind != "table" or relation is None or not relation.schema.key:
        return None
    stream = next((i for i in resolved.inputs if i.relation.running), None)
    ended = stream.relation.schema.find(DELETED) if stream is not None else None
    if stream is None or ended is None or ended.type != pa.bool_():
        return None
    found = {name: over_stream(resolved, name, stream) for name in relation.schema.key}
    values = [(name, value) for name, value in found.items() if value is not None]
    if len(values) < len(found):
        return KeyPlan()
    select = exp.Select(
        expressions=[exp.alias_(value, name, quoted=True) for name, value in values],
        from_=exp.From(this=_table_of(stream)),
    )
    key = tuple(c for name in relation.schema.key if (c := relation.schema.find(name)) is not None)
    batch = plan_batch(Resolved(select, Schema(key), (stream,)))
    return KeyPlan(tuple(c for c in batch.columns if c.lower() not in MESSAGE), batch)


def _table_of(stream: Input) -> exp.Table:
    """Returns the stream as an item of FROM, by its alias."""
    alias = exp.TableAlias(this=exp.to_identifier(stream.alias, quoted=True))
    return exp.Table(this=exp.to_identifier(stream.view), alias=alias)


def plan_join(resolved: Resolved) -> JoinPlan | None:
    """Plans the join of streams that a query reads, if it does."""
    joined = next((i.relation for i in resolved.inputs if isinstance(i.relation, JoinedStreams)), None)
    if joined is None:
        return None
    left, right = (_plan_side(side) for side in joined.join.sides)
    return JoinPlan(joined.join, (left, right))


def _plan_side(side: Side) -> SidePlan:
    below = plan_join(side.query)
    mark = plan_highest(side.query, side.mark.column) if side.mark is not None and below is None else None
    return SidePlan(side.alias, plan_batch(side.query), mark, below)


def plan_sides(plan: PipelinePlan, join: JoinPlan) -> tuple[JoinedStreamPlan, ...]:
    """Plans the statements on the joined streams, each with its own position."""
    made: list[JoinedStreamPlan] = []
    for side in join.streams:
        name = f"{plan.name}.{side.alias}"
        taken = {p.name for p in made}
        made.append(
            JoinedStreamPlan(
                name=name if name not in taken else f"{name}{len(made)}",
                text=plan.text,
                batch=side.batch,
                target=plan.target,
                reads=plan.reads,
                place=plan.place,
                mark=side.mark,
                on_error=plan.on_error,
                errors_into=plan.errors,
                part_of=plan.name,
                wait=plan.wait,
                rule=plan.rule,
                start=plan.start,
            )
        )
    return tuple(made)


def plan_block(checked: CheckedBlock, name: str) -> BlockPlan:
    """Plans BEGIN … COMMIT over a stream: one pipeline."""
    members = tuple(
        _plan_member(c, f"{name}.{n}", target_of(c.changes)) for n, c in enumerate(checked.members)
    )
    target = next((m.target for m in members if m.target.kind == "table"), members[0].target)
    return BlockPlan(**_every(checked, name, target), batch=plan_batch(checked.resolved), members=members)


def _plan_misses(checked: CheckedRunnable) -> MissPlan | None:
    if checked.misses is None:
        return None
    query, tables = checked.misses
    how = miss_options(checked.query_options)
    return MissPlan(plan_batch(query), tables, how.mode or "", how.timeout, how.fallback)


def _plan_mark(resolved: Resolved, aggregation: Aggregation) -> BatchPlan | None:
    """Plans the highest time of the stream in a batch, also of rows that the query leaves out."""
    mark = aggregation.window.window.mark if aggregation.window is not None else None
    if mark is None or any(joins_of(resolved)):
        return None  # a join of streams knows the lower bound of the times of its rows
    return plan_highest(resolved, mark)


def plan_highest(resolved: Resolved, mark: str) -> BatchPlan:
    """Plans the highest value in a batch of a column of the stream that a query reads."""
    stream = next(i for i in resolved.inputs if i.relation.running)
    column = stream.relation.schema.find(mark)
    assert column is not None
    time = exp.column(column.name, stream.alias, quoted=True)
    time.meta["dtype"] = column.type
    select = exp.Select(
        expressions=[exp.Alias(this=exp.Max(this=time), alias=exp.to_identifier("high", quoted=True))],
        from_=exp.From(this=_table_of(stream)),
    )
    return plan_batch(Resolved(select, Schema((Column("high", column.type),)), (stream,)))


def plan_batch(resolved: Resolved, by: Input | None = None) -> BatchPlan:
    """Plans the batch stage of a query over one stream, or over the source ``by`` read in chunks."""
    stream = by or next(i for i in resolved.inputs if i.relation.running)
    tree = resolved.expression.copy()
    streams = Streams(Resolved(tree, resolved.schema, resolved.inputs))
    streams.views = {stream.view}
    grouped = isinstance(tree, exp.Select) and is_aggregated(tree)
    if not grouped:
        carry_seq(tree, streams)
    direct = _select_of(tree, stream.view)
    needed = _columns_of(tree, stream, direct)
    inputs = tuple(i for i in resolved.inputs if i.view != stream.view)
    order = () if grouped else (Column(SEQ, pa.int64()),)
    # If rows of a table without a match in the stream are emitted, conditions on the stream do not come first.
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


def _select_of(tree: exp.Expr, view: str) -> exp.Select | None:
    """Returns the SELECT that reads the stream itself, if only renaming SELECTs are around it."""
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
    """Returns the columns of the stream that the query names."""
    alias = stream.alias.lower()
    used = {c.name.lower() for c in tree.find_all(exp.Column) if c.table.lower() == alias}
    if direct is None:
        return stream.relation.schema.names
    return tuple(n for n in stream.relation.schema.names if n.lower() in used)


def _stream_filter(select: exp.Select, stream: Input) -> str | None:
    """Returns the conjuncts of WHERE that read the stream alone. They are evaluated again with the query, so one that
    might have another value then (``now()``, ``rand()``) is not among them.
    """
    where = select.args.get("where")
    if where is None:
        return None
    parts: list[exp.Expr] = []

    def collect(node: exp.Expr) -> None:
        node = node.unnest()
        if isinstance(node, exp.And):
            collect(node.left)
            collect(node.right)
        elif (
            not node.find(exp.Select)
            and all(c.table.lower() == stream.alias.lower() for c in node.find_all(exp.Column))
            and not any(changing_functions(node))
        ):
            parts.append(exp.Paren(this=node.copy()))

    collect(where.this)
    return " AND ".join(spark.expression(p) for p in parts) or None


def stream_select(batch: BatchPlan) -> str:
    """Returns the stream stage as a projection: the columns that the batch needs."""
    return ", ".join(quote(c) for c in (*batch.columns, SEQ))


def may_share_numbers(batch: BatchPlan) -> bool:
    """Returns whether several events of a batch may have the same ``_seq``: a row of the stream gives several if it
    meets several rows of a table or has a list, and a message of changes is a row before and one after.
    """
    lists = batch.query.expression.find(exp.Lateral, exp.Explode, exp.Unnest, exp.Inline)
    return bool(batch.tables) or lists is not None or DELETED in batch.stream.relation.schema


def is_steady(batch: BatchPlan) -> bool:
    """Returns whether a batch gives the same rows if it is evaluated again, with the same tables."""
    return not any(changing_functions(batch.query.expression)) and not any(functions_in(batch.sql))


def is_steady_query(query: Resolved) -> bool:
    """Returns whether a query gives the same rows if it is evaluated again, with the same inputs."""
    return not any(changing_functions(query.expression)) and not any(
        functions_in(spark.render(query.expression.copy()))
    )
