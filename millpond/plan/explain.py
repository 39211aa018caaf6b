"""Prints a plan in words, for EXPLAIN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from millpond.connectors.sink import find_sink
from millpond.errors import without_passwords
from millpond.plan.load import plan_load
from millpond.plan.pipeline import plan_batch, plan_join
from millpond.plan.plans import BatchPlan, JoinPlan, Target
from millpond.plan.state import explain_join, explain_misses, explain_state
from millpond.plan.view import find_parts
from millpond.predicates import text
from millpond.sql import statements as st
from millpond.sql.aggregate import is_live_aggregate, split
from millpond.sql.checked import Checked
from millpond.sql.filters import resolve_values
from millpond.sql.fold import Fold, RowFold
from millpond.sql.joins import join_warnings
from millpond.sql.pushdown import pushed
from millpond.sql.render import spark
from millpond.sql.resolve import Resolved
from millpond.types import type_name


class Ways(Protocol):
    """Says which engine evaluates a statement, and why."""

    def way(self, query: Resolved) -> tuple[str, str]: ...

    def fold_way(self, fold: Fold) -> tuple[str, str]: ...


def explain_checked(checked: Checked, ways: Ways, asked: Mapping[str, str] | None = None) -> list[str]:
    """Returns the lines of EXPLAIN for a statement. ``ways`` returns which engine evaluates a query, ``asked`` what
    other systems are queried for, by view.
    """
    statement = checked.statement
    inner = statement.statement if isinstance(statement, st.Explain) else statement
    lines = [_headline(inner, checked)]
    if checked.resolved is not None:
        lines += list(_query(checked, inner, ways, asked or {}))
        op = [f"{checked.op} STRING"] if checked.op is not None else []
        columns = [f"{c.name} {type_name(c.type)}" for c in checked.resolved.schema]
        lines.append("output: " + ", ".join(op + columns))
    elif (found := _answers(checked, ways)) is not None:
        lines.append("evaluated by: {} ({})".format(*found))
    if checked.target is not None:
        lines.append(_target(checked))
    return lines


def _answers(checked: Checked, ways: Ways) -> tuple[str, str] | None:
    """Returns which engine evaluates a change of rows that runs once, and why; None for any other statement."""
    if checked.running or checked.skip:
        return None
    if checked.mutation is not None:
        found = [ways.way(part.query) for part in checked.mutation.parts]
        return next((way for way in found if way[0] != "duckdb"), found[0])
    if checked.target is not None and checked.values:
        return ways.way(resolve_values(checked.target.schema, checked.values))
    return None


def _headline(statement: st.Statement, checked: Checked) -> str:
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
    }.get(type(statement), type(statement).__name__)
    if checked.resolved is None:
        return f"{name}: done at once"
    if checked.running or checked.live or _follows(checked, statement):
        return f"{name}: runs for as long as the app"
    return f"{name}: answered once"


def _follows(checked: Checked, statement: st.Statement) -> bool:
    """Returns whether a statement creates a table that follows outside sources."""
    made = isinstance(statement, st.CreateTable) and checked.resolved is not None
    if not made or checked.table_options.get("refresh") == "once":
        return False
    assert checked.resolved is not None
    return any(i.relation.follows for i in checked.resolved.inputs)


def _query(checked: Checked, statement: st.Statement, ways: Ways, asked: Mapping[str, str]) -> Iterator[str]:
    assert checked.resolved is not None
    for caution in join_warnings(checked.resolved):
        yield f"warning: {caution.message}; {caution.hint}"
    join = plan_join(checked.resolved)
    if join is not None:
        yield from _join(join, ways)
    if is_live_aggregate(checked.resolved):
        aggregation = split(checked.resolved)
        yield from _batch(plan_batch(aggregation.partial), ways)
        yield from explain_state(aggregation)
        yield from explain_misses(checked)
        return
    if checked.running:
        yield from _batch(plan_batch(checked.resolved), ways)
        if checked.fold is not None:
            yield from _fold(checked.fold, ways)
        waits = explain_misses(checked)
        yield from waits
        if join is None and not waits:
            yield "state: none besides the target"
        return
    conditions = pushed(checked.resolved)
    for i in checked.resolved.inputs:
        line = f"read {i.relation.kind} {i.relation.name} as {i.alias}"
        if i.relation.place is not None:
            where = conditions.get(i.view)
            line += f" from {without_passwords(i.relation.place)}" + (
                f" where {text(where)}" if where else ""
            )
        yield line
        if i.view in asked:
            yield f"sends: {asked[i.view]}"
    if checked.live:
        parts = find_parts(checked.resolved)
        yield (
            f"follows its inputs: a change recomputes the rows with the same {', '.join(parts.columns)}"
            if parts is not None
            else "follows its inputs: a change recomputes all rows and compares them"
        )
    elif isinstance(statement, st.CreateTable):
        load = plan_load(checked, "", Target("table", statement.name))
        yield "load: chunk by chunk" if load.by is not None else "load: as a whole"
        if _follows(checked, statement):
            if any(i.relation.captured for i in checked.resolved.inputs):
                yield "follows its sources: by the change log of the database, one transaction at a time"
            else:
                added = "new rows are appended; " if load.by is not None else ""
                yield f"follows its sources: {added}after other changes all rows are recomputed and compared"
    who, why = ways.way(checked.resolved)
    yield f"evaluated by: {who} ({why})"
    if who == "spark":
        yield f"sql: {spark.render(checked.resolved.expression)}"


def _join(plan: JoinPlan, ways: Ways) -> Iterator[str]:
    """Describes the sides of a join of streams, the joins below first, and what is stored of them."""
    for side in plan.sides:
        if side.below is not None:
            yield from _join(side.below, ways)
        yield from _batch(side.batch, ways)
    who, why = ways.way(plan.join.pairs)
    yield from explain_join(plan.join, "in process" if who == "duckdb" else f"by Spark ({why})")


def _batch(batch: BatchPlan, ways: Ways) -> Iterator[str]:
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
        yield "batch stage: in process on one machine and for small batches, else by Spark"
    else:
        yield f"batch stage: by Spark ({why})"
    yield f"batch sql: {batch.sql}"


def _fold(fold: Fold, ways: Ways) -> Iterator[str]:
    """Describes how the events of a batch are applied."""
    outputs = {o.alias: o.unalias() for o in fold.events.expression.expressions}
    keys = ", ".join(f"{mine} = {spark.expression(outputs[theirs])}" for mine, theirs in fold.lookup)
    yield f"apply: rows of {fold.target.name} " + (f"found by {keys}" if keys else "are all tried")
    what = "each row" if isinstance(fold, RowFold) else "all rows of a key" if keys else "the whole table"
    who, why = ways.fold_way(fold)
    by = "in process" if who == "duckdb" else f"by Spark ({why})"
    yield f"apply: events one by one in stream order, folded for {what}, {by}, when the batch is committed"
    if fold.returning is not None:
        yield f"returning: a row for each applied event into stream {fold.returning.into.name}, in the same commit"


def _target(checked: Checked) -> str:
    target = checked.target
    assert target is not None
    if checked.fold is not None:
        return f"target: table {target.name}, changed with the position in one commit: exactly once"
    if target.kind == "sink":
        sink = find_sink(target.name)(target.name, checked.table_options, target.schema)
        return f"target: {without_passwords(target.name)}, {sink.guarantee}"
    if target.kind == "stream":
        return f"target: stream {target.name}, appended with the position in one commit: exactly once"
    if target.schema.key:
        key = ", ".join(target.schema.key) + (f" ({checked.keyed})" if checked.keyed else "")
        return f"target: table {target.name}, upsert by {key} in one commit: exactly once"
    return f"target: table {target.name}, every row appended in one commit: exactly once"
