"""Defines the batch stage: rows of a stream and of tables in, rows out."""

from __future__ import annotations

import pyarrow as pa

from millpond import steps
from millpond.clock import Clock
from millpond.engine.batch import Batch
from millpond.engine.jobs import named
from millpond.engine.local_stage import LocalStage, Tables
from millpond.engine.spark_stage import SparkStage
from millpond.engine_rule import EngineRule
from millpond.plan.plans import BatchPlan
from millpond.query.evaluate import Answer


class Stage:
    """Runs the batches of one plan: in process with ``answer`` where the rule says so, else by Spark."""

    def __init__(self, plan: BatchPlan, answer: Answer | None, clock: Clock, rule: EngineRule):
        self._plan = plan
        self._rule = rule
        self._reading = f"read stream {plan.stream.relation.name}"
        self._local = LocalStage(plan, answer) if answer is not None else None
        self._spark = SparkStage(plan, clock)

    def run(self, batch: Batch, tables: Tables) -> pa.Table:
        """Returns the results of the batch, in the order of the stream, without ``_seq``."""
        if self._local is not None and (
            self._rule.in_process(batch.about, batch.bytes) or (self._rule.engine == "auto" and batch.is_here)
        ):
            rows = steps.timed(self._reading, lambda: batch.rows)
            return self._local.run(rows, tables)
        steps.run_by("spark")
        return steps.timed(
            "read and evaluate by Spark", lambda: batch.on_spark(lambda: self._run_on_spark(batch, tables))
        )

    def _run_on_spark(self, batch: Batch, tables: Tables) -> pa.Table:
        with named(batch.spark()):
            if self._plan.keeps and batch.frame.isEmpty():
                return self._plan.output.arrow().empty_table()
            return self._spark.run(batch.frame, tables, cheap=batch.cheap)
