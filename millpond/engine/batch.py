"""A batch: the rows of a stream between two offsets, here or on Spark."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.changes import Offset
from millpond.engine.reader import read_range
from millpond.sources.base import SEQ, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Batch:
    """Rows after ``start`` up to ``end``. Statements that are at the same place share one.

    ``limit`` is the number of rows up to which they are read in this process. ``frame`` is the batch as Spark
    handed it over; without it Spark reads the range when it is asked.
    """

    def __init__(
        self,
        source: Source,
        start: Offset | None,
        end: Offset,
        *,
        limit: int,
        spark: Callable[[], SparkSession],
        frame: DataFrame | None = None,
        shared: bool = False,
    ):
        self.source = source
        self.start = start
        self.end = end
        self._limit = limit
        self._spark = spark
        self._given = frame
        self._shared = shared
        self._kept: DataFrame | None = None

    @cached_property
    def rows(self) -> pa.Table | None:
        """The rows with ``_seq``, read here; None when they are more than the limit, or how many is not known."""
        splits = self.source.splits(self.start, self.end)
        sizes = [s.rows for s in splits]
        if None in sizes or sum(s for s in sizes if s is not None) > self._limit:
            return None
        batches = [batch for split in splits for batch in self.source.read(split)]
        if batches:
            return pa.Table.from_batches(batches)
        return self.source.schema().arrow().append(pa.field(SEQ, pa.int64())).empty_table()

    @cached_property
    def frame(self) -> DataFrame:
        """The rows with ``_seq`` on Spark, which keeps them if several statements may ask."""
        frame = self._given
        if frame is None:
            frame = read_range(self._spark(), self.source, self.start, self.end)
        if self._shared:
            frame = self._kept = frame.persist()
        return frame

    def close(self) -> None:
        """Spark need not keep the rows any longer."""
        if self._kept is not None:
            self._kept.unpersist()
            self._kept = None
