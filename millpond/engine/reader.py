"""Wraps Millpond's sources as a Spark streaming source.

Spark requests offsets and partitions in one process and reads in others: a source is pickled into the options.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from millpond.changes import Offset
from millpond.connectors import abilities
from millpond.connectors.source import SEQ, NativeSource, Source, Split
from millpond.engine.internals import java_session, java_sessions
from millpond.engine.session import new_session
from millpond.types import quote, type_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "millpond"


class Partition(InputPartition):
    def __init__(self, split: Split):
        super().__init__(None)
        self.split = split


class Reader(DataSourceStreamReader):
    """Reads a stream for Spark. Offsets are wrapped as ``{"at": json}``: Spark requires a dict of plain values, ours
    may be nested.
    """

    def __init__(self, source: Source, start: Offset | None, max_rows: int):
        self.source = source
        self.start = start
        self.max_rows = max_rows

    def initialOffset(self) -> dict[str, Any]:
        return wrap(self.start)

    def getDefaultReadLimit(self) -> Any:
        return ReadMaxRows(self.max_rows)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        begin = unwrap(start)
        end = abilities.poll(self.source, begin)
        if not isinstance(limit, ReadAllAvailable):
            end = abilities.clip(self.source, begin, end, self.max_rows)
        return wrap(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        until = unwrap(end)
        if until is None or start == end:
            return []
        return [Partition(s) for s in self.source.splits(unwrap(start), until)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.source.read(cast(Partition, partition).split)


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
        columns = ", ".join(f"{quote(c.name)} {type_name(c.type)}" for c in self._source().schema())
        return f"{columns}, {quote(SEQ)} BIGINT"

    def reader(self, schema: StructType) -> RangeReader:
        start, end = json.loads(self.options["start"]), json.loads(self.options["end"])
        return RangeReader(self._source(), start, end)

    def streamReader(self, schema: StructType) -> Reader:
        start = json.loads(self.options["start"])
        return Reader(self._source(), start, int(self.options["max_rows"]))


def wrap(offset: Offset | None) -> dict[str, Any]:
    return {"at": json.dumps(offset, sort_keys=True)}


def unwrap(offset: dict[str, Any]) -> Offset | None:
    return cast("Offset | None", json.loads(offset["at"]))


def reading_session(spark: SparkSession) -> SparkSession:
    """Returns a separate session that can read our sources. Spark looks for registered names in the session that a
    thread last used, whichever that is: so it is this one, temporarily.
    """
    session = new_session(spark)
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


def read_stream(spark: SparkSession, source: Source, start: Offset | None, max_rows: int) -> DataFrame:
    """Returns the rows of a source after ``start``, as a streaming DataFrame: with ``_seq``, or as Spark's format
    returns them. ``spark`` is a session to read with.
    """
    if isinstance(source, NativeSource):
        return (
            spark.readStream.format(source.format).options(**source.stream_settings(start, max_rows)).load()
        )
    return (
        spark.readStream.format(FORMAT)
        .option("source", _dump(source))
        .option("start", json.dumps(start))
        .option("max_rows", str(max_rows))
        .load()
    )


def read_range(spark: SparkSession, source: Source, start: Offset | None, end: Offset) -> DataFrame:
    """Returns the rows of a source between two offsets, like ``read_stream``."""
    if isinstance(source, NativeSource):
        return spark.read.format(source.format).options(**source.range_settings(start, end)).load()
    return (
        spark.read.format(FORMAT)
        .option("source", _dump(source))
        .option("start", json.dumps(start))
        .option("end", json.dumps(end))
        .load()
    )


def noted(source: Source, line: str) -> Offset:
    """Returns the offset of a line of Spark's checkpoint."""
    if isinstance(source, NativeSource):
        return source.offset_of(line)
    return unwrap(json.loads(line)) or {}


def _dump(source: Source) -> str:
    return base64.b64encode(pickle.dumps(source)).decode()
