"""Reads and evaluates what a load reads of files by Spark: splits and tables in, rows and error records out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from millpond import steps
from millpond.clock import Clock
from millpond.connectors.source import Source, Split
from millpond.engine.carrier import Sessions
from millpond.engine.collect import collect
from millpond.engine.failures import explain
from millpond.engine.functions import register
from millpond.engine.jobs import Cancellable, named, working_for
from millpond.engine.local_stage import Tables
from millpond.engine.native_parquet import is_of_the_reader
from millpond.engine.row_transfer import BROADCAST, Staged
from millpond.engine.spark_stage import SparkStage
from millpond.engine.split_reader import SplitRead
from millpond.formats.read_records import none_rejected
from millpond.plan.plans import BatchPlan
from millpond.sql.render.spark import at_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Found(NamedTuple):
    """Contains rows, and the records that could not be read."""

    rows: pa.Table
    rejected: pa.Table


Given = tuple[Source, Sequence[Split], Sequence[str] | None]
"""What to read of a source, and which columns of it; None for all."""


class LoadStage:
    """Evaluates the query of one statement, ``name``, again and again, by one thread at a time."""

    def __init__(self, name: str, spark: Callable[[], SparkSession], clock: Clock, *, sifts: bool):
        self._name = name
        self._clock = clock
        self._sessions = Sessions(None, spark)
        self._sifts = sifts
        self._work = Cancellable()
        self._stages: dict[str, SparkStage] = {}

    def cancel(self) -> bool:
        """Cancels what Spark reads now, and all that is asked for later; returns whether something still runs."""
        return self._work.cancel()

    def chunk(self, plan: BatchPlan, source: Source, splits: Sequence[Split], tables: Tables) -> Found:
        """Returns the result of a query over some rows of its source, in their order and with ``_seq``."""
        stage = self._stages.setdefault(plan.sql, SparkStage(plan, self._clock))

        def work(spark: SparkSession, reads: Mapping[str, SplitRead]) -> Found:
            read = reads[plan.stream.view]
            found = stage.run(read.frame, tables, rows=read.about, cheap=read.is_native, numbered=True)
            return Found(found, read.rejected())

        return self._run(work, {plan.stream.view: (source, splits, plan.columns)})

    def rows(self, source: Source, splits: Sequence[Split], names: Sequence[str]) -> Found:
        """Returns these columns of a source as they are, in the order of the rows and with ``_seq``."""
        return self._run(lambda _, reads: Found(*reads[""].collected()), {"": (source, splits, names)})

    def whole(self, sql: str, sources: Mapping[str, Given], tables: Mapping[str, pa.Table]) -> Found:
        """Returns the result of a query over all rows of its sources, which are given by view, as the tables are."""
        sql = at_time(sql, self._clock)
        steps.run_by("spark")

        def work(spark: SparkSession, reads: Mapping[str, SplitRead]) -> Found:
            staged, rejected = list[Staged](), [none_rejected()]
            try:
                for view, read in reads.items():
                    # Spark does not know how large it is, and would copy it to every task.
                    frame = read.frame.hint("merge") if read.size > BROADCAST else read.frame
                    frame.createOrReplaceTempView(view)
                for view, rows in tables.items():
                    staged.append(Staged(spark, rows))
                    staged[-1].table.createOrReplaceTempView(view)
                register(spark, sql)
                found = collect(spark.sql(sql))
                rejected += [read.rejected() for read in reads.values()]
            finally:
                for rows_of_table in staged:
                    rows_of_table.close()
            return Found(found, pa.concat_tables(rejected))

        return self._run(work, sources)

    def _run(
        self,
        work: Callable[[SparkSession, Mapping[str, SplitRead]], Found],
        sources: Mapping[str, Given],
        *,
        native: bool = True,
    ) -> Found:
        """Runs work on what is read of the sources: by Spark's own reader, where that may be; if it fails, again by
        ours, which says what is wrong.
        """
        spark = self._sessions.session()
        with working_for(self._name), named(spark), self._work.running(spark):
            reads = {}
            try:
                reads = {
                    view: SplitRead(spark, *given, sifts=self._sifts, native=native)
                    for view, given in sources.items()
                }
                found = work(spark, reads)
                for read in reads.values():
                    read.check_unchanged()
                return found
            except Exception as error:
                if not any(read.is_native for read in reads.values()) or not is_of_the_reader(error):
                    raise explain(error) from error
        return self._run(work, sources, native=False)
