"""Reads a stream with one Spark query for all statements on it.

Each statement has its own offset in the stream. Statements at the offset of the query get its batches, one after
another. One that is behind, because it is new or was delayed, catches up with ranges that are read for it, and then
joins the others. From Spark's checkpoint only the end of a batch is used: it exists as long as the query.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.changes import Offset
from millpond.connectors import abilities
from millpond.connectors.source import Source
from millpond.engine.batch import Batch
from millpond.engine.failures import explain
from millpond.engine.pipeline import Pipeline
from millpond.engine.reader import noted, read_stream, reading_session
from millpond.engine.sizes import SPARK_SECONDS, BatchSize
from millpond.errors import Closed, ConnectionLost, EngineLost, Error, SourceError, TopicMissing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger("millpond")
_LOOK = 0.1
"""Seconds between two checks whether a retry is due."""


class StreamQuery:
    """Runs the statements on one stream, and the Spark query that reads it while one of them needs it.

    ``directory`` is temporary.
    """

    def __init__(self, source: Source, size: BatchSize, directory: Path, spark: Callable[[], SparkSession]):
        self.source = source
        self._spark = spark
        self._directory = directory
        self._checkpoint = directory
        self._launched = 0
        self._members: list[Pipeline] = []
        self._behind: list[Pipeline] = []
        self._lock = threading.Condition()
        self._at: Offset | None = None
        self._own: SparkSession | None = None
        self._late: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._turn = 0
        """The number of the current run of the query; 0 if no statement needs it."""
        self._turns = itertools.count(1)
        self._failure: Error | None = None
        self._size = size
        self._closed = False
        self._follower: threading.Thread | None = None
        self._last: Batch | None = None

    def __len__(self) -> int:
        return len(self._members)

    def add(self, pipeline: Pipeline) -> None:
        """Adds a statement; ``settle`` starts it."""
        with self._lock:
            self._members.append(pipeline)

    def remove(self, pipeline: Pipeline) -> None:
        """Removes a statement after its current batch; with the last one the query ends."""
        pipeline.close()
        with self._lock:
            if pipeline in self._members:
                self._members.remove(pipeline)
        self.settle()

    def settle(self) -> None:
        """Starts or ends the query after statements were added, removed or changed their state.

        It starts at the offset of the most advanced statement; others at the same offset share its batches.
        """
        with self._lock:
            wanted = [p for p in self._members if p.wanted]
            if wanted and not self._turn and not self._closed:
                self._turn = next(self._turns)
                self._at = self._furthest(wanted)
                launched = self._try_to_launch()
                threading.Thread(target=self._watch, args=(self._turn, launched), daemon=True).start()
            query = None if wanted else self._forget_query()
            self._look_for_late()
        if query is not None:
            end_query(query)

    def _forget_query(self) -> StreamingQuery | None:
        """Forgets the query. Called with the lock held."""
        query, self._query, self._turn = self._query, None, 0
        self._lock.notify_all()
        return query

    def _furthest(self, pipelines: list[Pipeline]) -> Offset | None:
        found: Offset | None = None
        for pipeline in pipelines:
            at = pipeline.offset
            if at is not None and (found is None or abilities.reached(self.source, at, found)):
                found = at
        return found

    def _try_to_launch(self) -> bool:
        """Starts the query; returns whether it runs. If not, its statements have failed. Called with the lock held."""
        try:
            self._at = None if self._at is None else abilities.resume(self.source, self._at)
            self._launch()
        except Exception as error:
            self._fail(explain(error))
            return False
        return True

    def _fail(self, failure: Error) -> None:
        for pipeline in list(self._members):
            pipeline.fail(failure, abilities.patience(self.source, failure))

    def _launch(self) -> None:
        spark = self._spark()
        self._launched += 1
        self._failure = None
        self._checkpoint = self._directory / str(self._launched)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self._own, self._late = reading_session(spark), None
        self._query = (
            self._writer(reading_session(spark))
            .queryName(f"{self._directory.name}-{self._launched}")
            .option("checkpointLocation", str(self._checkpoint))
            .start()
        )

    def _writer(self, session: SparkSession) -> DataStreamWriter:
        """Returns the writer of the Spark query: what Spark reads, and what happens with it."""
        launched = self._launched
        frame = read_stream(session, self.source, self._at, self._size.most)
        return frame.writeStream.foreachBatch(lambda frame, number: self._batch(frame, number, launched))

    def _watch(self, turn: int, launched: bool) -> None:
        """Keeps the query running: restarts it after an error that may be temporary, otherwise its statements fail."""
        while True:
            if launched:
                failure = self._end_of_query()
                if self._turn != turn:
                    return
                self._fail(failure)
                if isinstance(failure, EngineLost):
                    self._size.lessen()
            with self._lock:
                while self._turn == turn and (left := self._until_next_try()) > 0:
                    self._lock.wait(left)
                if self._turn != turn:
                    return
                if not any(p.wanted for p in self._members):
                    self._forget_query()
                    return
                launched = self._try_to_launch()
            if launched:
                for pipeline in list(self._members):
                    pipeline.recover()

    def _until_next_try(self) -> float:
        times = [p.retry_at for p in self._members if p.wanted]
        return min(times) - time.monotonic() if times else 0.0

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
        """Waits until the query's reader runs, or has failed to."""
        while (query := self._query) is not None:
            try:
                if not query.isActive or not query.status["message"].startswith("Initializing"):
                    return
            except Exception:  # whoever watches it gets the same error
                return
            time.sleep(0.02)

    def pull(self) -> None:
        """Does nothing: the query moves by itself."""

    def _batch(self, frame: DataFrame, number: int, launched: int) -> None:
        """Applies what Spark has read, in batches of a size that takes a reasonable time."""
        end, given = self._end_of(number), True
        while given or self._at != end:
            with self._lock:
                if not self._turn or launched != self._launched:
                    raise Closed("the query is stopping")
                members = [p for p in self._members if p.active and p not in self._behind]
            until = abilities.clip(self.source, self._at, end, self._size.rows)
            whole = given and until == end
            batch = self._range(self._at, until, frame if whole else None, shared=len(members) > 1)
            try:
                batch.check()
            except Error as error:
                self._failure = error
                raise
            began = time.monotonic()
            for pipeline in members:
                pipeline.steps.engine = None
                self._advance(pipeline, batch)
            batch.close()
            by_spark = sum(p.steps.engine == "spark" for p in members)
            self._size.note(batch.size, time.monotonic() - began, SPARK_SECONDS * by_spark)
            given = False
            with self._lock:
                if launched == self._launched:
                    self._at = until
                    self._look_for_late()

    def _advance(self, pipeline: Pipeline, batch: Batch) -> None:
        """Applies one batch of the query to one statement, which may be past the beginning, or past all of it."""
        if pipeline.offset == batch.start:
            pipeline.advance(batch)
        elif not pipeline.reached(batch.end) and (batch.start is None or pipeline.reached(batch.start)):
            pipeline.advance(self._range(pipeline.offset, batch.end))

    def _end_of(self, number: int) -> Offset:
        """Returns the end of a batch, which Spark writes before the batch runs."""
        lines = (self._checkpoint / "offsets" / str(number)).read_text().splitlines()
        return noted(self.source, lines[-1])

    def _range(
        self, start: Offset | None, end: Offset, frame: DataFrame | None = None, *, shared: bool = False
    ) -> Batch:
        own = self._own
        assert own is not None
        late = threading.current_thread() is self._follower
        session = self._late_session if late else lambda: own
        return Batch(self.source, start, end, spark=session, frame=frame, shared=shared)

    def _late_session(self) -> SparkSession:
        """Returns the session of statements that are behind, so that names do not mix with those of the query."""
        if self._late is None:
            self._late = reading_session(self._spark())
        return self._late

    # statements that are behind

    def _look_for_late(self) -> None:
        """Starts the thread for statements that are behind. Called with the lock held."""
        at = self._at
        if at is not None and not self._closed:
            for pipeline in self._members:
                if pipeline.wanted and pipeline not in self._behind and not pipeline.reached(at):
                    self._behind.append(pipeline)
            if self._behind and self._follower is None:
                self._follower = threading.Thread(
                    target=self._catch_up, name="millpond-catch-up", daemon=True
                )
                self._follower.start()
        self._lock.notify_all()

    def _catch_up(self) -> None:
        """Moves statements that are behind to the offset of the query, a range at a time, in turn."""
        while True:
            with self._lock:
                at = self._at
                assert at is not None
                self._behind = [
                    p for p in self._behind if p.wanted and p in self._members and not p.reached(at)
                ]
                if not self._behind or self._closed:
                    self._forget_last()
                    self._follower = None
                    return
                late = [p for p in self._behind if p.active]
                if not late:
                    self._lock.wait(_LOOK)
            for pipeline in late:
                self._one_range(pipeline, at)

    def _forget_last(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.close()

    def _one_range(self, pipeline: Pipeline, at: Offset) -> None:
        try:
            start = None if pipeline.offset is None else abilities.resume(self.source, pipeline.offset)
            end = abilities.clip(self.source, start, at, self._size.rows)
            if self._last is None or (self._last.start, self._last.end) != (start, end):
                self._forget_last()
                self._last = self._range(start, end)
            self._last.check()
        except Error as error:
            pipeline.fail(error, abilities.patience(self.source, error))
            return
        pipeline.advance(self._last)
        if pipeline.error is not None:
            self._forget_last()  # what Spark holds of it may be gone

    def close(self) -> None:
        """Lets the current batch finish, then ends the query."""
        with self._lock:
            self._closed = True
            query = self._forget_query()
        for pipeline in list(self._members):
            pipeline.close()
        if query is not None:
            end_query(query)
        follower = self._follower
        if follower is not None and follower is not threading.current_thread():
            follower.join()
        shutil.rmtree(self._directory, ignore_errors=True)


def end_query(query: StreamingQuery) -> None:
    try:
        query.stop()
    except Exception:  # it may have ended with its own error
        log.debug("a query had ended", exc_info=True)
