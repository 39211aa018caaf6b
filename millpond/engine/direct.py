"""Runs a stream without a Spark query: its statements get a batch on request, in the thread of the caller.

Tests of SQL apps use it: statements apply a batch with the same function, but nothing waits for Spark's query, and the
caller decides where batches end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millpond.connectors import abilities
from millpond.connectors.source import Source
from millpond.engine.batch import Batch
from millpond.engine.pipeline import Pipeline
from millpond.engine.sizes import BatchSize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DirectStream:
    """Runs the statements on one stream; like StreamQuery, but ``pull`` moves them. ``spark`` starts Spark if a batch
    needs it.
    """

    def __init__(self, source: Source, size: BatchSize, spark: Callable[[], SparkSession]):
        self.source = source
        self._size = size
        self._spark = spark
        self._own: SparkSession | None = None
        self._members: list[Pipeline] = []

    def __len__(self) -> int:
        return len(self._members)

    def add(self, pipeline: Pipeline) -> None:
        self._members.append(pipeline)

    def remove(self, pipeline: Pipeline) -> None:
        pipeline.close()
        if pipeline in self._members:
            self._members.remove(pipeline)

    def settle(self) -> None:
        """Does nothing: nothing runs by itself."""

    def wait_until_up(self) -> None:
        """Does nothing: it is always up."""

    def pull(self) -> None:
        """Moves the statements to the end of the stream, with one batch for all at the same offset."""
        for pipeline in list(self._members):
            end = self.source.latest(pipeline.offset)
            while pipeline.active and not pipeline.reached(end):
                start = pipeline.offset
                until = abilities.clip(self.source, start, end, self._size.rows)
                batch = Batch(self.source, start, until, spark=self._own_session)
                for other in list(self._members):
                    if other.offset == start:
                        other.advance(batch)
                if pipeline.offset == start:
                    break

    def _own_session(self) -> SparkSession:
        if self._own is None:
            from millpond.engine.reader import reading_session

            self._own = reading_session(self._spark())
        return self._own

    def close(self) -> None:
        for pipeline in list(self._members):
            pipeline.close()
