"""Defines a batch: the rows of a stream between two offsets, read in this process or on Spark."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors import abilities, retention
from millpond.connectors.pinned_files import Pins
from millpond.connectors.source import BYTES_OF_A_ROW, DELETED, SEQ, NativeSource, Source, Split
from millpond.engine.carrier import Sessions
from millpond.engine.collect import collect
from millpond.engine.messages import Messages, fitted
from millpond.engine.reader import read_range
from millpond.engine.row_transfer import SHIPPED, Divide, Staged, goes_through_files
from millpond.engine.stored_rows import Stored
from millpond.errors import Error
from millpond.formats.read_records import none_rejected
from millpond.types import Schema, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


class Batch:
    """Represents the rows after ``start`` up to ``end``. Statements at the same offset share one. ``carrier`` runs what
    Spark does with it.
    """

    def __init__(
        self,
        source: Source,
        start: Offset | None,
        end: Offset,
        *,
        carrier: Sessions,
        shared: bool = False,
    ):
        self.source = source
        self.start = start
        self.end = end
        self.carrier = carrier
        self._messages = (
            Messages(source, start, end, self.spark, self.on_spark)
            if isinstance(source, NativeSource)
            else None
        )
        self.shared = shared
        """Whether Spark reads it more than once."""
        self.sifted: tuple[pa.Table, pa.Table] | None = None
        """Its rows and its error records, if it was read here because some records cannot be read."""
        self._kept: list[DataFrame] = []
        self._staged: list[Staged | Stored] = []

    def spark(self) -> SparkSession:
        """Returns the session that Spark reads the batch in. It starts Spark."""
        return self.carrier.session()

    def on_spark(self, work: Callable[[], T], prepare: Callable[[], None] | None = None) -> T:
        """Runs work that Spark does with the batch, in the query that carries it, and ``prepare`` before it begins."""
        begin = (lambda: (self.frame, prepare and prepare())) if isinstance(self.source, Pins) else None
        later = (lambda: then.cheap and then.frame) if (then := self.then) is not None else None
        return self.carrier.run(json.dumps([self.start, self.end]), work, begin, later)

    @cached_property
    def _splits(self) -> list[Split]:
        return self.source.splits(self.start, self.end)

    @cached_property
    def size(self) -> int | None:
        """Returns the number of rows, if the source knows it."""
        if self.sifted is not None:
            return int(self.sifted[0].num_rows)
        return self._sum(lambda split: split.rows)

    def _sum(self, measure: Callable[[Split], int | None]) -> int | None:
        with suppress(Error):  # whoever reads the rows gets the error
            sizes = [measure(s) for s in self._splits]
            return None if None in sizes else sum(s for s in sizes if s is not None)
        return None

    @cached_property
    def lost(self) -> int:
        """Returns how many rows the source has removed before they were read. The others stay while it is read."""
        self._hold = retention.hold(self.source, self.start)
        return retention.lost(self.source, self.start, self.end)

    def check(self) -> None:
        """Raises if it does not match the current data of the source."""
        _ = self.lost

    _hold: retention.Hold | None = None
    then: Batch | None = None
    """The batch after it, if that is known: its stored rows are found while Spark is busy with this one."""
    high: int | None = None
    """The highest event time of its rows, if the creator of the batch knows it."""

    def part(self, rows: pa.Table) -> Part:
        """Returns a batch of some of its rows."""
        return Part(rows, self.spark, self.high)

    def halves(self) -> tuple[Batch, Batch] | None:
        """Returns the batch in two halves, if the source knows an offset in between."""
        if (size := self.size) is None or size < 2:
            return None
        middle = abilities.clip(self.source, self.start, self.end, size // 2)
        if middle in (self.end, self.start):
            return None
        ends = ((self.start, middle), (middle, self.end))
        first, second = (Batch(self.source, a, b, carrier=self.carrier) for a, b in ends)
        return first, second

    def read(self) -> pa.Table:
        """Returns all rows with ``_seq``, read here, however many."""
        if self._messages is not None:
            return self._messages.rows
        if self.sifted is not None:
            return self.sifted[0]
        batches = [batch for split in self._splits for batch in self.source.read(split)]
        if batches:
            return pa.Table.from_batches(batches)
        return self.source.schema().arrow().append(pa.field(SEQ, pa.int64())).empty_table()

    @cached_property
    def rows(self) -> pa.Table:
        """Returns the rows with ``_seq``, read here."""
        return self.read()

    @property
    def about(self) -> float:
        """Returns the number of rows, estimated from their bytes if the source does not know it."""
        if self.size is not None:
            return self.size
        return math.inf if self.bytes is None else self.bytes / BYTES_OF_A_ROW

    @cached_property
    def bytes(self) -> int | None:
        """Returns the bytes of the rows, if the source knows them."""
        return self._sum(lambda split: split.bytes)

    @property
    def columns(self) -> Schema | None:
        """Returns the columns that its source has by now, if new ones may appear."""
        if self._messages is not None:
            self._messages.look(self.size)
        elif abilities.drifts(self.source):
            abilities.notice(self.source, self._splits)
        else:
            return None
        return self.source.schema()

    def read_here(self) -> None:
        """Reads its messages here, so that their new fields are columns. Called when it raised Drifted."""
        assert self._messages is not None
        self._messages.notice()
        self.close()
        for made in ("rows", "frame", "rejected"):
            self.__dict__.pop(made, None)

    def fitting(self, schema: Schema) -> Batch:
        """Returns the batch with these columns of its source: others are left out, missing ones are NULL."""
        names = schema.names
        if self._messages is not None:
            self._messages.look(self.size)
            names = self._messages.names
        elif abilities.drifts(self.source):
            names = self.source.schema().names
        return self if names == schema.names else Fitted(self, schema)

    def sift(self) -> bool:
        """Reads it here, with error records for records that cannot be read; returns whether there are any, if this was
        not done before. Called when it failed on data.
        """
        if not abilities.rejects(self.source) or self.sifted is not None:
            return False
        arrow = self.source.schema().arrow()
        rows: list[pa.RecordBatch] = []
        rejected = [none_rejected()]
        for split in self._splits:
            for part in abilities.receive(self.source, split):
                rows.append(part.rows.append_column(SEQ, part.places))
                rejected.append(part.rejected)
        all_rejected = pa.concat_tables(rejected)
        if not all_rejected.num_rows:
            return False
        self.sifted = (pa.Table.from_batches(rows, arrow.append(pa.field(SEQ, pa.int64()))), all_rejected)
        self.close()
        for made in ("size", "bytes", "rows", "frame", "rejected"):
            self.__dict__.pop(made, None)
        return True

    @cached_property
    def rejected(self) -> pa.Table | None:
        """Returns records that could not be read, as ``seq``, ``reason``, ``value`` and ``key``. Asked for after its
        rows were read it costs less. May raise Drifted.
        """
        if self.sifted is not None:
            return self.sifted[1].rename_columns({"place": "seq"})
        return self._messages.rejected if self._messages is not None else None

    @property
    def _read_frame(self) -> DataFrame:
        """Returns the range as Spark reads it."""
        return read_range(self.spark(), self.source, self.start, self.end)

    @cached_property
    def frame(self) -> DataFrame:
        """Returns the rows with ``_seq`` on Spark, which caches them if several statements read them."""
        if self.source.staged or self._is_made_here:
            self._staged.append(staged := self._stage())
            frame = staged.frame
        else:
            frame = self._frame_of_source()
        if self.shared and not self.cheap:
            self._kept.append(frame := frame.persist())
        return frame

    def _stage(self) -> Staged | Stored:
        """Raises Divide if its rows are more than are shipped to executors at once."""
        through_files = goes_through_files(spark := self.spark())
        if isinstance(self.source, Pins) and self.source.pins and through_files and not self._is_made_here:
            return Stored(spark, self.source, self.start, self.end)
        if self.rows.nbytes > SHIPPED and not through_files and self.halves() is not None:
            raise Divide
        return Staged(spark, self.rows)

    @property
    def is_decoded_elsewhere(self) -> bool:
        """Returns whether executors decode its messages, and this process has not."""
        return self._messages is not None and not self._messages.is_here

    def without_deleted(self) -> Batch:
        """Returns the batch without messages that delete rows, for Spark."""
        return Without(self)

    def deleted(self) -> pa.Table | None:
        """Returns the messages that delete rows, if there are any. After Spark has read the others no job is needed."""
        if self._messages is not None and not self._messages.deletes:
            return None
        found = self.on_spark(lambda: collect(self.frame.where(quote(DELETED))))
        return found.sort_by(SEQ) if found.num_rows else None

    @property
    def is_here(self) -> bool:
        """Returns whether its rows are in this process in any case: they are evaluated here unless told otherwise."""
        return False

    @property
    def cheap(self) -> bool:
        """Returns whether Spark reads the rows from staged files: reading them twice costs less than to cache them."""
        return (self._is_made_here or self.source.staged) and goes_through_files(self.spark())

    @property
    def _is_made_here(self) -> bool:
        """Returns whether the rows are made in this process, from records that can be read."""
        return self.sifted is not None

    def _frame_of_source(self) -> DataFrame:
        return self._read_frame if self._messages is None else self._messages.frame()

    def narrowed(self, columns: Sequence[str]) -> DataFrame:
        """Returns the rows with ``_seq`` and at least these columns on Spark: of messages no others, unless cached."""
        return self.frame if self._messages is None or self.shared else self._messages.frame(columns)

    def close(self) -> None:
        """Releases the rows that Spark caches or that are staged for it, also those of batches fitted from it."""
        while self._kept:
            with suppress(Exception):  # the JVM may be gone
                self._kept.pop().unpersist()
        while self._staged:
            self._staged.pop().close()
        if self._messages is not None:
            self._messages.close()
        if self._hold is not None:
            self._hold.close()


class Fitted(Batch):
    """Wraps a batch and returns the columns that a statement knows."""

    def __init__(self, batch: Batch, schema: Schema):
        self.__dict__.update(batch.__dict__)
        for made in ("rows", "frame"):
            self.__dict__.pop(made, None)
        self._batch, self._schema = batch, schema

    def read(self) -> pa.Table:
        rows = self._batch.read()
        arrays = [
            rows[c.name] if c.name in rows.column_names else pa.nulls(rows.num_rows, c.type)
            for c in self._schema
        ]
        return pa.table([*arrays, rows[SEQ]], names=[*self._schema.names, SEQ])

    def _frame_of_source(self) -> DataFrame:
        if self._messages is not None:
            return fitted(self._messages.frame(), self._schema)
        return self._read_frame.select(*(quote(name) for name in (*self._schema.names, SEQ)))

    def narrowed(self, columns: Sequence[str]) -> DataFrame:
        frame = super().narrowed(columns)
        return frame if self._messages is None or self.shared else fitted(frame, self._schema, columns)

    def sift(self) -> bool:
        if not self._batch.sift():
            return False
        for made in ("size", "bytes", "rows", "frame", "rejected"):
            self.__dict__.pop(made, None)
        self.sifted = self._batch.sifted
        return True


class Without(Batch):
    """Wraps a batch of messages and leaves out those that delete rows."""

    def __init__(self, batch: Batch):
        self.__dict__.update(batch.__dict__)
        self.__dict__.pop("frame", None)
        self._batch = batch

    @cached_property
    def frame(self) -> DataFrame:
        return _kept(self._batch.frame)

    def narrowed(self, columns: Sequence[str]) -> DataFrame:
        return _kept(self._batch.narrowed((*columns, DELETED)))


def _kept(frame: DataFrame) -> DataFrame:
    return frame.where(f"NOT coalesce({quote(DELETED)}, false)")


class Part(Batch):
    """Represents rows in this process: some of a batch, or of earlier ones."""

    def __init__(self, rows: pa.Table, spark: Callable[[], SparkSession], high: int | None = None):
        self._rows = rows
        self._spark = spark
        self.high = high
        self._messages = None
        self._kept = []
        self._staged = []

    lost = 0
    is_here = True

    def spark(self) -> SparkSession:
        return self._spark()

    def on_spark(self, work: Callable[[], T], prepare: Callable[[], None] | None = None) -> T:
        return work()

    @property
    def cheap(self) -> bool:
        return goes_through_files(self.spark())

    def halves(self) -> None:
        """Returns nothing: it has no place in a stream."""

    columns = None

    def fitting(self, schema: Schema) -> Part:
        """Returns it unchanged: a statement has produced its rows."""
        return self

    @cached_property
    def rejected(self) -> None:
        """Returns nothing: its rows were already read."""

    def sift(self) -> bool:
        return False

    def read(self) -> pa.Table:
        return self._rows

    @cached_property
    def size(self) -> int:
        return int(self._rows.num_rows)

    @cached_property
    def rows(self) -> pa.Table:
        return self._rows

    @cached_property
    def bytes(self) -> int | None:
        return int(self._rows.nbytes)

    @cached_property
    def frame(self) -> DataFrame:
        self._staged.append(Staged(self.spark(), self._rows))
        return self._staged[-1].frame
