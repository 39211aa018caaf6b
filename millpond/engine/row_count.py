"""Counts the rows of a batch on Spark."""

from __future__ import annotations

from millpond.engine.batch import Batch
from millpond.engine.failures import explain
from millpond.engine.jobs import named


def count_rows(batch: Batch) -> int:
    """Returns the number of rows. It costs little if Spark has cached them."""

    def count() -> int:
        with named(batch.spark()):
            try:
                return int(batch.frame.count())
            except Exception as error:
                raise explain(error) from error

    return batch.on_spark(count)
