"""Reads splits of a source on Spark's executors, for loads.

Parquet files are read by Spark's own reader, where its values are known to be ours; everything else by our reader, in
Python. Its rows are a frame, or, if nothing is to be evaluated, come to the driver as Arrow, past Spark's own. Of a
frame each task reports, by an accumulator, how many records it could not read: if there are some, or if a task was not
run to its end, a second job collects these from the splits that they are in.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.connectors import abilities
from millpond.connectors.source import BYTES_OF_A_ROW, SEQ, Source, Split
from millpond.connectors.spark_ranges import check_unchanged, ranges_of
from millpond.engine.collect import collect
from millpond.engine.jvm import lost
from millpond.engine.local_stage import in_order
from millpond.engine.native_parquet import native_frame
from millpond.engine.task_reports import new_number, reports_of, taken
from millpond.formats.read_records import none_rejected
from millpond.records.neighbours import neighbours
from millpond.types import Schema, quote

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("millpond")
TASK_BYTES = 8 << 20
"""Bytes of files that one task reads: a larger split of text is divided, small ones are read together."""


class SplitReader:
    """Reads on an executor: a task for each row that it gets, which is the number of the task. Picklable."""

    def __init__(
        self,
        source: Source,
        tasks: Sequence[Sequence[Split]],
        number: int,
        reports: Accumulator[Any],
        *,
        sifts: bool,
    ):
        self._source = source
        self._tasks = tasks
        self._number = number
        self._sifts = sifts
        self.reports = reports

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows with ``_seq``. Reports if it was read to the end."""
        for task in _numbers_in(batches):
            rejected = 0
            for batch, bad in self._batches(task):
                rejected += bad
                yield batch
            self.reports.add({self._number: {task: rejected}})

    def packed(self, tasks: Iterable[int], schema: pa.Schema) -> Iterator[tuple[bytes, int]]:
        """Yields columns of each task as bytes of Arrow, and how many records cannot be read."""
        for task in tasks:
            out, rejected = pa.BufferOutputStream(), 0
            with pa.ipc.new_stream(out, schema) as stream:
                for batch, bad in self._batches(task):
                    stream.write_batch(batch.select(schema.names).cast(schema))
                    rejected += bad
            yield out.getvalue().to_pybytes(), rejected

    def _batches(self, task: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yields the rows of a task, with ``_seq``, and how many records beside them cannot be read."""
        names = [*self._source.schema().names, SEQ]
        for split in self._tasks[task]:
            if not self._sifts:
                for batch in self._source.read(split):
                    yield batch.select(names), 0
                continue
            for part in abilities.receive(self._source, split):
                rows = part.rows.append_column(pa.field(SEQ, pa.int64()), part.places)
                yield rows, part.rejected.num_rows

    def rejected(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the records that cannot be read."""
        for task in _numbers_in(batches):
            for split in self._tasks[task]:
                for part in abilities.receive(self._source, split):
                    yield from part.rejected.combine_chunks().to_batches()


def _numbers_in(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


class SplitRead:
    """Reads splits of a source once, on executors. With ``sifts`` records that cannot be read become error records.
    ``columns`` are those that are needed, if not all are. With ``native`` Spark's own reader may be used.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
        splits: Sequence[Split],
        columns: Sequence[str] | None = None,
        *,
        sifts: bool,
        native: bool,
    ):
        self._spark = spark
        self._source: Source = pickle.loads(pickle.dumps(source))  # it may have other columns later
        self._splits = splits
        self._sifts = sifts
        self._number = new_number()
        pieces = [(place, piece) for place, split in enumerate(splits) for piece in _divided(source, split)]
        self._tasks = together(pieces)
        names = None if columns is None else {name.lower() for name in columns}
        self._columns = Schema(tuple(c for c in source.schema() if names is None or c.name.lower() in names))
        self._native = self._by_spark() if native and pieces else None

    def _by_spark(self) -> DataFrame | None:
        """Returns the rows as Spark's own reader reads them; None if they may be others than ours."""
        try:
            found = iter(ranges_of(self._source, self._splits, self._columns.names))
            tasks = [[next(found) for _ in task] for task in together(list(enumerate(self._splits)))]
            return native_frame(self._spark, self._columns, tasks)
        except Exception as error:
            # Spark opens files on the driver too, and may refuse one: ours reads it, or says what is wrong.
            if lost(error) is not None:
                raise
            log.debug("%s is not read by Spark's own reader: %s", self._source.uri, error)
            return None

    @property
    def is_native(self) -> bool:
        """Returns whether Spark's own reader reads."""
        return self._native is not None

    def check_unchanged(self) -> None:
        """Raises SourceChanged if what Spark's own reader has read changed meanwhile. Ours looks itself."""
        if self.is_native:
            check_unchanged(self._source, self._splits)

    def _reader(self, tasks: Sequence[Sequence[Split]]) -> SplitReader:
        reports = reports_of(self._spark)
        return SplitReader(self._source, tasks, self._number, reports, sifts=self._sifts)

    @property
    def _pieces(self) -> list[list[Split]]:
        """Returns what each task reads."""
        return [[piece for _, piece in task] for task in self._tasks]

    def _numbers(self, count: int) -> DataFrame:
        return self._spark.range(0, count, 1, count)

    @property
    def about(self) -> float:
        """Returns the number of rows, estimated from bytes if they are not known."""
        return sum(split.about for split in self._splits)

    @property
    def size(self) -> int:
        """Returns the bytes of the files, or an estimate of them."""
        return sum(size_of(split) for split in self._splits)

    @cached_property
    def frame(self) -> DataFrame:
        """Returns the rows with ``_seq``."""
        if self._native is not None:
            return self._native
        columns = f"{self._source.schema().ddl()}, {quote(SEQ)} BIGINT"
        if not self._tasks:
            return self._spark.createDataFrame([], columns)
        return self._numbers(len(self._tasks)).mapInArrow(self._reader(self._pieces).rows, columns)

    def collected(self) -> tuple[pa.Table, pa.Table]:
        """Returns the needed columns of the rows, and ``_seq``, in order, and the records that could not be read."""
        if self._native is not None:
            return in_order(collect(self._native), numbered=True), none_rejected()
        count = len(self._tasks)
        reader = self._reader(self._pieces)
        tasks = self._spark.sparkContext.parallelize(range(count), max(count, 1))
        schema = pa.schema([*self._columns.arrow(), pa.field(SEQ, pa.int64())])
        found = tasks.mapPartitions(partial(reader.packed, schema=schema)).collect()
        rows = [pa.ipc.open_stream(data).read_all() for data, _ in found]
        rejected = self._rejected_of({n: bad for n, (_, bad) in enumerate(found)})
        return pa.concat_tables([schema.empty_table(), *rows]), rejected

    def rejected(self) -> pa.Table:
        """Returns the records that could not be read, in order. Called after the rows of the frame were read."""
        if self._native is not None:
            return none_rejected()
        return self._rejected_of(taken(reports_of(self._spark), self._number))

    def _rejected_of(self, reported: Mapping[int, int]) -> pa.Table:
        """Returns the records that could not be read, by how many tasks have found."""
        bad = {place for n, task in enumerate(self._tasks) if reported.get(n, 1) for place, _ in task}
        if not self._sifts or not bad:
            return none_rejected()
        # The splits as a whole: so a record is named by its line, whichever part of a split a task has read.
        tasks = [[self._splits[place]] for place in sorted(bad)]
        columns = Schema.of(none_rejected().schema).ddl()
        return collect(self._numbers(len(tasks)).mapInArrow(self._reader(tasks).rejected, columns))


def _divided(source: Source, split: Split) -> list[Split]:
    return source.divided(split, TASK_BYTES) if isinstance(source, abilities.Spreads) else [split]


def together(pieces: Sequence[tuple[int, Split]]) -> list[list[tuple[int, Split]]]:
    """Returns neighbouring pieces in groups, each for one task."""
    return neighbours(pieces, lambda piece: (size_of(piece[1]),), (TASK_BYTES,))


def size_of(split: Split) -> int:
    """Returns the bytes of a split, estimated from its rows if these are more."""
    return max(split.bytes or 0, (split.rows or 0) * BYTES_OF_A_ROW)
