"""Finds the pairs of joined streams for large batches on Spark's executors.

The rows of a batch stay on Spark, and the stored rows of the other side are passed to it like those of a table: all of
them, or those with the keys of the batch. What is stored of the batch comes to the driver, once. The pairs stay on
Spark, where the statement above evaluates them, or are collected if that needs their final numbers.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond import steps
from millpond.clock import Clock
from millpond.connectors.source import SEQ
from millpond.engine.batch import Batch
from millpond.engine.collect import collect
from millpond.engine.failures import explain
from millpond.engine.internals import observed
from millpond.engine.jobs import named
from millpond.engine.local_stage import Tables, in_order
from millpond.engine.row_transfer import Staged
from millpond.engine.spark_stage import SparkStage
from millpond.engine.stage import Stage
from millpond.plan.pairs import is_plain, plan_pairs
from millpond.plan.pipeline import is_steady, may_share_numbers
from millpond.plan.plans import BatchPlan
from millpond.query.row_matches import aligned
from millpond.sql.joins import StreamJoin
from millpond.sql.joins.model import ID, LEFT_ID, RIGHT_ID
from millpond.types import quote, type_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IDS = (LEFT_ID, RIGHT_ID)
_OWN, _PAIRS, _COUNT = "own", "__pairs", "n"
_BITS = 62
"""Bits of a number that tells both rows of a pair."""
_LOOKUP = 4
"""Stored rows that are passed to Spark at the cost of looking up one: so many times the rows of a batch are passed
completely.
"""


@dataclass(frozen=True, slots=True)
class Own:
    """Contains the rows of a batch. ``rows`` are those that come to the driver, in order, with numbers in ``_id``; of
    ``count`` rows ``late`` ones are late. ``frame`` are all others on Spark, with the same numbers in ``_seq``,
    which are from ``first`` to ``last``.
    """

    rows: pa.Table
    count: int
    late: int
    frame: DataFrame
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class LargePairs:
    """Contains what Spark has found for a batch of one side: its rows, and ``number`` pairs, which are on Spark or
    collected. ``ids`` are the numbers of the rows in pairs, of each side for which that matters.
    """

    side: int
    own: Own
    pairs: DataFrame | pa.Table
    ids: tuple[np.ndarray, np.ndarray]
    number: int
    held: ExitStack
    """What must not be released while the pairs are used."""
    bits: int
    """The length of the numbers of the other side's rows."""

    @property
    def on_spark(self) -> bool:
        return not isinstance(self.pairs, pa.Table)

    def collect(self) -> pa.Table:
        """Returns the pairs, in any order. Called by work that Spark does with the batch."""
        if isinstance(self.pairs, pa.Table):
            return self.pairs
        try:
            return collect(self.pairs)
        except Exception as error:
            raise explain(error) from error

    def joined(self, columns: pa.Schema, alone: pa.Table, unmet: pa.Table) -> DataFrame:
        """Returns the pairs with the rows of the batch and of the other side that match none, on Spark. Their ``_seq``
        has the order of the results, without being their final number. Called where the pairs are on Spark.
        """
        assert not isinstance(self.pairs, pa.Table)
        first, bits, end = self.own.first, self.bits, self.own.last - self.own.first + 1
        mine, theirs = quote(_IDS[self.side]), quote(_IDS[1 - self.side])
        shown = [f"CAST({quote(f.name)} AS {type_name(f.type)}) AS {quote(f.name)}" for f in columns]
        frame = self.pairs.selectExpr(
            *shown, f"shiftleft({mine} - {first}L, {bits}) + {theirs} + 1L AS {SEQ}"
        )
        if not alone.num_rows and not unmet.num_rows:
            return frame
        places = [(alone[ID].to_numpy() - first) << bits, (end << bits) + unmet[ID].to_numpy() + 1]
        rows = pa.concat_tables([aligned(t, columns) for t in (alone, unmet)])
        rows = rows.append_column(SEQ, pa.array(np.concatenate(places), pa.int64()))
        staged = Staged(frame.sparkSession, rows)
        self.held.callback(staged.close)
        return frame.union(staged.frame)


