"""Creates the running statement of a plan, by its kind."""

from __future__ import annotations

from typing import TypedDict

from millpond.plan.plans import PipelinePlan
from millpond.query.evaluate import Evaluator
from millpond.sql.catalog import Catalog
from millpond.store.store import Store
from millpond.streaming.aggregate_statement import Groups
from millpond.streaming.block import Block
from millpond.streaming.commit_turn import CommitTurn
from millpond.streaming.delivery import SinkGroups, SinkRows
from millpond.streaming.emitted import Emitted
from millpond.streaming.fold import Folded, Inputs
from millpond.streaming.keyed_topic import Keyed
from millpond.streaming.row_statement import RowStatement, TakeIn
from millpond.streaming.stages import Spark, Stages
from millpond.streaming.statement import RunningStatement
from millpond.streaming.stream_join_statement import joined_streams


class _Every(TypedDict):
    """Lists what statements of every kind use."""

    plan: PipelinePlan
    store: Store
    catalog: Catalog
    stages: Stages
    turn: CommitTurn
    ephemeral: bool


class Statements:
    """Creates the running statements of plans."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        evaluator: Evaluator,
        stages: Stages,
        turn: CommitTurn,
        emitted: Emitted,
        inputs: Inputs,
        take_in: TakeIn,
        spark: Spark,
    ):
        self._store = store
        self._catalog = catalog
        self._evaluator = evaluator
        self._stages = stages
        self._turn = turn
        self._emitted = emitted
        self._inputs = inputs
        self._take_in = take_in
        self._spark = spark

    def make(self, plan: PipelinePlan, ephemeral: bool) -> list[RunningStatement]:
        """Returns the statement of a plan, by its kind; where streams are joined, one for each of them."""
        statement = self._statement(plan, ephemeral)
        return [statement] if plan.join is None else joined_streams(statement, plan, self._evaluator)

    def _statement(self, plan: PipelinePlan, ephemeral: bool) -> RunningStatement:
        every = _Every(
            plan=plan,
            store=self._store,
            catalog=self._catalog,
            stages=self._stages,
            turn=self._turn,
            ephemeral=ephemeral,
        )
        evaluator, emitted, inputs, take_in = self._evaluator, self._emitted, self._inputs, self._take_in
        if plan.block:
            return Block(**every, evaluator=evaluator, inputs=inputs)
        if plan.keys is not None and plan.join is None:
            return Keyed(**every, emitted=emitted, take_in=take_in)
        if plan.target.kind == "sink" and plan.aggregation is not None:
            return SinkGroups(**every, evaluator=evaluator, emitted=emitted, spark=self._spark)
        if plan.target.kind == "sink":
            return SinkRows(**every, emitted=emitted, take_in=take_in, spark=self._spark)
        if plan.aggregation is not None:
            return Groups(**every, evaluator=evaluator, emitted=emitted)
        if plan.fold is not None:
            return Folded(**every, evaluator=evaluator, inputs=inputs)
        return RowStatement(**every, emitted=emitted, take_in=take_in)
