"""Runs the batch stage on Spark.

A table that is small, has no more rows than the batch, or has not changed is registered completely, once per version,
and a batch is one action. A larger table that changes is looked up: the distinct keys of the batch are collected, the
index of the table returns their rows, and Spark joins with these. So the cost depends on the batch and not on the
table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.clock import Clock
from millpond.engine.collect import collect
from millpond.engine.failures import explain
from millpond.engine.functions import register
from millpond.engine.internals import java_session
from millpond.engine.local_stage import SMALL, Tables, distinct, in_order
from millpond.engine.messages import Drifted
from millpond.engine.row_transfer import BROADCAST, Divide, Staged, goes_through_files
from millpond.plan.pipeline import stream_select
from millpond.plan.plans import BatchPlan, Lookup, TableInput
from millpond.sql.render.spark import at_time
from millpond.tables.base import Snapshot
from millpond.types import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCE = "__source"


@dataclass(slots=True)
class _Registered:
    version: int
    rows: Staged


class SparkStage:
    """Runs the batches of one plan. Caches the tables that it has passed to Spark; nothing else outlives a batch.

    Statements share a session, one at a time: each run registers all of its names again.
    """

    def __init__(self, plan: BatchPlan, clock: Clock):
        self._plan = plan
        self._clock = clock
        self._registered: dict[str, _Registered] = {}
        self._seen: dict[str, int] = {}
        """The version of each table at the last batch."""
        self._large: dict[str, tuple[int, bool]] = {}
        """Whether a version of a table has too many bytes to be registered completely."""

    def run(
        self,
        batch: DataFrame,
        tables: Tables,
        *,
        rows: float = 0,
        cheap: bool = False,
        numbered: bool = False,
    ) -> pa.Table:
        """Returns the results of a batch of about so many rows, in the order of the stream. ``_seq`` is left out unless
        ``numbered``. ``cheap`` says that reading the batch twice costs less than to cache it.
        """
        with self.results(batch, tables, rows=rows, cheap=cheap) as frame:
            return in_order(collect(frame), numbered=numbered)

    @contextmanager
    def results(
        self, batch: DataFrame, tables: Tables, *, rows: float = 0, cheap: bool = False
    ) -> Iterator[DataFrame]:
        """Returns the results of a batch as a frame, with ``_seq``, which can be evaluated until the end of the block.
        Errors of Spark in the block are raised as those of Millpond.
        """
        spark = batch.sparkSession
        plan = _at_time(self._plan, self._clock)
        looked_up = [t for t in plan.tables if self._looks_up(t, tables, spark, rows)]
        needed: DataFrame | None = None
        fetched: list[Staged] = []
        try:
            needed = needed_of(batch, plan)
            if not cheap and any(t.lookup is not None and t.lookup.of is None for t in looked_up):
                needed = needed.persist()
            needed.createOrReplaceTempView(plan.stream.view)
            for table in plan.tables:
                if table not in looked_up:
                    self._register(spark, table, tables)
            fetched += self._look_up(spark, plan, looked_up, tables)
            register(spark, plan.sql)
            yield spark.sql(plan.sql)
        except (Drifted, Divide):
            raise
        except Exception as error:
            raise explain(error) from error
        finally:
            if looked_up and needed is not None and not cheap:
                needed.unpersist()
            for staged in fetched:
                staged.close()

    def _looks_up(self, table: TableInput, tables: Tables, spark: SparkSession, rows: float) -> bool:
        if table.lookup is None:
            return False
        version = tables.version(table.table)
        known = self._registered.get(table.view)
        if known is not None and known.version == version and _same_session(known.rows.frame, spark):
            return False
        snapshot, before = tables.snapshot(table.table), self._seen.get(table.view)
        self._seen[table.view] = version
        if snapshot.remote:
            return True
        if len(snapshot) <= SMALL:
            return False
        if not len(snapshot) <= rows < math.inf and (before != version or not goes_through_files(spark)):
            return True
        return self._is_large(table.view, version, snapshot)

    def _is_large(self, view: str, version: int, snapshot: Snapshot) -> bool:
        if self._large.get(view, (None, False))[0] != version:
            self._large[view] = version, snapshot.scan().nbytes > BROADCAST
        return self._large[view][1]

    def _register(self, spark: SparkSession, table: TableInput, tables: Tables) -> None:
        known = self._registered.get(table.view)
        version = tables.version(table.table)
        if known is None or known.version != version or not _same_session(known.rows.frame, spark):
            rows = Staged(spark, tables.snapshot(table.table).scan())
            known = self._registered[table.view] = _Registered(version, rows)
        known.rows.table.createOrReplaceTempView(table.view)

    def _look_up(
        self, spark: SparkSession, plan: BatchPlan, wanted: list[TableInput], tables: Tables
    ) -> list[Staged]:
        """Registers the rows that the batch needs of these tables."""
        fetched: dict[str, pa.Table] = {}
        staged: list[Staged] = []
        collected = _collect_keys(spark, plan, wanted)
        for table in wanted:
            lookup = table.lookup
            assert lookup is not None
            if lookup.of is None:
                keys = collected[table.view]
            elif lookup.of in fetched:
                keys = distinct(fetched[lookup.of].select(list(lookup.keys)))
            else:
                of = next(t.table for t in plan.tables if t.view == lookup.of)
                keys = distinct(tables.snapshot(of).scan(list(lookup.keys)))
            rows = tables.snapshot(table.table).get(lookup.columns, keys)
            fetched[table.view] = rows
            self._registered.pop(table.view, None)
            staged.append(Staged(spark, rows))
            staged[-1].table.createOrReplaceTempView(table.view)
        return staged


def _collect_keys(spark: SparkSession, plan: BatchPlan, wanted: list[TableInput]) -> dict[str, pa.Table]:
    """Returns the distinct keys of every lookup that starts from the batch, in one action."""
    direct = [(t.view, t.lookup) for t in wanted if t.lookup is not None and t.lookup.of is None]
    if not direct:
        return {}
    source = f"{plan.stream.view} AS {quote(plan.stream.alias)}"
    where = f" WHERE {plan.filter}" if plan.filter else ""
    if len(direct) == 1:
        view, lookup = direct[0]
        keys = ", ".join(f"{k} AS k{i}" for i, k in enumerate(lookup.keys))
        return {view: collect(spark.sql(f"SELECT DISTINCT {keys} FROM {source}{where}"))}
    sets = ", ".join(f"collect_set({_struct(lookup)}) AS {view}" for view, lookup in direct)
    row = collect(spark.sql(f"SELECT {sets} FROM {source}{where}"))
    return {view: pa.Table.from_struct_array(row[view].combine_chunks().flatten()) for view, _ in direct}


def _at_time(plan: BatchPlan, clock: Clock) -> BatchPlan:
    if not clock.stands:
        return plan
    return replace(plan, sql=at_time(plan.sql, clock), filter=plan.filter and at_time(plan.filter, clock))


def needed_of(rows: DataFrame, plan: BatchPlan) -> DataFrame:
    """Returns the columns and rows of a stream that a plan needs."""
    rows.createOrReplaceTempView(_SOURCE)
    where = f" WHERE {plan.filter}" if plan.filter else ""
    alias = quote(plan.stream.alias)
    return rows.sparkSession.sql(f"SELECT {stream_select(plan)} FROM {_SOURCE} AS {alias}{where}")


def _same_session(frame: DataFrame, spark: SparkSession) -> bool:
    """Returns whether two sessions are the same, whatever Python objects they have."""
    if frame.sparkSession.sparkContext is not spark.sparkContext:
        return False  # the process of the other session is gone
    return bool(java_session(frame.sparkSession).equals(java_session(spark)))


def _struct(lookup: Lookup) -> str:
    return "struct(" + ", ".join(f"{k} AS k{i}" for i, k in enumerate(lookup.keys)) + ")"
