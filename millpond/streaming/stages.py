"""Evaluates the plans of running statements over batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.clock import Clock
from millpond.engine_rule import Engine, EngineRule
from millpond.plan.plans import BatchPlan, FoldPlan
from millpond.query.evaluate import Evaluator
from millpond.sql.joins import StreamJoin
from millpond.sql.options import only_spark
from millpond.sql.render.folds import not_divided
from millpond.sql.resolve import Resolved

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.spark_fold import SparkFold
    from millpond.engine.spark_pairs import SparkPairs
    from millpond.engine.stage import Stage

Spark = Callable[..., Any]
"""Returns Spark's session, with the requested formats."""


class Stages:
    """Creates what evaluates a plan, and batches of rows in memory."""

    def __init__(self, evaluator: Evaluator, clock: Clock, spark: Spark, engine: Engine):
        self._evaluator = evaluator
        self._engine = engine
        self._sessions = threading.local()
        self._spark = spark
        self.clock = clock

    def may_use_spark(self, rule: EngineRule) -> bool:
        """Returns whether Spark may evaluate batches of a statement with that rule."""
        return rule.in_app(self._engine).engine != "process"

    def evaluator(self, rule: EngineRule) -> Evaluator:
        """Returns what evaluates queries of a statement with that rule. With 'process' it never uses Spark."""
        return self._evaluator if self.may_use_spark(rule) else self._evaluator.without_spark()

    def stage(self, plan: BatchPlan, rule: EngineRule) -> Stage:
        """Returns what evaluates a plan over batches. Raises NotSupported if that is DuckDB alone, and it cannot."""
        from millpond.engine.stage import Stage

        self.check(rule, plan.query)
        answer = self.evaluator(rule).in_process(plan.query)
        return Stage(plan, answer, self.clock, rule.in_app(self._engine))

    def fold(self, plan: FoldPlan, rule: EngineRule) -> SparkFold | None:
        """Returns what folds the events of large batches on Spark's executors; None if they cannot share that work."""
        from millpond.engine.spark_fold import SparkFold

        if not self.may_use_spark(rule) or not_divided(plan.fold) is not None:
            return None
        return SparkFold(plan, self.clock)

    def pairs(
        self, join: StreamJoin, side: int, own: BatchPlan, stored: str, rule: EngineRule
    ) -> SparkPairs | None:
        """Returns what finds the pairs of large batches of one side of a join on Spark's executors, if it may."""
        from millpond.engine.spark_pairs import SparkPairs

        return SparkPairs(join, side, own, stored, self.clock) if self.may_use_spark(rule) else None

    def check(self, rule: EngineRule, *queries: Resolved) -> None:
        """Raises NotSupported if only Spark can evaluate one of the queries, and the rule does not allow that."""
        for query in queries:
            self.check_way(rule, partial(self._evaluator.way, query))

    def check_way(self, rule: EngineRule, way: Callable[[], tuple[str, str]]) -> None:
        """Raises NotSupported if only Spark can do something, and the rule does not allow that."""
        if not self.may_use_spark(rule):
            who, why = way()
            if who == "spark":
                raise only_spark(why)

    def part(self, rows: pa.Table, high: int | None = None) -> Batch:
        """Returns a batch of these rows."""
        from millpond.engine.batch import Part
        from millpond.engine.carrier import Sessions

        def session() -> Any:
            """Returns a session of this thread: names of several threads do not mix, and tables stay registered."""
            if not hasattr(self._sessions, "own"):
                self._sessions.own = Sessions(None, self._spark)
            return self._sessions.own.session()

        return Part(rows, session, high)
