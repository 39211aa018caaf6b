"""Prints a plan in words, for EXPLAIN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from millpond.connectors.sink import NativeSink, Sink, find_sink, settled
from millpond.engine_rule import Engine, EngineRule, rule_of
from millpond.errors import without_passwords
from millpond.plan.load import order_matters
from millpond.plan.pairs import why_collected
from millpond.plan.plans import (
    BatchPlan,
    ChangesPlan,
    FoldPlan,
    GroupsPlan,
    JoinPlan,
    LoadPlan,
    PipelinePlan,
    RowsPlan,
    ViewPlan,
)
from millpond.plan.state import explain_flushes, explain_join, explain_misses, explain_state
from millpond.plan.statement_plan import Planned
from millpond.plan.view_explain import explain_view
from millpond.predicates import text
from millpond.sql import statements as st
from millpond.sql.aggregate import Aggregation
from millpond.sql.catalog import Relation
from millpond.sql.checked import (
    Checked,
    CheckedFold,
    CheckedInsert,
    CheckedMutation,
    CheckedQuery,
    CheckedSelect,
    CheckedTableAs,
    CheckedValues,
)
from millpond.sql.filters import resolve_values
from millpond.sql.fold import Fold, RowFold
from millpond.sql.joins import join_warnings
from millpond.sql.pushdown import pushed
from millpond.sql.render import spark
from millpond.sql.render.folds import not_divided
from millpond.sql.resolve import Resolved
from millpond.sql.versions import words_of
from millpond.types import type_name

_BLOCK = {
    st.Begin: "BEGIN: the changes of the statements up to COMMIT become visible together",
    st.Commit: "COMMIT: the end of the block",
}


class Ways(Protocol):
    """Says which engine evaluates a statement, and why."""

    def way(self, query: Resolved) -> tuple[str, str]: ...

    def fold_way(self, fold: Fold) -> tuple[str, str]: ...


def explain_plan(
    planned: Planned,
    ways: Ways,
    asked: Mapping[str, str] | None = None,
    readers: Mapping[str, str] | None = None,
    *,
    engine: Engine = "auto",
    durable: bool = True,
) -> list[str]:
    """Returns the lines of EXPLAIN for a statement. ``ways`` returns which engine evaluates a query, ``asked`` what
    other systems are queried for, by view, ``readers`` who reads files on executors; ``engine`` is the app's setting,
    ``durable`` says whether it has a state directory.
    """
    checked, plan = planned.checked, planned.plan
    lines = [_headline(planned)]
    match checked:
        case CheckedQuery(resolved=query):
            lines += [f"warning: {c.message}; {c.hint}" for c in join_warnings(query)]
            if isinstance(plan, PipelinePlan):
                lines += _pipeline(plan, ways, plan.rule.in_app(engine))
            else:
                rule = _load_rule(checked, plan)
                into = checked.changes
                keyed = into is not None and (into.kind == "sink" or bool(into.schema.key))
                lines += _once(
                    query, plan, ways, asked or {}, readers or {}, rule and rule.in_app(engine), keyed=keyed
                )
            op = [f"{checked.op} STRING"] if isinstance(checked, CheckedSelect) and checked.op else []
            lines.append(
                "output: " + ", ".join([*op, *(f"{c.name} {type_name(c.type)}" for c in query.schema)])
            )
        case CheckedMutation(queries=queries):
            found = [ways.way(query) for query in queries]
            lines.append(_evaluated(*next((way for way in found if way[0] != "duckdb"), found[0])))
        case CheckedValues(target=target, rows=rows):
            lines.append(_evaluated(*ways.way(resolve_values(target.schema, rows))))
    if checked.changes is not None:
        if isinstance(checked, CheckedInsert) and checked.changes.kind == "sink":
            lines += _sink(checked, checked.changes, plan, engine, durable=durable)
        else:
            lines.append(_target(checked, checked.changes))
            lines += explain_flushes(checked.changes, plan, engine, durable=durable)
    return lines


def _evaluated(who: str, why: str) -> str:
    return f"evaluated by: {who} ({why})"


def _headline(planned: Planned) -> str:
    checked, plan = planned.checked, planned.plan
    name = {
        st.CreateStream: "CREATE STREAM",
        st.CreateTable: "CREATE TABLE",
        st.CreateView: "CREATE VIEW",
        st.Insert: "INSERT",
        st.Select: "SELECT",
        st.Update: "UPDATE",
        st.Delete: "DELETE",
        st.Merge: "MERGE",
        st.Upsert: "UPSERT",
        st.Truncate: "TRUNCATE",
        st.Drop: "DROP",
        st.DescribeHistory: "DESCRIBE HISTORY",
        st.Optimize: "OPTIMIZE",
        st.Vacuum: "VACUUM",
    }.get(type(checked.statement), type(checked.statement).__name__)
    if isinstance(checked.statement, st.Begin | st.Commit):
        return _BLOCK[type(checked.statement)]
    if not isinstance(checked, CheckedQuery):
        return f"{name}: done at once"
    ends = plan is None or (isinstance(plan, LoadPlan) and not plan.follows)
    return f"{name}: answered once" if ends else f"{name}: runs for as long as the app"


def _pipeline(plan: PipelinePlan, ways: Ways, rule: EngineRule) -> Iterator[str]:
    """Describes what happens to a batch, and what is stored in addition to the target."""
    collected = why_collected(plan) if plan.join is not None else None
    if plan.join is not None:
        yield from _join(plan.join, ways, rule)
        if rule.engine != "process":
            yield _pairs(collected)
    if isinstance(plan, ChangesPlan):
        yield (
            f"changes of table {plan.table}: its rows as of one commit first, then the changes of each commit, from a"
            " changelog that is written in the same commits and kept until they are delivered"
        )
        relation = replace(plan.batch.stream.relation, name=f"the changelog of {plan.table}")
        plan = replace(plan, batch=replace(plan.batch, stream=replace(plan.batch.stream, relation=relation)))
    if plan.target.real_time:
        yield f"real time: read {plan.batch.stream.relation.name}, evaluated by Spark alone, row by row"
    else:
        yield from _batch(plan.batch, ways, rule, _above(rule, collected) if plan.join is not None else None)
    if isinstance(plan, FoldPlan):
        yield from _fold(plan.fold, ways, rule)
    if isinstance(plan, GroupsPlan):
        yield _merged(plan.aggregation, ways, rule)
        yield from explain_state(plan.aggregation)
    waits = explain_misses(plan.miss) if plan.miss is not None else []
    yield from waits
    if not isinstance(plan, GroupsPlan) and plan.join is None and not waits:
        yield "state: none besides the target"


def _load_rule(checked: CheckedQuery, plan: ViewPlan | LoadPlan | None) -> EngineRule | None:
    """Returns the rule that says whether executors read and evaluate; None for what they never read."""
    sources = [i.relation for i in checked.resolved.inputs if i.relation.kind == "source"]
    if not sources or not all(r.spreads for r in sources):
        return None
    if isinstance(plan, LoadPlan):
        return plan.rule
    return rule_of(checked.query_options) if isinstance(checked, CheckedInsert) else None


def _once(
    query: Resolved,
    plan: ViewPlan | LoadPlan | None,
    ways: Ways,
    asked: Mapping[str, str],
    readers: Mapping[str, str],
    rule: EngineRule | None,
    *,
    keyed: bool,
) -> Iterator[str]:
    """Describes a query over tables and finite sources, and how a table that it fills follows them. ``rule`` is the one
    for files that executors may read; ``keyed`` says that the target has a key.
    """
    conditions = pushed(query)
    for i in query.inputs:
        at = "" if i.relation.at is None else f" {words_of(i.relation.at)}"
        line = f"read {i.relation.kind} {i.relation.name}{at} as {i.alias}"
        if i.relation.stored_in is not None:
            where = conditions.get(i.view)
            line += f" from {without_passwords(i.relation.stored_in)}" + (
                f" where {text(where)}" if where else ""
            )
        yield line
        if i.view in asked:
            yield f"sends: {asked[i.view]}"
    if isinstance(plan, ViewPlan):
        yield from explain_view(plan)
    elif plan is not None:
        yield from _load(plan)
    who, why = ways.way(query)
    if rule is None:
        yield _evaluated(who, why)
    else:
        yield from _read_by(query, rule, readers, keyed, who, why)
    if who == "spark":
        yield f"sql: {spark.render(query.expression)}"


def _read_by(
    query: Resolved, rule: EngineRule, readers: Mapping[str, str], keyed: bool, who: str, why: str
) -> Iterator[str]:
    """Describes who reads files, and evaluates a query over them; ``keyed`` as in ``order_matters``."""
    if rule.engine == "process" and who == "spark":
        yield f"read and evaluated: refused, only Spark can evaluate it ({why}), and the engine is 'process'"
    elif rule.engine == "auto" and order_matters(query, keyed=keyed):
        yield "read: in process, as the result depends on the order of the rows"
        yield _evaluated(who, why)
    else:
        yield f"read and evaluated: {rule}"
        for i in query.inputs:
            if i.view in readers and rule.engine != "process":
                yield f"Spark reads {i.relation.name} by {readers[i.view]}"
        if who == "spark":
            yield _evaluated(who, why)


def _load(plan: LoadPlan) -> Iterator[str]:
    yield "load: chunk by chunk" if plan.by is not None else "load: as a whole"
    if not plan.follows:
        return
    if any(i.relation.captured for i in plan.query.inputs):
        yield "follows its sources: by the change log of the database, one transaction at a time"
    else:
        added = "new rows are appended; " if plan.by is not None else ""
        yield f"follows its sources: {added}after other changes all rows are recomputed and compared"


def _join(plan: JoinPlan, ways: Ways, rule: EngineRule) -> Iterator[str]:
    """Describes the sides of a join of streams, the joins below first, and what is stored of them."""
    for side in plan.sides:
        if side.below is not None:
            yield from _join(side.below, ways, rule)
        yield from _batch(side.batch, ways, rule, _above(rule, None) if side.below is not None else None)
    who, why = ways.way(plan.join.pairs)
    if who == "duckdb":
        pairs = f"pairs {rule}"
    elif rule.engine == "process":
        pairs = f"pairs refused, only Spark can find them ({why}), and the engine is 'process'"
    else:
        pairs = f"pairs by Spark ({why})"
    yield from explain_join(plan.join, pairs)


def _pairs(collected: str | None) -> str:
    """Describes who has what, where Spark finds the pairs of joined streams."""
    above = (
        f"the pairs come to the driver, as {collected}"
        if collected is not None
        else "the pairs stay on its executors, where the rest of the statement is evaluated"
    )
    return (
        "join stage: where Spark finds pairs, the driver passes stored rows to it, completely or those with the keys"
        f" of the batch, and gets the rows of the batch to store them; {above}"
    )


def _above(rule: EngineRule, collected: str | None) -> str:
    """Describes who evaluates what is above joined streams."""
    if rule.engine != "auto":
        return str(rule)
    if collected is not None:
        return "in process, however many pairs there are"
    return f"in process up to {rule.rows:,} pairs, or if they were found there, else by Spark"


def _batch(batch: BatchPlan, ways: Ways, rule: EngineRule, by: str | None = None) -> Iterator[str]:
    """Describes the stages of a batch; ``by`` who evaluates it, if not the rule alone says that."""
    relation = batch.stream.relation
    where = f", filter {batch.filter}" if batch.filter else ""
    yield f"stream stage: read {relation.name} ({', '.join(batch.columns) or 'no columns'}){where}"
    for table in batch.tables:
        if table.lookup is None:
            yield f"batch stage: table {table.table} whole, registered once per version"
        else:
            columns = ", ".join(table.lookup.columns)
            source = ", ".join(table.lookup.keys)
            yield (
                f"batch stage: table {table.table} whole while small or unchanged, "
                f"else looked up by {columns} = {source}"
            )
    who, why = ways.way(batch.query)
    if who == "duckdb":
        yield f"batch stage: {by or rule}"
    elif rule.engine == "process":
        yield f"batch stage: refused, only Spark can evaluate it ({why}), and the engine is 'process'"
    else:
        yield f"batch stage: by Spark ({why})"
    yield f"batch sql: {batch.sql}"


def _merged(aggregation: Aggregation, ways: Ways, rule: EngineRule) -> str:
    """Describes who merges the groups of a batch with the stored ones."""
    found = [ways.way(query) for query in (aggregation.merge, aggregation.final)]
    why = next((why for who, why in found if who == "spark"), None)
    if why is not None and rule.engine == "process":
        return f"merge stage: refused, only Spark can merge groups ({why}), and the engine is 'process'"
    by = f"by Spark ({why})" if why is not None else "in process, large batches too"
    window = aggregation.window.window if aggregation.window is not None else None
    sessions = " and become sessions" if window is not None and window.kind == "session" else ""
    return f"merge stage: {by}: the groups of a batch are merged with the stored ones{sessions}"


def _fold(fold: Fold, ways: Ways, rule: EngineRule) -> Iterator[str]:
    """Describes how the events of a batch are applied, and by whom."""
    outputs = {o.alias: o.unalias() for o in fold.events.expression.expressions}
    keys = ", ".join(f"{mine} = {spark.expression(outputs[theirs])}" for mine, theirs in fold.lookup)
    yield f"apply: rows of {fold.target.name} " + (f"found by {keys}" if keys else "are all tried")
    what = "each row" if isinstance(fold, RowFold) else "all rows of a key" if keys else "the whole table"
    yield f"apply: events one by one in stream order, folded for {what}, when the batch is committed"
    yield f"apply: {_folded_by(fold, ways, rule)}"
    if fold.returning is not None:
        yield f"returning: a row for each applied event into stream {fold.returning.into.name}, in the same commit"


def _sink(
    checked: CheckedInsert, target: Relation, plan: object, engine: Engine, *, durable: bool
) -> Iterator[str]:
    """Describes who writes a sink, and what it guarantees."""
    options = settled(checked.sink_options, durable=durable)
    sink = find_sink(target.name)(target.name, options, target.schema)
    yield f"sink: written by {_writer(sink, plan, engine)}"
    guarantee = sink.guarantee
    if plan is None and "delivery" in options and sink.exact:
        # Only a statement of the app's file has a position that outlives it.
        again = find_sink(target.name)(target.name, {**options, "delivery": "at-least-once"}, target.schema)
        guarantee = f"{again.guarantee}; as a statement of the app's file {sink.guarantee}"
    yield f"target: {without_passwords(target.name)}, {guarantee}"


def _writer(sink: Sink, plan: object, engine: Engine) -> str:
    if not isinstance(sink, NativeSink) or not sink.by_spark:
        return sink.writer
    if (
        not isinstance(plan, RowsPlan)
        or isinstance(plan, ChangesPlan)
        or (plan.join is not None and why_collected(plan) is not None)
    ):
        return "one task of Spark: the driver has its rows"
    if plan.target.real_time:
        return "Spark's executors, row by row"
    rule = plan.rule.in_app(engine)
    if rule.engine == "process":
        return "one task of Spark: the driver has evaluated its rows"
    small = "" if rule.engine == "spark" else "; a batch that is evaluated in process by one task"
    return (
        f"Spark's executors, which encode it, messages of a key by one task in the order of the stream{small}"
    )


def _folded_by(fold: Fold, ways: Ways, rule: EngineRule) -> str:
    who, why = ways.fold_way(fold)
    if rule.engine == "process":
        if who != "duckdb":
            return f"refused, only Spark can fold it ({why}), and the engine is 'process'"
        return str(rule)
    whole = not_divided(fold)
    if whole is not None:
        if who != "duckdb":
            return f"by Spark, with events that were collected ({why}; {whole})"
        return f"in process, large batches too ({whole})"
    here = "" if who == "duckdb" else f"; with events that were collected if a batch is small ({why})"
    on = "on its executors, before the commit; again if other commits change the rows meanwhile"
    return f"{rule}, {on}{here}"


def _target(checked: Checked, target: Relation) -> str:
    if isinstance(checked, CheckedFold):
        return f"target: table {target.name}, changed with the position in one commit: exactly once"
    if target.kind == "stream":
        return f"target: stream {target.name}, appended with the position in one commit: exactly once"
    if target.schema.key:
        keyed = checked.keyed if isinstance(checked, CheckedTableAs) else None
        key = ", ".join(target.schema.key) + (f" ({keyed})" if keyed else "")
        return f"target: table {target.name}, upsert by {key} in one commit: exactly once"
    return f"target: table {target.name}, every row appended in one commit: exactly once"
