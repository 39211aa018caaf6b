"""Creates the running statement of a plan, by its kind."""

from __future__ import annotations

from typing import TypedDict

from millpond.plan.plans import (
    BlockPlan,
    ChangesPlan,
    FoldPlan,
    GroupsPlan,
    KeyedPlan,
    RowsPlan,
    StatementPlan,
)
from millpond.sql.catalog import Catalog
from millpond.store.divided_commits import DividedCommits
from millpond.store.store import Store
from millpond.streaming.aggregate_statement import Groups
from millpond.streaming.block import Block
from millpond.streaming.change_statements import Changed, SinkChanged
from millpond.streaming.commit_lock import CommitLock
from millpond.streaming.divided_rows import DividedRows
from millpond.streaming.emitted_rows import Emitted
from millpond.streaming.fold import Folded, Inputs
from millpond.streaming.keyed_topic import Keyed
from millpond.streaming.row_statement import RowStatement, TakeIn
from millpond.streaming.sink_statement import SinkGroups, SinkRows
from millpond.streaming.stages import Spark, Stages
from millpond.streaming.statement import RunningStatement
from millpond.streaming.stream_join_statement import joined_streams


class _Every(TypedDict):
    """Lists what statements of every kind use."""

    store: Store
    catalog: Catalog
    stages: Stages
    commit_lock: CommitLock
    ephemeral: bool


class Statements:
    """Creates the running statements of plans."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        stages: Stages,
        commit_lock: CommitLock,
        emitted: Emitted,
        inputs: Inputs,
        take_in: TakeIn,
        spark: Spark,
        divided: DividedCommits,
    ):
        self._store = store
        self._catalog = catalog
        self._stages = stages
        self._commit_lock = commit_lock
        self._emitted = emitted
        self._inputs = inputs
        self._take_in = take_in
        self._spark = spark
        self._divided = divided

    def make(self, plan: StatementPlan, ephemeral: bool) -> list[RunningStatement]:
        """Returns the statement of a plan, by its kind; where streams are joined, one for each of them."""
        statement = self._statement(plan, ephemeral)
        if plan.join is None:
            return [statement]
        return joined_streams(statement, plan.join, self._stages.evaluator(plan.rule))

    def _statement(self, plan: StatementPlan, ephemeral: bool) -> RunningStatement:
        every = _Every(
            store=self._store,
            catalog=self._catalog,
            stages=self._stages,
            commit_lock=self._commit_lock,
            ephemeral=ephemeral,
        )
        evaluator = self._stages.evaluator(plan.rule)
        emitted, inputs, take_in = self._emitted, self._inputs, self._take_in
        to_sink = plan.target.kind == "sink"
        match plan:
            case BlockPlan():
                return Block(**every, plan=plan, evaluator=evaluator, inputs=inputs)
            case FoldPlan():
                return Folded(**every, plan=plan, evaluator=evaluator, inputs=inputs)
            case GroupsPlan() if to_sink:
                return SinkGroups(**every, plan=plan, evaluator=evaluator, emitted=emitted, spark=self._spark)
            case GroupsPlan():
                return Groups(**every, plan=plan, evaluator=evaluator, emitted=emitted)
            case ChangesPlan() if to_sink:
                return SinkChanged(**every, plan=plan, emitted=emitted, take_in=take_in, spark=self._spark)
            case ChangesPlan():
                return Changed(**every, plan=plan, emitted=emitted, take_in=take_in)
            case RowsPlan() if to_sink:
                return SinkRows(**every, plan=plan, emitted=emitted, take_in=take_in, spark=self._spark)
            case KeyedPlan() if plan.join is None:
                return Keyed(**every, plan=plan, emitted=emitted, take_in=take_in)
            case RowsPlan() if plan.target.kind == "table" and plan.join is None:
                return DividedRows(
                    **every,
                    plan=plan,
                    emitted=emitted,
                    take_in=take_in,
                    spark=self._spark,
                    divided=self._divided,
                )
            case RowsPlan():
                return RowStatement(**every, plan=plan, emitted=emitted, take_in=take_in)
