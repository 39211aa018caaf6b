"""Evaluates the plans of running statements over batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.clock import Clock
from millpond.plan.plans import BatchPlan
from millpond.query.evaluate import Evaluator

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.stage import Stage

Spark = Callable[..., Any]
"""Returns Spark's session, with the requested formats."""


class Stages:
    """Creates what evaluates a plan, and batches of rows in memory."""

    def __init__(self, evaluator: Evaluator, clock: Clock, spark: Spark):
        self._evaluator = evaluator
        self._spark = spark
        self.clock = clock

    def stage(self, plan: BatchPlan) -> Stage:
        """Returns what evaluates a plan over batches; it is created once and cached."""
        from millpond.engine.stage import Stage

        return Stage(plan, self._evaluator.in_process(plan.query), self.clock)

    def part(self, rows: pa.Table, high: int | None = None) -> Batch:
        """Returns a batch of these rows."""
        from millpond.engine.batch import Part
        from millpond.engine.session import new_session

        return Part(rows, lambda: new_session(self._spark()), high)
