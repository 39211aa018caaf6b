"""Passes rows of this process to Spark.

Where the executors are this process, or see the store of the app, many rows go through a Parquet file, which Spark's
own reader scans in parallel. Elsewhere, and for types that Parquet has no form for, they are shipped with the plan: as
Arrow with the tasks, which decode it, or, if they are few, as rows in the plan itself.
"""

from __future__ import annotations

import atexit
import itertools
import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millpond.engine.program_session import active_kept, is_given
from millpond.engine.row_store import PARQUET, FolderStore, RowStore, store_of
from millpond.engine.session import is_local
from millpond.formats.read_records import no_rows
from millpond.records.parquet import have_form
from millpond.types import quote, type_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BROADCAST = 64 << 20
"""Maximum bytes of a table that is copied to every task."""
_FEW = 5_000
"""Rows that are part of the plan on every master."""
SHIPPED = 64 << 20
"""Maximum bytes of rows that are shipped with the tasks of a batch."""
_TASK = 4 << 20
"""Maximum bytes of rows that are shipped with one task."""
_TASK_ROWS = 20_000
"""Rows that are worth a task of their own while there are cores without one."""
_numbers = itertools.count(1)


class Divide(Exception):
    """Requests that a batch is applied in two halves."""


class Staged:
    """Holds rows for Spark until it is closed, or forgotten."""

    def __init__(self, spark: SparkSession, rows: pa.Table):
        self._remove: Callable[[], object] = lambda: None
        self.bytes = int(rows.nbytes)
        store = None if rows.num_rows <= _FEW or not have_form(rows.schema) else _store(spark)
        if store is None:
            self.frame = to_frame(spark, rows)
            return
        name = str(next(_numbers))
        uri = store.put(name, rows)
        self._remove = weakref.finalize(self, store.remove, name)
        self.frame = spark.read.options(**PARQUET).schema(columns_of(rows.schema)).parquet(uri)

    @property
    def table(self) -> DataFrame:
        """Returns the rows as a table to join with. Spark does not know the size of what is shipped with tasks."""
        if is_local(self.frame.sparkSession) or self.bytes > BROADCAST:
            return self.frame
        return self.frame.hint("broadcast")

    def close(self) -> None:
        self._remove()


def _store(spark: SparkSession) -> RowStore | None:
    return FolderStore(staging_folder(spark)) if is_local(spark) else store_of(spark)


def goes_through_files(spark: SparkSession) -> bool:
    """Returns whether executors read many rows from files: then reading them twice costs little."""
    return is_local(spark) or store_of(spark) is not None


def staging_folder(spark: SparkSession) -> Path:
    """Returns the folder of what is staged, which only this user can read: among Spark's own temporary files, if we
    have started it.
    """
    parent = spark.sparkContext.getConf().get("spark.local.dir")
    if parent is None or is_given(spark.sparkContext):
        return _own_folder()
    return Path(parent, f"staged-{os.getpid()}")


@cache
def _own_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="millpond-staged-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def to_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Converts Arrow rows to a Spark DataFrame with the same types. Each chunk becomes a partition, and only the
    single one of no rows may be empty: Spark stops there, and at none.
    """
    parts = rows.combine_chunks().to_batches(max_chunksize=_rows_of_a_task(spark, rows))
    table = pa.Table.from_batches([_compact(p) for p in parts] or [no_rows(rows.schema)])
    with active_kept(spark):
        return spark.createDataFrame(table, schema=columns_of(rows.schema))


def _rows_of_a_task(spark: SparkSession, rows: pa.Table) -> int:
    tasks = max(1, math.ceil(int(rows.nbytes) / _TASK))
    if rows.num_rows >= 2 * _TASK_ROWS:
        tasks = max(tasks, min(spark.sparkContext.defaultParallelism, int(rows.num_rows) // _TASK_ROWS))
    return max(1, math.ceil(int(rows.num_rows) / tasks))


def _compact(part: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows copied if they have nested columns: PySpark cannot convert slices of lists."""
    if not any(pa.types.is_nested(c.type) and c.offset for c in part.columns):
        return part
    return part.take(pa.array(np.arange(part.num_rows)))


def columns_of(schema: pa.Schema) -> str:
    """Returns the columns as Spark's readers take them."""
    return ", ".join(f"{quote(f.name)} {type_name(f.type)}" for f in schema)
