"""Runs a query from topic to topic in Spark's real-time mode: row by row, not batch by batch.

Spark reads, decodes, joins, encodes and writes; no row passes through this process. Joined tables are passed to Spark
completely. Every few seconds Spark ends a batch of its own: then the offset is stored in the journal, and, if one of
the tables has changed, the query restarts with the current tables.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from millpond.connectors import abilities
from millpond.connectors.sink import NativeSink
from millpond.connectors.source import NativeSource
from millpond.engine.failures import explain
from millpond.engine.local_stage import Tables
from millpond.engine.pipeline import Pipeline
from millpond.engine.sizes import BatchSize
from millpond.engine.spark_stage import needed_of
from millpond.engine.staged import to_frame
from millpond.engine.stream import StreamQuery, end_query
from millpond.errors import NotSupported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_MESSAGES, _ROWS = "__messages", "__rows"
_LOOK = 0.1
"""Seconds between checks of the progress of the query."""
_ALL: WeakSet[RealTimeQuery] = WeakSet()
"""Real-time queries of this process: they share its cores."""


class RealTimeQuery(StreamQuery):
    """Represents one statement that runs completely as one Spark query."""

    def __init__(
        self,
        source: NativeSource,
        sink: NativeSink,
        tables: Callable[[], Tables],
        seconds: float,
        directory: Path,
        spark: Callable[[], SparkSession],
    ):
        # A separate copy: a source records which topic of a name it reads.
        self._native = copy.copy(source)
        super().__init__(self._native, BatchSize(), directory, spark)
        self._sink = sink
        self._tables = tables
        self._seconds = seconds
        self._versions: dict[str, int] = {}
        _ALL.add(self)

    @property
    def _only(self) -> Pipeline:
        return self._members[0]

    def _launch(self) -> None:
        try:
            super()._launch()
        except Exception as error:
            raise explain(error) from error
        threading.Thread(
            target=self._follow, args=(self._query,), name="millpond-real-time", daemon=True
        ).start()

    def _writer(self, session: SparkSession) -> DataStreamWriter:
        self._check_cores(session)
        milliseconds = round(self._seconds * 1000)
        session.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", f"{milliseconds}ms")
        writer = self._frame(session).writeStream.format(self._sink.format).options(**self._sink.settings())
        return writer.outputMode("update").trigger(realTime=f"{milliseconds} milliseconds")  # type: ignore[call-overload,no-any-return]

    def tasks(self) -> int:
        """Returns how many cores it uses while it runs."""
        return 0 if self._query is None else self._native.tasks()

    def _check_cores(self, spark: SparkSession) -> None:
        """Checks the number of cores: each partition has an endless task, and without a core for it nothing else would
        ever run.
        """
        wanted = self._native.tasks()
        taken = sum(q.tasks() for q in list(_ALL) if q is not self)
        cores = spark.sparkContext.defaultParallelism
        if wanted + taken >= cores:
            others = f", beside {taken} of other queries" if taken else ""
            raise NotSupported(
                f"'mode' = 'realtime' takes a core for each partition of the topic, {wanted}{others}, and leaves none"
                f" of {cores} for anything else",
                hint="run with more cores (--master), or without 'mode'",
                place=self._only.plan.place,
            )

    def _frame(self, session: SparkSession) -> DataFrame:
        """Returns the output messages of the input messages."""
        plan, snapshots = self._only.plan.batch, self._tables()
        session.conf.set("spark.sql.autoBroadcastJoinThreshold", "8g")
        settings = self._native.stream_settings(self._at, 1)
        settings.pop("maxOffsetsPerTrigger", None)
        messages = session.readStream.format(self._native.format).options(**settings).load()
        messages.createOrReplaceTempView(_MESSAGES)
        rows = session.sql(self._native.decoding_sql(_MESSAGES))
        needed_of(rows, plan).createOrReplaceTempView(plan.stream.view)
        for table in plan.tables:
            met = to_frame(session, snapshots.snapshot(table.table).scan())
            met.hint("broadcast").createOrReplaceTempView(table.view)
        self._versions = {t.table: snapshots.version(t.table) for t in plan.tables}
        session.sql(plan.sql).createOrReplaceTempView(_ROWS)
        return session.sql(self._sink.encoding_sql(_ROWS))

    def _follow(self, query: StreamingQuery) -> None:
        """Records the progress of the query, whenever Spark has ended a batch. An error ends the query."""
        seen = -1
        try:
            while self._query is query and query.isActive:
                progress = query.lastProgress
                if progress is not None and progress["batchId"] != seen:
                    seen = progress["batchId"]
                    self._note(progress)
                    if self._changed():
                        self._restart(query)
                time.sleep(_LOOK)
        except Exception as error:
            if self._query is query:
                self._failure = explain(error)
                end_query(query)

    def _note(self, progress: Any) -> None:
        noted = progress["sources"][0]["endOffset"]
        if noted is None:
            return
        end = self._native.offset_of(noted if isinstance(noted, str) else json.dumps(noted))
        lost = abilities.lost(self._native, self._at, end)
        written = int(progress["sink"].get("numOutputRows", -1))
        rows = written if written >= 0 else int(progress["numInputRows"])
        self._only.passed(end, rows, progress["batchDuration"] / 1000, lost)
        self._at = self._only.offset

    def _changed(self) -> bool:
        snapshots = self._tables()
        return any(snapshots.version(table) != version for table, version in self._versions.items())

    def _restart(self, query: StreamingQuery) -> None:
        with self._lock:
            if self._query is not query:
                return
            self._forget_query()
        end_query(query)
        self.settle()
