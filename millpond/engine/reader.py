"""Wraps Millpond's sources as a data source of Spark.

Spark requests partitions in one process and reads in others: a source is pickled into the options.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from millpond.changes import Offset
from millpond.connectors.source import SEQ, NativeSource, Source, Split
from millpond.engine.internals import java_session, java_sessions
from millpond.engine.session import new_session
from millpond.types import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "millpond"


class Partition(InputPartition):
    def __init__(self, split: Split):
        super().__init__(None)
        self.split = split


class RangeReader(DataSourceReader):
    """Reads the rows between two offsets, once."""

    def __init__(self, source: Source, start: Offset | None, end: Offset):
        self.source = source
        self.start = start
        self.end = end

    def partitions(self) -> Sequence[InputPartition]:
        return [Partition(s) for s in self.source.splits(self.start, self.end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Reads a partition. If there is none, Spark requests one that is not ours."""
        return self.source.read(partition.split) if isinstance(partition, Partition) else iter(())


class MillpondSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def _source(self) -> Source:
        return cast(Source, pickle.loads(base64.b64decode(self.options["source"])))

    def schema(self) -> str:
        return f"{self._source().schema().ddl()}, {quote(SEQ)} BIGINT"

    def reader(self, schema: StructType) -> RangeReader:
        start, end = json.loads(self.options["start"]), json.loads(self.options["end"])
        return RangeReader(self._source(), start, end)


def reading_session(spark: SparkSession, source: Source | None) -> SparkSession:
    """Returns a separate session that can read a source, if there is one. Spark looks for registered names in the
    session that a thread last used, whichever that is: so it is this one, temporarily.
    """
    session = new_session(spark)
    if source is None or isinstance(source, NativeSource) or source.staged:
        return session
    sessions = java_sessions(session)
    before = sessions.getActiveSession()
    sessions.setActiveSession(java_session(session))
    try:
        session.dataSource.register(MillpondSource)
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
    return session


def read_messages(
    spark: SparkSession, source: NativeSource, start: Offset | None, end: Offset, most: int
) -> DataFrame:
    """Returns what lies between two offsets as Spark's format returns it, at most so many messages in a task."""
    return spark.read.format(source.format).options(**source.range_settings(start, end, most)).load()


def read_range(spark: SparkSession, source: Source, start: Offset | None, end: Offset) -> DataFrame:
    """Returns the rows of a source between two offsets, with ``_seq``. ``spark`` is a session to read with."""
    return (
        spark.read.format(FORMAT)
        .option("source", _dump(source))
        .option("start", json.dumps(start))
        .option("end", json.dumps(end))
        .load()
    )


def _dump(source: Source) -> str:
    return base64.b64encode(pickle.dumps(source)).decode()
