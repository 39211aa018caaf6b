"""Reads an embedded stream with a Python data source of Spark, as one would by hand: a peer of the benchmarks."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from millpond.connectors.source import SEQ, Split
from millpond.connectors.stream.source import StreamSource
from millpond.types import quote


class _Partition(InputPartition):
    def __init__(self, split: Split):
        super().__init__(None)
        self.split = split


class _Reader(DataSourceStreamReader):
    def __init__(self, source: StreamSource, rows: int):
        self.source = source
        self.rows = rows

    def initialOffset(self) -> dict[str, Any]:
        return {"seq": 0}

    def getDefaultReadLimit(self) -> Any:
        return ReadMaxRows(self.rows)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        end = self.source.latest(start)
        return dict(end if isinstance(limit, ReadAllAvailable) else self.source.clip(start, end, self.rows))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [_Partition(s) for s in self.source.splits(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.source.read(cast(_Partition, partition).split)


class _Log(DataSource):
    @classmethod
    def name(cls) -> str:
        return "log"

    def _source(self) -> StreamSource:
        return cast(StreamSource, pickle.loads(base64.b64decode(self.options["source"])))

    def schema(self) -> str:
        return f"{self._source().schema().ddl()}, {quote(SEQ)} BIGINT"

    def streamReader(self, schema: StructType) -> _Reader:
        return _Reader(self._source(), json.loads(self.options["rows"]))


def read_stream(spark: SparkSession, source: StreamSource, rows: int) -> DataFrame:
    """Returns the rows of an embedded stream, as a streaming DataFrame, at most ``rows`` at a time."""
    spark.dataSource.register(_Log)
    dumped = base64.b64encode(pickle.dumps(source)).decode()
    return spark.readStream.format("log").option("source", dumped).option("rows", str(rows)).load()
