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
from millpond.engine.jobs import named, working_for
from millpond.engine.local_stage import Tables
from millpond.engine.spark_stage import SparkStage
from millpond.engine.split_reader import SplitRead
from millpond.engine.staged import BROADCAST, Staged
from millpond.formats.received import none_rejected
from millpond.plan.plans import BatchPlan
from millpond.sql.render.spark import at_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Found(NamedTuple):
    """Contains rows, and the records that could not be read."""

    rows: pa.Table
    rejected: pa.Table


class LoadStage:
    """Evaluates the query of one statement, ``name``, again and again, by one thread at a time."""

    def __init__(self, name: str, spark: Callable[[], SparkSession], clock: Clock, *, sifts: bool):
        self._name = name
        self._clock = clock
        self._sessions = Sessions(None, spark)
        self._sifts = sifts
        self._stages: dict[str, SparkStage] = {}

    def chunk(self, plan: BatchPlan, source: Source, splits: Sequence[Split], tables: Tables) -> Found:
        """Returns the result of a query over some rows of its source, in their order and with ``_seq``."""
        stage = self._stages.setdefault(plan.sql, SparkStage(plan, self._clock))
        with working_for(self._name), named(spark := self._sessions.session()):
            read = SplitRead(spark, source, splits, sifts=self._sifts)
            try:
                rows = stage.run(read.frame, tables, rows=read.about, numbered=True)
                return Found(rows, read.rejected())
            except Exception as error:
                raise explain(error) from error

    def rows(self, source: Source, splits: Sequence[Split], names: Sequence[str]) -> Found:
        """Returns these columns of a source as they are, in the order of the rows and with ``_seq``."""
        with working_for(self._name), named(spark := self._sessions.session()):
            try:
                return Found(*SplitRead(spark, source, splits, sifts=self._sifts).collected(names))
            except Exception as error:
                raise explain(error) from error

    def whole(
        self,
        sql: str,
        sources: Mapping[str, tuple[Source, Sequence[Split]]],
        tables: Mapping[str, pa.Table],
    ) -> Found:
        """Returns the result of a query over all rows of its sources, which are given by view, as the tables are."""
        sql, rejected, staged = at_time(sql, self._clock), [none_rejected()], list[Staged]()
        steps.run_by("spark")
        with working_for(self._name), named(spark := self._sessions.session()):
            try:
                reads = {v: SplitRead(spark, *given, sifts=self._sifts) for v, given in sources.items()}
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
            except Exception as error:
                raise explain(error) from error
            finally:
                for rows_of_table in staged:
                    rows_of_table.close()
        return Found(found, pa.concat_tables(rejected))
