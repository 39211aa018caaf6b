"""Passes rows of this process to Spark.

Where the executors are this process, many rows go through a Parquet file, which Spark's own reader scans in parallel:
in a plan each row would be copied several times. Elsewhere, and for types that Parquet has no form for, they are part
of the plan.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millpond.engine.session import is_local
from millpond.formats.received import no_rows
from millpond.types import quote, type_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FEW = 5_000
"""Rows that are part of the plan on every master."""
_GROUP_ROWS = 131_072
"""Rows of a row group: groups are read in parallel."""
_numbers = itertools.count(1)


class Staged:
    """Holds rows for Spark until it is closed, or forgotten."""

    def __init__(self, spark: SparkSession, rows: pa.Table):
        self._remove: Callable[[], object] = lambda: None
        if rows.num_rows <= _FEW or not is_local(spark) or not _have_form(list(rows.schema)):
            self.frame = to_frame(spark, rows)
            return
        folder = staging_folder(spark) / str(next(_numbers))
        folder.mkdir(parents=True)
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        pq.write_table(
            rows,
            folder / "rows.parquet",
            row_group_size=_GROUP_ROWS,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            store_schema=False,
        )
        self.frame = spark.read.schema(_columns(rows.schema)).parquet(folder.as_uri())

    def close(self) -> None:
        self._remove()


def staging_folder(spark: SparkSession) -> Path:
    """Returns the folder of what is staged, among Spark's own temporary files."""
    parent = spark.sparkContext.getConf().get("spark.local.dir") or tempfile.gettempdir()
    return Path(parent, f"staged-{os.getpid()}")


def to_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Converts Arrow rows to a Spark DataFrame with the same types. In one chunk: Spark stops at an empty one, and at
    none; and copied, as PySpark cannot convert slices of lists.
    """
    rows = rows.combine_chunks() if rows.num_rows else pa.Table.from_batches([no_rows(rows.schema)])
    if any(pa.types.is_nested(c.type) and c.chunk(0).offset for c in rows.columns):
        rows = rows.take(pa.array(np.arange(rows.num_rows)))
    return spark.createDataFrame(rows, schema=_columns(rows.schema))


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{quote(f.name)} {type_name(f.type)}" for f in schema)


def _have_form(fields: list[pa.Field]) -> bool:
    """Returns whether Spark reads all fields from a file: no two names may differ in case alone."""
    return len({f.name.lower() for f in fields}) == len(fields) and all(_has_form(f.type) for f in fields)


def _has_form(dtype: pa.DataType) -> bool:
    """Returns whether Parquet keeps the type, and Spark reads it as the same."""
    t = pa.types
    if t.is_struct(dtype):
        return dtype.num_fields > 0 and _have_form(list(dtype))
    if t.is_map(dtype):
        return _has_form(dtype.key_type) and _has_form(dtype.item_type)
    if t.is_list(dtype):
        return _has_form(dtype.value_type)
    if t.is_timestamp(dtype):
        return bool(dtype.unit == "us")
    plain = (t.is_boolean, t.is_signed_integer, t.is_float32, t.is_float64, t.is_decimal128)
    return any(kind(dtype) for kind in (*plain, t.is_string, t.is_binary, t.is_date32))
