"""Reads rows that the app has stored as Parquet files by Spark's own reader.

The sequence number of a row is that of the first row of its file, which is a part of the file's path, and the row's
place in the file. Rows that are not in files yet are copied for Spark.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors.pinned_files import ParquetFiles, Pins
from millpond.connectors.source import SEQ
from millpond.engine.row_store import PARQUET, store_of
from millpond.engine.row_transfer import Staged, columns_of
from millpond.engine.session import is_local
from millpond.types import Schema, quote

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_SETTINGS = PARQUET | {"parquet.page.verify-checksum.enabled": "true"}
_PART = 0.25
"""The part of the rows of a file for which Spark reads all of it."""
_COPIES = 16
"""Maximum files of a batch that are copied to a store as they are: each is a request, or several."""
_numbers = itertools.count(1)


class Stored:
    """Holds the rows of a range for Spark until it is closed."""

    def __init__(self, spark: SparkSession, source: Pins, start: Offset | None, end: Offset):
        self._staged: Staged | None = None
        self._remove: Callable[[], object] = lambda: None
        self._store = None if is_local(spark) else store_of(spark)
        part, most = (_PART, None) if self._store is None else (1.0, _COPIES)
        self._files, splits = source.pin(start, end, part=part, most=most)
        try:
            self.frame = self._read(spark, source, [b for s in splits for b in source.read(s)])
        except BaseException:
            self.close()
            raise

    def _read(self, spark: SparkSession, source: Pins, others: list[pa.RecordBatch]) -> DataFrame:
        schema = source.schema()
        folder = self._files.folder
        frame = self._scan(spark, schema, folder) if folder is not None else None
        if others or frame is None:
            arrow = schema.arrow().append(pa.field(SEQ, pa.int64()))
            self._staged = Staged(spark, pa.Table.from_batches(others, arrow))
            frame = self._staged.frame if frame is None else frame.unionAll(self._staged.frame)
        return frame

    def _scan(self, spark: SparkSession, schema: Schema, folder: Path) -> DataFrame:
        files: ParquetFiles = self._files
        uri = f"file://{folder}"  # Hadoop takes a path as it is
        if self._store is not None:
            name = f"stored-{next(_numbers)}"
            self._remove = weakref.finalize(self, self._store.remove, name)
            uri = self._store.copy(name, folder)
        columns = f"{columns_of(schema.arrow())}, {quote(files.column)} BIGINT"
        found = spark.read.options(**_SETTINGS).schema(columns).parquet(uri)
        seq = found[quote(files.column)] + found.metadataColumn("_metadata").getField("row_index")
        found = found.select(*(found[quote(n)] for n in schema.names), seq.alias(SEQ))
        if files.bounds is None:
            return found
        start, end = files.bounds
        return found.where((found[SEQ] >= start) & (found[SEQ] < end))

    def close(self) -> None:
        if self._staged is not None:
            self._staged.close()
        self._remove()
        self._files.close()
