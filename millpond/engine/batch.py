"""A batch: the rows of a stream between two offsets, here or on Spark."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Offset
from millpond.connectors import abilities
from millpond.connectors.source import BYTES_OF_A_ROW, SEQ, NativeSource, Source, Split
from millpond.engine.collect import collect
from millpond.engine.onspark import to_frame
from millpond.engine.reader import read_range
from millpond.errors import Error
from millpond.formats.received import Received, none_spoiled
from millpond.types import Schema, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Divide(Exception):
    """A batch is to be applied in two halves."""


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
        self.limit = limit
        self.spark = spark
        self._given = frame
        self._shared = shared
        self._sifted: tuple[pa.Table, pa.Table] | None = None
        """Its rows and what was put aside, where it was read here because of records that cannot be read."""
        self._kept: list[DataFrame] = []

    @cached_property
    def _splits(self) -> list[Split]:
        return self.source.splits(self.start, self.end)

    @cached_property
    def size(self) -> int | None:
        """How many rows there are, where the source can tell."""
        if self._sifted is not None:
            return int(self._sifted[0].num_rows)
        try:
            sizes = [s.rows for s in self._splits]
        except Error:
            return None  # whoever reads the rows is told
        return None if None in sizes else sum(s for s in sizes if s is not None)

    @cached_property
    def lost(self) -> int:
        """How many rows the source did not keep until now."""
        return abilities.lost(self.source, self.start, self.end)

    def check(self) -> None:
        """Raises if it is not of what the source has now."""
        _ = self.lost

    high: int | None = None
    """How far the time of its rows has come, where whoever made the batch knows."""

    def part(self, rows: pa.Table) -> Part:
        """Some of its rows."""
        return Part(rows, self.spark, self.high)

    def halves(self) -> tuple[Batch, Batch] | None:
        """The batch in two, where the source can tell a place in between."""
        size = self.size
        middle = (
            abilities.clip(self.source, self.start, self.end, size // 2)
            if size is not None and size > 1
            else self.end
        )
        if middle == self.end or middle == self.start:
            return None
        ends = ((self.start, middle), (middle, self.end))
        first, second = (Batch(self.source, a, b, limit=self.limit, spark=self.spark) for a, b in ends)
        return first, second

    def read(self) -> pa.Table:
        """All rows with ``_seq``, read here, however many."""
        if isinstance(self.source, NativeSource):
            return self._decoded
        if self._sifted is not None:
            return self._sifted[0]
        batches = [batch for split in self._splits for batch in self.source.read(split)]
        if batches:
            return pa.Table.from_batches(batches)
        return self.source.schema().arrow().append(pa.field(SEQ, pa.int64())).empty_table()

    @cached_property
    def rows(self) -> pa.Table | None:
        """The rows with ``_seq``, read here; None when they are more than the limit, or how many is not known."""
        return self.read() if self._about <= self.limit else None

    @property
    def _about(self) -> float:
        """How many rows there are, by their bytes where the source cannot tell."""
        if self.size is not None:
            return self.size
        try:
            sizes = [s.bytes for s in self._splits]
        except Error:
            return math.inf  # whoever reads the rows is told
        return math.inf if None in sizes else sum(s for s in sizes if s is not None) / BYTES_OF_A_ROW

    @cached_property
    def _received(self) -> Received:
        """What Spark's own format gives, decoded here."""
        assert isinstance(self.source, NativeSource)
        return self.source.decode(collect(self._read_frame))

    @cached_property
    def columns(self) -> Schema | None:
        """The columns that its source has by now, where new ones may come up."""
        if isinstance(self.source, NativeSource):
            _ = self._received
        elif abilities.drifts(self.source):
            abilities.notice(self.source, self._splits)
        else:
            return None
        return self.source.schema()

    def fitting(self, schema: Schema) -> Batch:
        """The batch with these columns of its source: others are left out, NULL where it does not have one."""
        names = schema.names
        if isinstance(self.source, NativeSource):
            names = tuple(self._received.rows.schema.names)
        elif abilities.drifts(self.source):
            names = self.source.schema().names
        return self if names == schema.names else Fitted(self, schema)

    @cached_property
    def _decoded(self) -> pa.Table:
        rows, places, _ = self._received
        return pa.Table.from_batches([rows]).append_column(SEQ, pc.add(places, self._first_seq))

    @property
    def _first_seq(self) -> int:
        assert isinstance(self.source, NativeSource)
        return self.source.first_seq(self.start)

    def sift(self) -> bool:
        """Reads it here, with records that cannot be read put aside; answers whether there are such, if it was not
        done before. Called when it failed on data."""
        if not abilities.rejects(self.source) or self._sifted is not None:
            return False
        arrow = self.source.schema().arrow()
        rows: list[pa.RecordBatch] = []
        spoiled = [none_spoiled()]
        for split in self._splits:
            for part in abilities.receive(self.source, split):
                rows.append(part.rows.append_column(SEQ, part.places))
                spoiled.append(part.spoiled)
        aside = pa.concat_tables(spoiled)
        if not aside.num_rows:
            return False
        self._sifted = (pa.Table.from_batches(rows, arrow.append(pa.field(SEQ, pa.int64()))), aside)
        self.close()
        for made in ("size", "rows", "frame", "spoiled"):
            self.__dict__.pop(made, None)
        return True

    @cached_property
    def spoiled(self) -> pa.Table | None:
        """Records that could not be read, as ``seq``, ``reason`` and ``value``."""
        if self._sifted is not None:
            return self._sifted[1].rename_columns(["seq", "reason", "value"])
        if not isinstance(self.source, NativeSource) or not self._received.spoiled.num_rows:
            return None
        spoiled = self._received.spoiled
        seq = pc.add(spoiled["place"], self._first_seq)
        return spoiled.set_column(0, "seq", seq)

    @property
    def _read_frame(self) -> DataFrame:
        """What Spark handed over, unless its reader does not know all columns."""
        given = self._given
        if given is None or (
            abilities.drifts(self.source) and tuple(given.columns[:-1]) != self.source.schema().names
        ):
            return read_range(self.spark(), self.source, self.start, self.end)
        return given

    @cached_property
    def frame(self) -> DataFrame:
        """The rows with ``_seq`` on Spark, which keeps them if several statements may ask."""
        frame = self._made_frame
        if self._shared:
            self._kept.append(frame := frame.persist())
        return frame

    @property
    def _made_frame(self) -> DataFrame:
        if isinstance(self.source, NativeSource) or self._sifted is not None:
            return to_frame(self.spark(), self.read())
        return self._read_frame

    def close(self) -> None:
        """Spark need not keep the rows any longer, nor those of what was fitted from it."""
        while self._kept:
            self._kept.pop().unpersist()


class Fitted(Batch):
    """A batch with the columns that a statement knows."""

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

    @property
    def _made_frame(self) -> DataFrame:
        if isinstance(self.source, NativeSource) or self._sifted is not None:
            return to_frame(self.spark(), self.read())
        return self._read_frame.select(*(quote(name) for name in (*self._schema.names, SEQ)))

    def sift(self) -> bool:
        if not self._batch.sift():
            return False
        for made in ("size", "rows", "frame", "spoiled"):
            self.__dict__.pop(made, None)
        self._sifted = self._batch._sifted
        return True


class Part(Batch):
    """Rows that are here: some of a batch, or of earlier ones."""

    def __init__(self, rows: pa.Table, spark: Callable[[], SparkSession], high: int | None = None):
        self._rows = rows
        self.spark = spark
        self.high = high

    lost = 0

    def halves(self) -> None:
        """It has no place in a stream."""

    columns = None

    def fitting(self, schema: Schema) -> Part:
        """Its rows are what a statement has made them."""
        return self

    @cached_property
    def spoiled(self) -> None:
        """Its rows are here."""

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
    def frame(self) -> DataFrame:
        return to_frame(self.spark(), self._rows)
