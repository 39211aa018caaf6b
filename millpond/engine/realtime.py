"""Runs a query from topic to topic in Spark's real-time mode: row by row, not batch by batch.

Spark reads, decodes, joins, encodes and writes; no row passes through this process. Joined tables are passed to Spark
completely. Every few seconds Spark ends a batch of its own: then the offset is stored in the journal, and, if one of
the tables has changed, the query restarts with the current tables.
"""

from __future__ import annotations

import copy
import itertools
import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from millpond.changes import Offset
from millpond.connectors import abilities
from millpond.connectors.sink import NativeSink
from millpond.connectors.source import NativeSource
from millpond.engine.carrier import end_query
from millpond.engine.failures import explain
from millpond.engine.local_stage import Tables
from millpond.engine.pipeline import Pipeline
from millpond.engine.row_transfer import to_frame
from millpond.engine.session import new_session
from millpond.engine.spark_stage import needed_of
from millpond.engine.stream import Stream
from millpond.errors import Closed, ConnectionLost, Error, NotSupported, SourceError, TopicMissing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_MESSAGES, _ROWS = "__messages", "__rows"
_LOOK = 0.1
"""Seconds between checks of the progress of the query."""
_ALL: WeakSet[RealTimeQuery] = WeakSet()
"""Real-time queries of this process: they share its cores."""


class RealTimeQuery(Stream):
    """Represents one statement that runs completely as one Spark query. ``directory`` is temporary."""

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
        super().__init__(self._native)
        self._sink = sink
        self._tables = tables
        self._seconds = seconds
        self._directory = directory
        self._spark = spark
        self._launched = 0
        self._at: Offset | None = None
        self._query: StreamingQuery | None = None
        self._turn = 0
        """The number of the current run of the query; 0 if the statement does not need it."""
        self._turns = itertools.count(1)
        self._failure: Error | None = None
        self._closed = False
        self._versions: dict[str, int] = {}
        _ALL.add(self)

    @property
    def _only(self) -> Pipeline:
        return self._members[0]

    def settle(self) -> None:
        with self._lock:
            wanted = self._wanted()
            if wanted and not self._turn and not self._closed:
                self._turn = next(self._turns)
                self._at = self._only.offset
                launched = self._try_to_launch()
                threading.Thread(target=self._watch, args=(self._turn, launched), daemon=True).start()
            query = None if wanted else self._forget_query()
        if query is not None:
            end_query(query)

    def _forget_query(self) -> StreamingQuery | None:
        """Forgets the query. Called with the lock held."""
        query, self._query, self._turn = self._query, None, 0
        self._lock.notify_all()
        return query

    def _try_to_launch(self) -> bool:
        """Starts the query; returns whether it runs. If not, its statement has failed. Called with the lock held."""
        try:
            self._at = None if self._at is None else abilities.resume(self.source, self._at)
            self._launch()
        except Exception as error:
            self._fail(explain(error))
            return False
        return True

    def _launch(self) -> None:
        session = new_session(self._spark())
        self._launched += 1
        self._failure = None
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self._query = query = (
            self._writer(session)
            .queryName(f"{self._directory.name}-{self._launched}")
            .option("checkpointLocation", str(self._directory / str(self._launched)))
            .start()
        )
        threading.Thread(target=self._follow, args=(query,), name="millpond-real-time", daemon=True).start()

    def _watch(self, turn: int, launched: bool) -> None:
        """Keeps the query running: restarts it after an error that may be temporary, otherwise its statement fails."""
        while True:
            if launched:
                failure = self._end_of_query()
                if self._turn != turn:
                    return
                self._fail(failure)
            with self._lock:
                while self._turn == turn and (left := self._until_next_try()) > 0:
                    self._lock.wait(left)
                if self._turn != turn:
                    return
                if not self._wanted():
                    self._forget_query()
                    return
                launched = self._try_to_launch()
            if launched:
                self._recover()

    def _end_of_query(self) -> Error:
        """Waits for the end of the query; returns the reason."""
        query, ended = self._query, None
        try:
            if query is not None:
                query.awaitTermination()
        except Exception as error:
            ended = error
        failure = self._failure or explain(ended or Closed("the query ended by itself"))
        return self._said_by_source(failure) if isinstance(failure, SourceError) else failure

    def _said_by_source(self, failure: SourceError) -> Error:
        """Returns Spark's error as the source reports it, if the source finds the same."""
        try:
            abilities.resume(self.source, self._at or {})
        except Error as error:
            return error
        return ConnectionLost(failure.message) if isinstance(failure, TopicMissing) else failure

    def wait_until_up(self) -> None:
        while (query := self._query) is not None:
            try:
                if not query.isActive or not query.status["message"].startswith("Initializing"):
                    return
            except Exception:  # whoever watches it gets the same error
                return
            time.sleep(0.02)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            query = self._forget_query()
        for pipeline in list(self._members):
            pipeline.close()
        if query is not None:
            end_query(query)
        shutil.rmtree(self._directory, ignore_errors=True)

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
        settings = self._native.stream_settings(self._at)
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
