"""Merges the rows of a batch into files of Parquet on executors: those that have one of its keys are written anew.

The driver learns the range of the keys, and the names of the files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.connectors.divided_table import Merging, Written
from millpond.connectors.source import SEQ
from millpond.engine.collect import collect
from millpond.engine.row_store import PARQUET
from millpond.engine.row_transfer import columns_of
from millpond.engine.task_writes import write_in_tasks
from millpond.types import Schema, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TASK_ROWS = 50_000
"""Rows that are worth a task of their own."""
_FILE = "_millpond_file"


class Fitting:
    """Returns the results of a batch as a table takes them. Picklable."""

    def __init__(self, fitting: Callable[[pa.Table], pa.Table], columns: Schema):
        self._fitting = fitting
        self._columns = columns.arrow()

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            seq, rows = rows[SEQ], rows.drop_columns([SEQ])
            fitted = self._fitting(rows.rename_columns(self._columns.names).cast(self._columns))
            yield from fitted.append_column(SEQ, seq).combine_chunks().to_batches()


def merge_in_tasks(results: DataFrame, merging: Merging, output: Schema, rows: float) -> Written:
    """Writes the files of a merge with the results of a batch of about so many rows: of each key the last one."""
    columns, spark = merging.columns, results.sparkSession
    keys = [quote(name) for name in columns.key]
    ddl = f"{columns_of(columns.arrow())}, {quote(SEQ)} BIGINT"
    fitted = results.mapInArrow(Fitting(merging.fitting, output).run, ddl)
    tasks = max(1, min(math.ceil(rows / _TASK_ROWS), 8 * spark.sparkContext.defaultParallelism))
    last = _last(fitted.repartition(tasks, *keys), keys).select(*map(quote, columns.names)).persist()
    try:
        ends = collect(last.selectExpr("count(1) AS n", f"min({keys[0]}) AS low", f"max({keys[0]}) AS high"))
        (found,) = ends.to_pylist()
        if not found["n"]:
            return Written(merging.writer.schema.arrow().empty_table(), 0)
        files = merging.files(found["low"], found["high"])
        touched: list[str] = []
        everything, count = last, float(found["n"])
        reader = spark.read.options(**PARQUET).schema(columns_of(columns.arrow()))
        if files:
            there = reader.parquet(*files.values())
            named = there.selectExpr(*keys, f"_metadata.file_name AS {_FILE}")
            same = named.join(last.select(*keys), list(columns.key), "left_semi")
            touched = collect(same.select(_FILE).distinct())[_FILE].to_pylist()
        if touched:
            old = reader.parquet(*(files[name] for name in touched))
            everything = old.join(last.select(*keys), list(columns.key), "left_anti").unionByName(last)
            count = max(count, rows)
        written = write_in_tasks(everything, merging.writer, columns, count, steady=False)
        return Written(written, found["n"], merging.removed(touched), merging.version)
    finally:
        last.unpersist()


def _last(rows: DataFrame, keys: list[str]) -> DataFrame:
    """Returns of each key the row that is last in the stream."""
    from pyspark.sql import Window
    from pyspark.sql.functions import col, row_number

    order = Window.partitionBy(*(col(k) for k in keys)).orderBy(col(SEQ).desc_nulls_last())
    numbered = rows.withColumn("_millpond_at", row_number().over(order))
    return numbered.where("_millpond_at = 1")