class SparkPairs:
    """Finds the pairs of batches of one side. ``own`` is the plan that returns the rows of the side, ``stored`` the
    table that stores those of the other.
    """

    def __init__(self, join: StreamJoin, side: int, own: BatchPlan, stored: str, clock: Clock):
        self._side = side
        self._me = join.sides[side]
        self._plan = plan_pairs(join, side, stored)
        self._stage = SparkStage(self._plan, clock)
        self._may_keep = is_steady(self._plan)
        self._keys = [k[side] for k in join.keys]
        self._outer = [s.outer for s in join.sides]
        self._plain = is_plain(own)
        self._steady = is_steady(own)
        self._shares = may_share_numbers(own)

    def find(
        self,
        stage: Stage,
        batch: Batch,
        tables: Tables,
        held: ExitStack,
        late: int | None,
        over: int | None,
        end: int,
        *,
        keep: bool,
    ) -> LargePairs:
        """Returns the pairs of the rows that a stage finds in a batch. Rows with times before ``late`` are late, and
        those with times before ``over`` match none that comes later. The stored rows of the other side have numbers
        below ``end``. With ``keep`` the pairs stay on Spark until ``held`` ends, if their numbers are not too long.
        """

        def work() -> LargePairs:
            with named(batch.spark()):
                frame = stage.hold(batch, tables, held)
                try:
                    own = self._own(frame, held, late, over)
                    return self._pairs(own, tables, held, end, keep)
                except Exception as error:
                    raise explain(error) from error

        if self._plain:
            batch.shared = True
        steps.run_by("spark")
        with steps.step("read, evaluate and find pairs by Spark") as noted:
            found = batch.on_spark(work)
            noted.tell(found.number)
        return found

    def _own(self, results: DataFrame, held: ExitStack, late: int | None, over: int | None) -> Own:
        from pyspark.sql.functions import expr

        schema = self._me.query.schema
        names = [n for n in results.columns if n != SEQ]
        columns = [
            f"CAST({quote(name)} AS {type_name(c.type)}) AS {quote(c.name)}"
            for name, c in zip(names, schema, strict=True)
        ]
        frame = results.selectExpr(*columns, SEQ)
        if not self._plain:  # all rows are evaluated, as in process, and once
            frame = frame.persist()
            held.callback(partial(_release, frame))
        is_late = self._before(late)
        measures = ("count(1)", f"count_if({is_late})", f"min({SEQ})", f"max({SEQ})")
        seen = frame.observe(_OWN, *(expr(f"{m} AS m{i}") for i, m in enumerate(measures)))
        needed = self._me.outer or self._shares or not self._steady
        conditions = [f"NOT {is_late}", *([] if needed else self._stays(over))]
        found = seen.where(" AND ".join(conditions))
        rows = in_order(collect(found), numbered=True)
        count, missed, first, last = observed(found, _OWN) or (0, 0, None, None)
        frame, numbers = frame.where(conditions[0]), rows[SEQ].to_numpy()
        if not self._steady or (self._shares and (numbers[1:] == numbers[:-1]).any()):
            first, last = 0, rows.num_rows
            rows = rows.set_column(rows.num_columns - 1, SEQ, pa.array(np.arange(rows.num_rows)))
            staged = Staged(frame.sparkSession, rows)
            held.callback(staged.close)
            frame = staged.frame
        rows = rows.rename_columns([*schema.names, ID]).cast(schema.arrow().append(pa.field(ID, pa.int64())))
        return Own(rows, count, missed, frame, first or 0, last or 0)

    def _before(self, mark: int | None) -> str:
        """Returns the condition that the time of a row is before a mark."""
        if mark is None or self._me.time is None:
            return "false"
        return f"coalesce(unix_micros(CAST({quote(self._me.time)} AS TIMESTAMP)) < {mark}L, false)"

    def _stays(self, over: int | None) -> list[str]:
        """Returns the conditions of rows that could match one that comes later."""
        needed = {*self._keys, *([self._me.time] if self._me.time is not None else [])}
        return [*(f"{quote(name)} IS NOT NULL" for name in sorted(needed)), f"NOT {self._before(over)}"]

    def _pairs(self, own: Own, tables: Tables, held: ExitStack, end: int, keep: bool) -> LargePairs:
        schema, bits = self._plan.output.arrow(), (end + 1).bit_length()
        if own.count == own.late or not len(tables.snapshot(self._plan.tables[0].table)):
            return self._collected(own, schema.empty_table(), held, bits)
        numbered = own.frame.selectExpr("*", f"{SEQ} AS {ID}")
        rows = _LOOKUP * own.count
        frame = held.enter_context(self._stage.results(numbered, tables, rows=rows, cheap=True))
        if not keep or not self._may_keep or (own.last - own.first + 1).bit_length() + bits > _BITS:
            return self._collected(own, collect(frame).cast(schema), held, bits)
        frame = frame.persist()
        held.callback(partial(_release, frame))
        ids, number = self._met(frame)
        return LargePairs(self._side, own, frame, ids, number, held, bits)

    def _collected(self, own: Own, pairs: pa.Table, held: ExitStack, bits: int) -> LargePairs:
        left, right = (pairs[name].to_numpy() for name in _IDS)
        return LargePairs(self._side, own, pairs, (left, right), pairs.num_rows, held, bits)

    def _met(self, pairs: DataFrame) -> tuple[tuple[np.ndarray, np.ndarray], int]:
        """Returns the numbers of the rows in pairs, of each side that is outer, and the number of pairs."""
        wanted = [name for name, outer in zip(_IDS, self._outer, strict=True) if outer]
        pairs.createOrReplaceTempView(_PAIRS)
        sets = ", ".join(f"({name})" for name in wanted)
        grouped = f" GROUP BY GROUPING SETS ({sets})" if wanted else ""
        shown = ", ".join([*wanted, f"count(1) AS {_COUNT}"])
        found = collect(pairs.sparkSession.sql(f"SELECT {shown} FROM {_PAIRS}{grouped}"))
        left, right = (
            found[name].drop_null().to_numpy() if name in wanted else np.empty(0, np.int64) for name in _IDS
        )
        total = int(pc.sum(found[_COUNT]).as_py() or 0)
        return (left, right), total // max(1, len(wanted))


def _release(frame: DataFrame) -> None:
    with suppress(Exception):  # the JVM may be gone
        frame.unpersist()
