"""Defines the batch stage: rows of a stream and of tables in, rows out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from millpond import steps
from millpond.clock import Clock
from millpond.connectors.divided_table import Merging, Written
from millpond.connectors.sink import NativeSink, TaskWriter
from millpond.connectors.source import SEQ
from millpond.engine.batch import Batch
from millpond.engine.collect import collect
from millpond.engine.delivery import Encoded, encode
from millpond.engine.jobs import named
from millpond.engine.local_stage import LocalStage, Tables, in_order
from millpond.engine.spark_merge import merge_in_tasks
from millpond.engine.spark_stage import SparkStage
from millpond.engine.task_writes import write_in_tasks
from millpond.engine_rule import EngineRule
from millpond.plan.pipeline import is_steady
from millpond.plan.plans import BatchPlan
from millpond.query.evaluate import Answer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")
_BY_SPARK = "read and evaluate by Spark"


class Stage:
    """Runs the batches of one plan: in process with ``answer`` where the rule says so, else by Spark."""

    def __init__(self, plan: BatchPlan, answer: Answer | None, clock: Clock, rule: EngineRule):
        self._plan = plan
        self._rule = rule
        self._reading = f"read stream {plan.stream.relation.name}"
        self._local = LocalStage(plan, answer) if answer is not None else None
        self._spark = SparkStage(plan, clock)

    @property
    def in_process(self) -> bool:
        """Returns whether batches of rows that are here are evaluated in process."""
        return self._local is not None and self._rule.engine != "spark"

    def run(self, batch: Batch, tables: Tables, *, numbered: bool = False) -> pa.Table:
        """Returns the results of the batch, in the order of the stream; with ``_seq`` if ``numbered``."""
        if self._local is not None and not self.is_for_spark(batch):
            rows = steps.timed(self._reading, lambda: batch.rows)
            return self._local.run(rows, tables, numbered=numbered)
        return self.run_on_spark(batch, tables, numbered=numbered)

    def is_for_spark(self, batch: Batch) -> bool:
        """Returns whether Spark evaluates the batch."""
        return self._local is None or self.is_large(batch)

    def is_large(self, batch: Batch) -> bool:
        """Returns whether the rule leaves the batch to Spark, also if it could be evaluated in process."""
        rule = self._rule
        return not (rule.in_process(batch.about, batch.bytes) or (rule.engine == "auto" and batch.is_here))

    def run_on_spark(self, batch: Batch, tables: Tables, *, numbered: bool = False) -> pa.Table:
        """Returns the results of the batch, evaluated by Spark; with ``_seq`` if ``numbered``."""
        steps.run_by("spark")
        found = steps.timed(_BY_SPARK, lambda: self._on_spark(batch, tables, collect))
        if found is None:
            found = self._plan.output.arrow().append(pa.field(SEQ, pa.int64())).empty_table()
        return in_order(found, numbered=numbered)

    def _on_spark(self, batch: Batch, tables: Tables, work: Callable[[DataFrame], T]) -> T | None:
        """Returns what ``work`` does with the results of the batch, which have ``_seq`` and are on Spark; None if
        there are none. If no job is needed before, they are planned while Spark begins.
        """
        plan, held = self._plan, ExitStack()
        planned: list[DataFrame] = []

        def prepare() -> None:
            if not plan.tables and not plan.keeps:
                planned.append(self.hold(batch, tables, held))

        def run() -> T | None:
            with named(batch.spark()):
                if self._gives_nothing(batch):
                    return None
                return work(planned[0] if planned else self.hold(batch, tables, held))

        with held:
            return batch.on_spark(run, prepare)

    def _gives_nothing(self, batch: Batch) -> bool:
        """Returns whether the batch has no rows, and tables would give some all the same."""
        return self._plan.keeps and batch.frame.isEmpty()

    def encoded(self, batch: Batch, tables: Tables, sink: NativeSink) -> Encoded:
        """Returns the results of the batch, evaluated by Spark and encoded on its executors."""
        steps.run_by("spark")
        with steps.step(_BY_SPARK) as noted:
            found = batch.on_spark(lambda: self._encode(batch, tables, sink))
            noted.tell(found.rows, found.bytes)
        return found

    def _encode(self, batch: Batch, tables: Tables, sink: NativeSink) -> Encoded:
        with named(batch.spark()), ExitStack() as held:
            if self._gives_nothing(batch):
                return Encoded(None)
            results = held.enter_context(
                self._spark.results(
                    batch.narrowed(self._plan.columns), tables, rows=batch.about, cheap=batch.cheap
                )
            )
            found = encode(results, sink, self._plan.output, batch.about, steady=is_steady(self._plan))
            found.hold(held.pop_all())
        return found

    def written(self, batch: Batch, tables: Tables, writer: TaskWriter) -> pa.Table:
        """Returns what tasks report that have written the results of the batch, evaluated by Spark."""
        steady = is_steady(self._plan)
        found = self.use(
            batch,
            tables,
            "read, evaluate and write by Spark",
            lambda results: write_in_tasks(results, writer, self._plan.output, batch.about, steady=steady),
        )
        return writer.schema.arrow().empty_table() if found is None else found

    def merged(self, batch: Batch, tables: Tables, merging: Merging) -> Written | None:
        """Returns what tasks have written to merge the results of the batch, evaluated by Spark, into files; None if
        a row may have another key when a task runs again.
        """
        if not is_steady(self._plan):
            return None
        output, about = self._plan.output, batch.about
        what = "read, evaluate and merge by Spark"
        found = self.use(batch, tables, what, lambda rows: merge_in_tasks(rows, merging, output, about))
        return Written(merging.writer.schema.arrow().empty_table(), 0) if found is None else found

    def hold(self, batch: Batch, tables: Tables, held: ExitStack) -> DataFrame:
        """Returns the results of the batch on Spark, with ``_seq``, which can be evaluated until ``held`` ends. Called
        by work that Spark does with the batch.
        """
        frame = batch.narrowed(self._plan.columns)
        return held.enter_context(self._spark.results(frame, tables, rows=batch.about, cheap=batch.cheap))

    def use(self, batch: Batch, tables: Tables, what: str, work: Callable[[DataFrame], T]) -> T | None:
        """Returns what ``work`` does with the results of the batch, which have ``_seq`` and are on Spark; None if
        there are none. ``what`` names the step.
        """
        steps.run_by("spark")
        return steps.timed(what, lambda: self._on_spark(batch, tables, work))
