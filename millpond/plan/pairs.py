"""Plans how Spark finds the pairs of a join of streams."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.plan.pipeline import is_steady
from millpond.plan.plans import BatchPlan, GroupsPlan, JoinPlan, Lookup, PipelinePlan, TableInput
from millpond.sql.catalog import Relation
from millpond.sql.joins import StreamJoin
from millpond.sql.joins.model import ID, LEFT, RIGHT
from millpond.sql.order import SEQ
from millpond.sql.render import spark
from millpond.sql.resolve import Input
from millpond.types import Column, Schema, quote


def plan_pairs(join: StreamJoin, side: int, stored: str) -> BatchPlan:
    """Plans the pairs of a batch of one side with the rows of the other, which the table ``stored`` has."""
    mine, theirs = ((LEFT, RIGHT), (RIGHT, LEFT))[side]
    schema = Schema((*join.sides[side].query.schema.columns, Column(ID, pa.int64())))
    fields = tuple(k[side] for k in join.keys)
    lookup = Lookup(
        tuple(k[1 - side] for k in join.keys), tuple(f"{mine}.{quote(f)}" for f in fields), fields=fields
    )
    return BatchPlan(
        stream=Input(mine, mine, Relation(join.sides[side].stream.name, "stream", schema, running=True)),
        columns=schema.names,
        filter=None,
        tables=(TableInput(theirs, stored, lookup if fields else None),),
        query=join.pairs,
        sql=spark.render(join.pairs.expression.copy()),
        output=join.pairs.schema,
    )


def is_plain(batch: BatchPlan) -> bool:
    """Returns whether a batch gives columns of all rows of its stream: no value is computed, so none can fail."""
    select = batch.query.expression
    parts = {k for k, v in select.args.items() if v} if isinstance(select, exp.Select) else {"other"}
    return (
        parts <= {"expressions", "from_"}
        and isinstance(select.args["from_"].this, exp.Table)
        and all(isinstance(e.unalias(), exp.Column) for e in select.expressions)
        and is_steady(batch)
    )


def why_collected(plan: PipelinePlan) -> str | None:
    """Returns why a statement over joined streams gets their pairs from the driver; None if they stay on Spark: then
    they have no final numbers, and Spark may evaluate them again.
    """
    numbered = (c.name == SEQ for c in plan.batch.query.expression.find_all(exp.Column))
    if plan.miss is not None or (isinstance(plan, GroupsPlan) and any(numbered)):
        return "the statement needs their numbers"
    if plan.join is not None and not _is_steady(plan.join):
        return "the condition may give another value each time"
    return None


def _is_steady(plan: JoinPlan) -> bool:
    below = (side.below for side in plan.sides)
    return is_steady(plan_pairs(plan.join, 0, "")) and all(_is_steady(b) for b in below if b is not None)
