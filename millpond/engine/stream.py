"""One Spark query reads a stream for all statements on it.

Each statement has a place of its own in the stream. Those that are where the query is get its batches, one after
another; one that is behind, because it is new or was held up, catches up with ranges that are read for it, and then
joins the others. Nothing is known from Spark's checkpoint but where a batch ends: it lives as long as the query.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.changes import Offset
from millpond.engine.batch import Batch
from millpond.engine.failures import explain
from millpond.engine.local import SMALL_BATCH
from millpond.engine.pipeline import Pipeline
from millpond.engine.reader import read_stream, unwrap
from millpond.engine.session import is_local
from millpond.errors import Closed, Error
from millpond.sources.base import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MAX_ROWS = 1_000_000
"""Rows of one batch at the most."""
STARTS = 6
"""Times that a query is started when its reader's process does not come up within Spark's fixed 10 s."""

log = logging.getLogger("millpond")


class StreamQuery:
    """The statements on one stream, and the Spark query that reads it. ``directory`` is scratch."""

    def __init__(self, source: Source, directory: Path):
        self.source = source
        self._directory = directory
        self._members: list[Pipeline] = []
        self._behind: list[Pipeline] = []
        self._lock = threading.Condition()
        self._at: Offset | None = None
        self._spark: SparkSession | None = None
        self._own: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._limit = SMALL_BATCH
        self._stopping = False
        self._failed: Error | None = None
        self._follower: threading.Thread | None = None
        self._last: Batch | None = None

    def __len__(self) -> int:
        return len(self._members)

    def add(self, pipeline: Pipeline) -> None:
        """A statement more; one that comes while the query runs catches up first."""
        with self._lock:
            self._members.append(pipeline)
            if self._failed is not None:
                pipeline.fail(self._failed)
            elif self._query is not None:
                self._look_for_late()

    def remove(self, pipeline: Pipeline) -> None:
        """Takes a statement out, its current batch done; with the last one the query ends."""
        pipeline.stop()
        with self._lock:
            if pipeline in self._members:
                self._members.remove(pipeline)
            if pipeline in self._behind:
                self._behind.remove(pipeline)
        if not self._members:
            self.stop()

    # the query

    def start(self, spark: SparkSession) -> None:
        """Starts reading where the statement that is furthest is. Others of the same place share its batches."""
        with self._lock:
            if self._query is not None:
                return
            self._spark = spark
            self._limit = MAX_ROWS if is_local(spark) else SMALL_BATCH
            self._at = self._furthest()
            self._launch()
            self._look_for_late()
        threading.Thread(target=self._watch, name="millpond-watch", daemon=True).start()

    def _furthest(self) -> Offset | None:
        found: Offset | None = None
        for pipeline in self._members:
            at = pipeline.offset
            if at is not None and (found is None or self.source.reached(at, found)):
                found = at
        return found

    def _launch(self) -> None:
        assert self._spark is not None
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        frame = read_stream(self._spark.newSession(), self.source, self._at, MAX_ROWS)
        self._query = (
            frame.writeStream.foreachBatch(self._batch)
            .queryName(self._directory.name)
            .option("checkpointLocation", str(self._directory))
            .start()
        )

    def _watch(self) -> None:
        """Sees to it that the query runs. On a busy machine its reader's process may need another try."""
        for left in reversed(range(STARTS)):
            query, error = self._query, None
            assert query is not None
            try:
                query.awaitTermination()
            except Exception as ended:
                error = ended
            with self._lock:
                if self._stopping:
                    return
                if left and "failed to connect back" in str(error):
                    self._launch()
                    continue
                self._failed = explain(error or Closed("the query ended by itself"))
                members = list(self._members)
            for pipeline in members:
                if pipeline.active:
                    pipeline.fail(self._failed)
            return

    def wait_until_up(self) -> None:
        """Waits until the query's reader runs, or has failed to."""
        while not self._stopping and self._failed is None:
            query = self._query
            if query is None or (query.isActive and not query.status["message"].startswith("Initializing")):
                return
            time.sleep(0.02)

    def _batch(self, frame: DataFrame, number: int) -> None:
        with self._lock:
            if self._stopping:
                raise Closed("the query is stopping")
            members = [p for p in self._members if p.active and p not in self._behind]
        end = self._end_of(number)
        batch = self._range(self._at, end, frame, shared=len(members) > 1)
        for pipeline in members:
            self._advance(pipeline, batch)
        batch.close()
        with self._lock:
            self._at = end
            self._look_for_late()

    def _advance(self, pipeline: Pipeline, batch: Batch) -> None:
        """One statement and one batch of the query. It may be past the beginning, or past all of it."""
        if pipeline.offset == batch.start:
            pipeline.advance(batch)
        elif not pipeline.reached(batch.end) and self._is_past(pipeline, batch.start):
            pipeline.advance(self._range(pipeline.offset, batch.end))

    def _is_past(self, pipeline: Pipeline, start: Offset | None) -> bool:
        return start is None or pipeline.reached(start)

    def _end_of(self, number: int) -> Offset:
        """Spark notes the end of a batch before the batch runs."""
        lines = (self._directory / "offsets" / str(number)).read_text().splitlines()
        return unwrap(json.loads(lines[-1])) or {}

    def _range(
        self, start: Offset | None, end: Offset, frame: DataFrame | None = None, *, shared: bool = False
    ) -> Batch:
        return Batch(
            self.source, start, end, limit=self._limit, spark=self._own_session, frame=frame, shared=shared
        )

    def _own_session(self) -> SparkSession:
        """Where ranges are read, so that names do not mix with those of the query's batches."""
        assert self._spark is not None
        if self._own is None:
            self._own = self._spark.newSession()
        return self._own

    # those who are behind

    def _look_for_late(self) -> None:
        """Called with the lock held."""
        at = self._at
        if at is None:
            return
        for pipeline in self._members:
            if pipeline.active and pipeline not in self._behind and not pipeline.reached(at):
                self._behind.append(pipeline)
        if self._behind and self._follower is None and not self._stopping:
            self._follower = threading.Thread(target=self._catch_up, name="millpond-catch-up", daemon=True)
            self._follower.start()

    def _catch_up(self) -> None:
        """Brings those who are behind to where the query is, a range at a time, in turn."""
        while True:
            with self._lock:
                at = self._at
                assert at is not None
                self._behind = [p for p in self._behind if p.active and not p.reached(at)]
                if not self._behind or self._stopping:
                    self._follower = self._last = None
                    return
                late = list(self._behind)
            for pipeline in late:
                self._one_range(pipeline, at)

    def _one_range(self, pipeline: Pipeline, at: Offset) -> None:
        start = pipeline.offset
        try:
            end = self.source.clip(start, at, MAX_ROWS)
        except Error as error:
            pipeline.fail(error)
            return
        if self._last is None or (self._last.start, self._last.end) != (start, end):
            self._last = self._range(start, end)
        pipeline.advance(self._last)

    def stop(self) -> None:
        """Lets the current batch finish, then ends the query."""
        with self._lock:
            self._stopping = True
        for pipeline in list(self._members):
            pipeline.stop()
        if self._query is not None:
            try:
                self._query.stop()
            except Exception:  # it may have ended with an error of its own
                log.debug("the query of %s had ended", self.source.uri, exc_info=True)
        follower = self._follower
        if follower is not None and follower is not threading.current_thread():
            follower.join()
        shutil.rmtree(self._directory, ignore_errors=True)
