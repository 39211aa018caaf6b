"""Reads Parquet files by Spark's own reader, in the Java process of an executor: no row passes Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.connectors.source import SEQ
from millpond.connectors.spark_ranges import FileRange
from millpond.engine.failures import is_unknown
from millpond.engine.internals import ParquetScan
from millpond.engine.row_store import READING, folder_of, store_of
from millpond.engine.session import is_local
from millpond.formats.parquet_footers import Differs
from millpond.types import Schema, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OPTIONS = READING | {"returning_batch": "false"}
_SETTINGS = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.parquet.binaryAsString": "false",
}
"""What spark-defaults.conf may have changed."""
_OF_THE_READER = ("FAILED_READ_FILE", "CANNOT_READ_FILE", "org.apache.parquet")


def is_seen(spark: SparkSession, path: str) -> bool:
    """Returns whether executors see a file of this machine: they are this process, or it lies in the folder that was
    named as the store, which was checked.
    """
    if is_local(spark):
        return True
    store = store_of(spark)
    folder = None if store is None else folder_of(store.uri)
    # The store of a run is in a folder of the app, which is in the folder that was named.
    return folder is not None and folder.parents[1] in Path(path).parents


def native_frame(spark: SparkSession, columns: Schema, tasks: Sequence[Sequence[FileRange]]) -> DataFrame:
    """Returns these columns of the rows of what each task reads, and ``_seq``. Raises Differs if Spark does not find
    the row groups where they are expected, or may not see the files.
    """
    if {ParquetScan.ROW, ParquetScan.FILE}.intersection(name.lower() for name in columns.names):
        raise Differs("a column has a name of Spark's own")
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    scan = ParquetScan(spark, _OPTIONS)
    for part in (part for task in tasks for part in task):
        if not is_seen(spark, part.path):
            raise Differs("executors may not see it")
        if ":" in part.path:
            raise Differs("Hadoop's file systems cannot open a path with a colon")
        # What begins and ends with the file has all of its row groups, wherever they are.
        if part.bytes.start > 0 or part.bytes.stop <= part.size:
            if scan.rows_in(part.path, part.bytes.start, part.bytes.stop) != (part.groups, part.rows):
                raise Differs("its row groups have other sizes than it says")
    given = [[(p.path, p.size, p.bytes.start, p.bytes.stop, p.first_seq) for p in task] for task in tasks]
    frame = scan.frame(columns.ddl(), given)
    seq = f"{quote(ParquetScan.FILE)} + {quote(ParquetScan.ROW)} AS {quote(SEQ)}"
    return frame.selectExpr(*(quote(name) for name in columns.names), seq)


def is_of_the_reader(error: Exception) -> bool:
    """Returns whether Spark's own reader could not read a file: ours says why, or can. Values are taken out of a page
    when they are used, so an error of which nothing is known may be of the reader too.
    """
    cause: BaseException = error
    while not any(name in str(cause) for name in _OF_THE_READER):
        if cause.__cause__ is None:
            return is_unknown(cause)
        cause = cause.__cause__
    return True
