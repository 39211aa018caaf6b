"""Runs a stream without a loop: its statements get a batch on request, in the thread of the caller.

Tests of SQL apps use it: statements apply a batch with the same function, and the caller decides where batches end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millpond.connectors import abilities
from millpond.connectors.source import Source
from millpond.engine.batch import Batch
from millpond.engine.carrier import Sessions
from millpond.engine.sizes import BatchSize
from millpond.engine.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DirectStream(Stream):
    """Runs the statements on one stream; ``pull`` moves them. ``spark`` starts Spark if a batch needs it."""

    def __init__(self, source: Source, size: BatchSize, spark: Callable[[], SparkSession]):
        super().__init__(source)
        self._size = size
        self._sessions = Sessions(source, spark)

    def settle(self) -> None:
        """Does nothing: nothing runs by itself."""

    def pull(self) -> None:
        """Moves the statements to the end of the stream, with one batch for all at the same offset."""
        for pipeline in list(self._members):
            end = self.source.latest(pipeline.offset)
            while pipeline.active and not pipeline.reached(end):
                start = pipeline.offset
                until = abilities.clip(self.source, start, end, self._size.rows)
                batch = Batch(self.source, start, until, carrier=self._sessions)
                for other in list(self._members):
                    if other.offset == start:
                        other.advance(batch, start)
                batch.close()
                if pipeline.offset == start:
                    break

    def close(self) -> None:
        for pipeline in list(self._members):
            pipeline.close()
