"""Defines a batch of joined rows that are on Spark."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from millpond.engine.batch import Batch, Part
from millpond.engine.spark_pairs import LargePairs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")


class LargeResult:
    """Represents what a batch of one side gives in a join, on Spark: pairs, and rows of the batch and of the other side
    that match none. ``read`` returns the same as it is in process.
    """

    def __init__(
        self,
        found: LargePairs,
        columns: pa.Schema,
        alone: pa.Table,
        unmet: pa.Table,
        read: Callable[[], pa.Table],
    ):
        self.count: int = found.number + alone.num_rows + unmet.num_rows
        self.read = read
        self.frame = found.joined(columns, alone, unmet)


class JoinedBatch(Part):
    """Represents the results of a join for a batch of one side, which are on Spark. In the frame ``_seq`` has only
    their order.
    """

    is_here = False

    def __init__(self, of: Batch, results: LargeResult, high: int | None):
        super().__init__(pa.table({}), of.spark, high)
        self._of = of
        self._results = results

    def on_spark(self, work: Callable[[], T], prepare: Callable[[], None] | None = None) -> T:
        return self._of.on_spark(work)

    @property
    def cheap(self) -> bool:
        """Returns that reading them again costs little: they are cached."""
        return True

    def read(self) -> pa.Table:
        return self.rows

    @cached_property
    def size(self) -> int:
        return self._results.count

    @cached_property
    def rows(self) -> pa.Table:
        return self.on_spark(self._results.read)

    @cached_property
    def bytes(self) -> None:
        """Returns nothing: executors have them."""

    @cached_property
    def frame(self) -> DataFrame:
        return self._results.frame
