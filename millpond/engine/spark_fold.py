"""Applies the events of large batches to rows of a table on Spark's executors.

The events stay on Spark. The rows that they can affect are given to it, and executors fold the events of each row, or
of each key, in the order of the stream. Only the rows as they are afterwards come back, and what RETURNING returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millpond.clock import Clock
from millpond.connectors.source import SEQ as STREAM_SEQ
from millpond.engine.batch import Batch
from millpond.engine.collect import collect
from millpond.engine.functions import register
from millpond.engine.internals import observed
from millpond.engine.local_stage import Tables
from millpond.engine.row_transfer import Staged
from millpond.engine.stage import Stage
from millpond.plan.pipeline import is_steady, may_share_numbers
from millpond.plan.plans import FoldPlan
from millpond.sql.fold import EVENTS, PAIRS, ROWS, SAME, SEQ, RowFold, identity_columns
from millpond.sql.render.folds import ST, fold_outputs, render_fold
from millpond.sql.render.spark import at_time, render
from millpond.sql.render.words import SparkWords
from millpond.types import quote, type_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COUNT = "n"


RowsOf = Callable[[pa.Table | None], pa.Table]
"""Returns the rows of the target with these keys, or all."""


@dataclass(frozen=True, slots=True)
class FoldedEvents:
    """Contains the result of a fold: ``found`` as the query of a fold returns it, and the number of events. ``keys``
    are what rows were looked up by, if they were, and ``rows`` those that the events could affect.
    """

    found: pa.Table
    events: int
    keys: pa.Table | None
    rows: pa.Table


class SparkFold:
    """Folds the batches of one running statement."""

    def __init__(self, plan: FoldPlan, clock: Clock):
        self._fold = fold = plan.fold
        self._clock = clock
        self._sql = render_fold(fold, SparkWords(stable=may_share_numbers(plan.batch)), numbered=True)
        self._pairs = render(fold.pairs.expression) if isinstance(fold, RowFold) else None
        batch = plan.batch
        self._once = bool(batch.tables) or not is_steady(batch)
        """Whether its events are evaluated once, and cached, if they are needed twice."""

    def run(
        self,
        stage: Stage,
        batch: Batch,
        tables: Tables,
        rows_of: RowsOf,
        others: Mapping[str, pa.Table],
        *,
        look_up: bool,
    ) -> FoldedEvents | None:
        """Folds the events that a stage finds in a batch; None if the batch is empty. ``others`` are the other tables
        that the fold reads, by view. With ``look_up``, the rows with the keys of the events are asked for, else all.
        """

        def work(events: DataFrame) -> FoldedEvents:
            return self._run(events, rows_of, others, look_up, look_up and (self._once or not batch.cheap))

        return stage.use(batch, tables, "read, evaluate and fold by Spark", work)

    def _run(
        self,
        events: DataFrame,
        rows_of: RowsOf,
        others: Mapping[str, pa.Table],
        look_up: bool,
        cached: bool,
    ) -> FoldedEvents:
        spark, staged = events.sparkSession, []
        events = self._renamed(events)
        if cached:
            events = events.persist()
        try:
            keys, count = self._keys(events) if look_up else (None, None)
            rows = rows_of(keys)
            staged = [Staged(spark, table) for table in (rows, *others.values())]
            for view, other in zip(others, staged[1:], strict=True):
                other.table.createOrReplaceTempView(view)
            found, seen = self._folded(spark, events, staged[0].table, counted=count is None)
            return FoldedEvents(found, seen if count is None else count, keys, rows)
        finally:
            for given in staged:
                given.close()
            if cached:
                events.unpersist()

    def _renamed(self, events: DataFrame) -> DataFrame:
        """Returns events under the names and with the types that they have in a fold."""
        schema = self._fold.events.schema
        names = [n for n in events.columns if n != STREAM_SEQ]
        columns = [
            f"CAST({quote(name)} AS {type_name(c.type)}) AS {quote(c.name)}"
            for name, c in zip(names, schema, strict=True)
        ]
        # Rows of a table that match no row of the stream come last.
        return events.selectExpr(*columns, f"COALESCE({STREAM_SEQ}, {2**63 - 1}) AS {SEQ}")

    def _keys(self, events: DataFrame) -> tuple[pa.Table, int]:
        """Returns the distinct values that rows are looked up by, and the number of events."""
        names = [quote(theirs) for _, theirs in self._fold.lookup]
        keys = [f"{name} AS k{n}" for n, name in enumerate(names)]
        events.createOrReplaceTempView(EVENTS)
        sql = f"SELECT {', '.join(keys)}, COUNT(*) AS {_COUNT} FROM {EVENTS} GROUP BY {', '.join(names)}"
        found = collect(events.sparkSession.sql(sql))
        return found.drop_columns([_COUNT]), int(pc.sum(found[_COUNT]).as_py() or 0)

    def _folded(
        self, spark: SparkSession, events: DataFrame, rows: DataFrame, *, counted: bool
    ) -> tuple[pa.Table, int]:
        from pyspark.sql import functions as f

        fold = self._fold
        if counted:
            events = events.observe(_COUNT, f.count(f.lit(1)).alias(_COUNT))
        events.createOrReplaceTempView(EVENTS)
        named = [f"CAST({SAME} AS TINYINT) AS {ST}"]
        named += [f"{quote(c.name)} AS i{n}" for n, c in enumerate(identity_columns(fold.target))]
        named += [f"{quote(c.name)} AS r{n}" for n, c in enumerate(fold.target.schema)]
        rows.selectExpr(*named).createOrReplaceTempView(ROWS)
        if isinstance(fold, RowFold) and self._pairs is not None:
            for i in fold.pairs.inputs:
                if i.relation.rows_of is not None:
                    rows.createOrReplaceTempView(i.view)
            self._query(spark, self._pairs).createOrReplaceTempView(PAIRS)
        folded = self._query(spark, f"SELECT * FROM ({self._sql}) WHERE {ST} <> {SAME}")
        found, seen = collect(folded), (observed(folded, _COUNT) or [0])[0] if counted else 0
        if SEQ in found.column_names:
            found = found.take(pc.sort_indices(found[SEQ])).drop_columns([SEQ])
        return found.rename_columns(fold_outputs(fold)), seen

    def _query(self, spark: SparkSession, sql: str) -> DataFrame:
        sql = at_time(sql, self._clock)
        register(spark, sql)
        return spark.sql(sql)
