"""Evaluates the plans of running statements over batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.clock import Clock
from millpond.plan.engine_rule import Engine, EngineRule
from millpond.plan.plans import BatchPlan
from millpond.query.evaluate import Evaluator
from millpond.sql.options import only_spark

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.stage import Stage

Spark = Callable[..., Any]
"""Returns Spark's session, with the requested formats."""


class Stages:
    """Creates what evaluates a plan, and batches of rows in memory."""

    def __init__(self, evaluator: Evaluator, clock: Clock, spark: Spark, engine: Engine):
        self._evaluator = evaluator
        self._engine = engine
        self._spark = spark
        self.clock = clock

    def stage(self, plan: BatchPlan, rule: EngineRule) -> Stage:
        """Returns what evaluates a plan over batches. Raises NotSupported if that is DuckDB alone, and it cannot."""
        from millpond.engine.stage import Stage

        rule, answer = rule.in_app(self._engine), self._evaluator.in_process(plan.query)
        if rule.engine == "process" and answer is None:
            raise only_spark(self._evaluator.way(plan.query)[1])
        return Stage(plan, answer, self.clock, rule)

    def part(self, rows: pa.Table, high: int | None = None) -> Batch:
        """Returns a batch of these rows."""
        from millpond.engine.batch import Part
        from millpond.engine.session import new_session

        return Part(rows, lambda: new_session(self._spark()), high)
