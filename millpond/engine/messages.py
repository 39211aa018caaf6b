"""Decodes the messages of a range that a Spark format reads: in this process, or on Spark's executors.

On executors the rows of messages that can be decoded are the frame. Each task reports, by an accumulator, whether it
has met others: then a second job collects these. A task that runs twice reports twice, which does no harm.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Offset
from millpond.connectors.source import DELETED, MESSAGE, SEQ, NativeSource, Order
from millpond.engine.collect import collect
from millpond.engine.reader import read_messages
from millpond.engine.task_reports import new_number, reported, reports_of, taken
from millpond.engine_rule import SMALL_ROWS
from millpond.formats.read_records import Received
from millpond.types import Column, Schema, quote, type_name

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

_REJECTED = pa.schema(
    [("seq", pa.int64()), ("reason", pa.string()), ("value", pa.binary()), ("key", pa.binary())]
)


class Drifted(Exception):
    """Requests that a batch is applied again: its messages have new fields, which became known on the way."""


class Report(NamedTuple):
    """Says what a task has met: how many messages that cannot be decoded, whether there are new fields, and whether
    messages delete rows.
    """

    rejected: int
    drifts: bool
    deletes: bool


class Decoder:
    """Decodes on an executor. Picklable."""

    def __init__(
        self,
        source: NativeSource,
        order: Order,
        number: int,
        reports: Accumulator[Any],
        columns: Sequence[str] | None = None,
    ):
        self._source = source
        self._columns = columns
        self._order = order
        self._number = number
        self.reports = reports

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows with ``_seq``, and of their columns those that are needed. Reports if it was read to the
        end.
        """
        met = Report(0, False, False)
        for received, drifts in self._decoded(batches):
            deletes = met.deletes or _deletes(received.rows)
            met = Report(met.rejected + received.rejected.num_rows, met.drifts or drifts, deletes)
            rows = received.rows if self._columns is None else received.rows.select(self._columns)
            yield rows.append_column(pa.field(SEQ, pa.int64()), received.places)
        self.reports.add({self._number: {_task(): met}})

    def of(self, columns: Sequence[str] | None) -> Decoder:
        """Returns it for some of the columns."""
        return Decoder(self._source, self._order, self._number, self.reports, columns)

    def rejected(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the messages that cannot be decoded."""
        for received, _ in self._decoded(batches):
            yield from received.rejected.rename_columns({"place": "seq"}).combine_chunks().to_batches()

    def _decoded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Received, bool]]:
        for batch in batches:
            raw = pa.Table.from_batches([batch])
            received, drifts = self._source.decode_known(raw)
            yield received.numbered(pa.array(self._order(raw))), drifts


def _deletes(rows: pa.RecordBatch) -> bool:
    return DELETED in rows.schema.names and bool(pc.any(rows[DELETED]).as_py())


def _task() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


class Messages:
    """Represents the messages of a range. Statements at the same offset share it.

    If new fields become columns, few messages are decoded here before anything else. New fields of many are found while
    they are decoded, on executors or here: Drifted says so, and after ``notice`` they are columns.
    """

    def __init__(
        self,
        source: NativeSource,
        start: Offset | None,
        end: Offset,
        spark: Callable[[], SparkSession],
        on_spark: Callable[[Callable[[], pa.Table]], pa.Table],
    ):
        self._source = source
        self._start = start
        self._end = end
        self._spark = spark
        self._on_spark = on_spark
        self._noticed = False
        self._number = new_number()
        self._frames: dict[tuple[str, ...] | None, DataFrame] = {}

    def look(self, size: int | None) -> None:
        """Finds new fields of so many messages, if they are few."""
        if self._source.guesses and size is not None and size <= SMALL_ROWS and not self._noticed:
            self.notice()

    def notice(self) -> None:
        """Decodes all here, so that new fields are columns, on executors too."""
        self._noticed = True
        _ = self.received
        self.close()
        self._frames.clear()
        for made in ("_copy", "_raw", "_decoder"):
            self.__dict__.pop(made, None)

    @cached_property
    def _begin(self) -> Offset | None:
        """Returns where the range begins: the beginning of a topic moves while it is read."""
        return self._source.begun(self._start, self._end)

    @cached_property
    def received(self) -> Received:
        """Returns the rows that are decoded here, with their sequence numbers as places."""
        source = self._source
        raw = source.fetch(self._begin, self._end)
        numbers = source.order(self._begin, self._end, raw)(raw)
        if len(numbers) > 1 and (numbers[1:] < numbers[:-1]).any():
            order = np.argsort(numbers)
            raw, numbers = raw.take(pa.array(order)), numbers[order]
        return source.decode(raw).numbered(pa.array(numbers))

    @property
    def rows(self) -> pa.Table:
        """Returns the rows with ``_seq``, decoded here. Raises Drifted if there are new columns, which nobody knows
        of.
        """
        known = self.names
        rows, seqs, _ = self.received
        if not self._noticed and tuple(rows.schema.names) != known:
            raise Drifted
        return pa.Table.from_batches([rows]).append_column(SEQ, seqs)

    @property
    def is_here(self) -> bool:
        """Returns whether its rows were decoded here."""
        return "received" in self.__dict__

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the names of the columns."""
        return tuple(self.received.rows.schema.names) if self.is_here else self._copy.schema().names

    @cached_property
    def _copy(self) -> NativeSource:
        """Returns the source as it is now: it may have other columns later."""
        self._source.schema()  # the decoder goes with it
        copy: NativeSource = pickle.loads(pickle.dumps(self._source))
        return copy

    @cached_property
    def _raw(self) -> DataFrame:
        return read_messages(self._spark(), self._source, self._begin, self._end, self._most)

    @cached_property
    def _sizes(self) -> list[int]:
        """Returns the messages of each split, as the tasks were made for them."""
        return [s.rows or 0 for s in self._source.splits(self._begin, self._end)]

    @cached_property
    def _most(self) -> int:
        """Returns how many messages a task decodes at most: a large split is for several, if there are cores."""
        cores = self._spark().sparkContext.defaultParallelism
        return max(SMALL_ROWS, math.ceil(sum(self._sizes) / cores))

    @cached_property
    def _decoder(self) -> Decoder:
        order = self._source.order(self._begin, self._end)
        return Decoder(self._copy, order, self._number, reports_of(self._raw.sparkSession))

    def frame(self, needed: Collection[str] | None = None) -> DataFrame:
        """Returns the rows with ``_seq``, which executors decode. What is not needed of them does not go to the
        process that decodes them, nor back.
        """
        schema = self._copy.schema()
        wanted = None if needed is None else {n.lower() for n in needed}
        columns = [c for c in schema if wanted is None or c.name.lower() in wanted]
        names = None if wanted is None else tuple(c.name for c in columns)
        if names not in self._frames:
            raw = self._raw.selectExpr(*self._copy.flat(names))
            self._frames[names] = raw.mapInArrow(
                self._decoder.of(names).rows, Schema((*columns, Column(SEQ, pa.int64()))).ddl()
            )
        return self._frames[names]

    @cached_property
    def rejected(self) -> pa.Table | None:
        """Returns the messages that cannot be decoded, if there are any. If all tasks have decoded without one, that
        costs nothing. Raises Drifted if they found new fields.
        """
        if self.is_here or not self._frames:
            found = self.received.rejected.rename_columns({"place": "seq"})
            return found if found.num_rows else None
        reports = self._reports
        if any(r.drifts for r in reports):
            raise Drifted
        if self._are_complete(reports) and not any(r.rejected for r in reports):
            return None
        found = self._on_spark(self._collect_rejected)
        return found if found.num_rows else None

    def _collect_rejected(self) -> pa.Table:
        columns = Schema.of(_REJECTED).ddl()
        raw = self._raw.selectExpr(*self._copy.flat(MESSAGE[:1]))
        return collect(raw.mapInArrow(self._decoder.rejected, columns)).sort_by("seq")

    @property
    def deletes(self) -> bool:
        """Returns whether a message may delete rows, by what the tasks that have decoded them say."""
        reports = self._reports
        return not self._are_complete(reports) or any(r.deletes for r in reports)

    @property
    def _reports(self) -> list[Report]:
        return list(reported(self._decoder.reports, self._number).values())

    def _are_complete(self, reports: list[Report]) -> bool:
        return len(reports) >= sum(math.ceil(size / self._most) for size in self._sizes)

    def close(self) -> None:
        """Forgets what tasks have reported."""
        if self._frames:
            taken(self._decoder.reports, self._number)


def fitted(frame: DataFrame, schema: Schema, needed: Collection[str] | None = None) -> DataFrame:
    """Returns these columns of a frame, or those that are needed of them, and ``_seq``: those that it does not have
    are NULL.
    """
    known = frame.columns
    wanted = {n.lower() for n in (schema.names if needed is None else needed)}
    columns = [
        quote(c.name) if c.name in known else f"CAST(NULL AS {type_name(c.type)}) AS {quote(c.name)}"
        for c in schema
        if c.name.lower() in wanted
    ]
    return frame.selectExpr(*columns, quote(SEQ))
