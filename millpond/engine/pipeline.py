"""A running statement: a Spark query whose batches become commits."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from millpond.changes import Offset, Position
from millpond.engine.batch import BatchStage, Tables
from millpond.engine.failures import explain
from millpond.engine.local import SMALL_BATCH, LocalStage, read_rows
from millpond.engine.reader import read_stream, unwrap
from millpond.engine.session import is_local
from millpond.errors import Closed, Error
from millpond.plan.pipeline import stream_select
from millpond.plan.plans import PipelinePlan
from millpond.query.evaluate import Answer
from millpond.sources.base import Source
from millpond.sql.resolve import Resolved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MAX_ROWS = 1_000_000
"""Rows of one batch at the most."""
STARTS = 6
"""Times that a query is started when its reader's process does not come up within Spark's fixed 10 s."""


class Host(Protocol):
    """What a pipeline needs of its app."""

    def tables(self) -> Tables:
        """All tables as of now."""

    def deliver(self, plan: PipelinePlan, rows: pa.Table, position: Position) -> None:
        """Makes the rows and the position count, both or neither; a repeated position does nothing."""

    def position(self, pipeline: str) -> Position | None:
        """The newest position that counts."""

    def in_process(self, query: Resolved) -> Answer | None:
        """A function that answers the query without Spark, where that is possible."""


class Pipeline:
    """States: new → running → stopped | failed. ``error`` says why it failed."""

    def __init__(self, plan: PipelinePlan, source: Source, host: Host, directory: Path):
        self.plan = plan
        self.source = source
        self.error: Error | None = None
        self.rows_in = 0
        self.rows_out = 0
        self.batches = 0
        self.last_batch_seconds = 0.0
        self._host = host
        self._directory = directory
        self._stage = BatchStage(plan.batch)
        answer = host.in_process(plan.batch.query)
        self._local = LocalStage(plan.batch, answer) if answer is not None else None
        self._query: StreamingQuery | None = None
        self._stopping = False
        self._limit = SMALL_BATCH
        self._busy = threading.Lock()
        position = host.position(plan.name)
        self.offset: Offset | None = position.offsets.get(self._stream) if position else None
        self.on_progress: Callable[[], None] = lambda: None

    @property
    def _stream(self) -> str:
        return self.plan.batch.stream.relation.name

    @property
    def state(self) -> str:
        if self.error is not None:
            return "failed"
        if self._query is None:
            return "new"
        return "stopped" if self._stopping else "running"

    def start(self, spark: SparkSession) -> None:
        """Starts the query where the last position ended, or at the beginning."""
        self._limit = MAX_ROWS if is_local(spark) else SMALL_BATCH
        session = spark.newSession()
        frame = read_stream(session, self.source, self.offset, MAX_ROWS)
        frame.createOrReplaceTempView("__source")
        batch = self.plan.batch
        alias = batch.stream.alias.replace("`", "``")
        where = f" WHERE {batch.filter}" if batch.filter else ""
        frame = session.sql(f"SELECT {stream_select(batch)} FROM __source AS `{alias}`{where}")
        self._query = (
            frame.writeStream.foreachBatch(self._batch)
            .queryName(self.plan.name)
            .option("checkpointLocation", str(self._directory))
            .start()
        )

    def wait_until_up(self, spark: SparkSession) -> None:
        """Waits until the query's reader runs. On a busy machine its process may need another try."""
        for _ in range(STARTS):
            while self._is_initializing():
                time.sleep(0.02)
            if self._is_active() or self.error is not None or not self._is_late():
                return
            self.start(spark)

    def _is_initializing(self) -> bool:
        query = self._query
        return query is not None and query.isActive and query.status["message"].startswith("Initializing")

    def _is_active(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    def _is_late(self) -> bool:
        failure = self._query.exception() if self._query is not None else None
        return failure is not None and "failed to connect back" in str(failure)

    def _batch(self, frame: DataFrame, number: int) -> None:
        with self._busy:
            if self._stopping:
                # Returning would tell Spark that the batch is done.
                raise Closed("the pipeline is stopping")
            began = time.monotonic()
            try:
                position = self._position(number)
                applied = self._host.position(self.plan.name)
                if applied is None or not applied.covers(position):
                    rows = self._rows(frame, position)
                    self._host.deliver(self.plan, rows, position)
                    self.rows_out += rows.num_rows
            except BaseException as error:
                self.error = self._named(explain(error))
                self.on_progress()
                raise
            self.offset = position.offsets[self._stream]
            self.batches += 1
            self.last_batch_seconds = time.monotonic() - began
        self.on_progress()

    def _rows(self, frame: DataFrame, position: Position) -> pa.Table:
        """What the batch gives: answered in process up to a number of rows, else by Spark."""
        tables = self._host.tables()
        if self._local is not None:
            rows = read_rows(self.source, self.offset, position.offsets[self._stream], self._limit)
            if rows is not None:
                return self._local.run(rows, tables)
        return self._stage.run(frame, tables)

    def _position(self, number: int) -> Position:
        """The position after a batch, from the checkpoint that numbered it."""
        identity = json.loads((self._directory / "metadata").read_text())["id"]
        lines = (self._directory / "offsets" / str(number)).read_text().splitlines()
        end = unwrap(json.loads(lines[-1]))
        return Position(self.plan.name, identity, number, {self._stream: end or {}})

    def check(self) -> None:
        """Raises the error that the pipeline failed with."""
        if self.error is None and self._query is not None and not self._stopping and not self._query.isActive:
            failure = self._query.exception()
            ended = explain(failure) if failure is not None else Closed("the query ended by itself")
            self.error = self._named(ended)
        if self.error is not None:
            raise self.error

    def _named(self, error: Error) -> Error:
        """The error with the statement that failed."""
        if not error.message.startswith("query "):
            error.message = f'query "{self.plan.name}": {error.message}'
        error.place = error.place or self.plan.place
        return error

    def reached(self, end: Offset) -> bool:
        """Whether everything up to ``end`` has been applied."""
        return self.source.reached(self.offset, end)

    def stop(self) -> None:
        """Lets the current batch finish, then ends the query."""
        with self._busy:
            self._stopping = True
        if self._query is not None:
            try:
                self._query.stop()
            except Exception:  # it may have ended with an error of its own
                return

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.plan.name,
            "state": self.state,
            "batches": self.batches,
            "rows": self.rows_out,
            "last_batch_ms": round(self.last_batch_seconds * 1000),
            "error": self.error.message if self.error else None,
            "statement": self.plan.text,
        }
