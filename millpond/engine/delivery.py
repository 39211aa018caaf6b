"""Writes rows with the Spark format that a sink names.

Results of a batch that Spark evaluates stay on the executors. They encode them with the sink's own encoder, so that the
bytes are those of any other way. A shuffle brings the messages that belong together, those of a key, to one task, which
sorts them by ``_seq``. Nothing is written before all are encoded: a batch that fails on data has written nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millpond.connectors.sink import NativeSink
from millpond.connectors.source import SEQ
from millpond.engine.failures import explain
from millpond.engine.internals import Shuffled
from millpond.engine.jobs import named
from millpond.engine.row_transfer import to_frame
from millpond.types import Schema, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT = "_at"
"""The index of a result among those of its task: a row of the stream may have several."""
_MEASURED = "measured"
_TASK_ROWS = 10_000
"""Rows that are worth a task of their own."""


def deliver(spark: SparkSession, sink: NativeSink, rows: pa.Table) -> None:
    """Writes rows of this process, in their order."""
    try:
        # In one task: rows of one key keep their order.
        _save(to_frame(spark, sink.encode(rows)).coalesce(1), sink)
    except Exception as error:
        raise explain(error) from error


def _save(frame: DataFrame, sink: NativeSink) -> None:
    with named(frame.sparkSession):
        frame.write.format(sink.format).options(**sink.settings()).save()


class Encoder:
    """Encodes results on an executor. Picklable."""

    def __init__(self, sink: NativeSink, columns: Schema):
        self._sink = sink
        self._columns = columns.arrow()

    @property
    def schema(self) -> Schema:
        """Returns the columns of what ``messages`` yields."""
        encoded = self._sink.encode(self._columns.empty_table()).schema
        return Schema.of(encoded.append(pa.field(SEQ, pa.int64())).append(pa.field(_AT, pa.int64())))

    def messages(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the encoded rows, with ``_seq`` and ``_at``."""
        at = 0
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            seq = pa.nulls(rows.num_rows, pa.int64())
            if SEQ in rows.column_names:
                seq, rows = rows[SEQ], rows.drop_columns([SEQ])
            encoded = self._sink.encode(rows.rename_columns(self._columns.names).cast(self._columns))
            numbers = pa.array(np.arange(at, at + rows.num_rows))
            at += rows.num_rows
            yield from (
                encoded.append_column(SEQ, seq).append_column(_AT, numbers).combine_chunks().to_batches()
            )


class Encoded:
    """Holds the encoded results of a batch, which are on the executors: ``rows`` messages of ``bytes``."""

    def __init__(self, found: Shuffled | None, rows: int = 0, size: int = 0):
        self._found = found
        self._held = ExitStack()
        self.rows = rows
        self.bytes = size

    def hold(self, needed: ExitStack) -> None:
        """Takes what must not be released before ``close``: if executors are lost, their rows are evaluated again."""
        self._held = needed

    def save(self, sink: NativeSink) -> None:
        """Writes them, and returns when they are safe."""
        if self._found is None:
            return
        try:
            _save(self._found.frame, sink)
        except Exception as error:
            raise explain(error) from error

    def close(self) -> None:
        """Removes them, and releases what they were evaluated from."""
        for held in (self._held, self._found):
            with suppress(Exception):  # the JVM may be gone
                if held is not None:
                    held.close()


def encode(results: DataFrame, sink: NativeSink, columns: Schema, rows: float, *, steady: bool) -> Encoded:
    """Evaluates and encodes the results of a batch of about so many rows. Raises a DataError if one cannot be
    written. If they are not ``steady``, a task that runs again may give other keys: one task then writes all.
    """
    from pyspark.sql.functions import expr

    encoder = Encoder(sink, columns)
    messages = results.mapInArrow(encoder.messages, encoder.schema.ddl())
    sizes = [f"octet_length({quote(c.name)})" for c in encoder.schema if pa.types.is_binary(c.type)]
    total = " + ".join(f"coalesce(sum({size}), 0)" for size in sizes) or "0"
    measures = ("count(1)", total, *sink.measures())
    observed = messages.observe(_MEASURED, *(expr(f"{m} AS m{i}") for i, m in enumerate(measures)))
    divided = _divided(observed, sink, rows if steady else 0)
    in_order = divided.sortWithinPartitions(expr(SEQ).asc_nulls_last(), expr(_AT).asc())
    with ExitStack() as kept:
        kept.callback((found := Shuffled(in_order.drop(SEQ, _AT))).close)
        measured = found.observed(_MEASURED)
        if measured is None or not measured[0]:
            return Encoded(None)
        sink.check_measured(*measured[2:])
        kept.pop_all()
    return Encoded(found, *measured[:2])


def _divided(messages: DataFrame, sink: NativeSink, rows: float) -> DataFrame:
    """Returns the messages in the partitions that are written at a time."""
    from pyspark.sql.functions import expr

    division = sink.division() if rows > _TASK_ROWS else None
    cores = messages.sparkSession.sparkContext.defaultParallelism
    tasks = min(math.ceil(min(rows / _TASK_ROWS, cores)), division.tasks) if division is not None else 1
    if division is None or tasks < 2:
        return messages.repartition(1)
    # A task that runs again must send each row to the same one: the number of a row stays, a random one would not.
    return messages.repartition(tasks, expr(f"IF({division.by} IS NULL, {SEQ}, xxhash64({division.by}))"))
