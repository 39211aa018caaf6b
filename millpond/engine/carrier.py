"""Runs work on Spark as a batch of a Structured Streaming query.

The query carries no rows: each of its batches stands for a range of offsets, which the work reads itself, natively. So
Spark shows the batches of a stream as those of a streaming query, by its name. It starts with the first range that
Spark evaluates, and ends when none has come for a while. The position is not Spark's: its checkpoint is temporary.
"""

from __future__ import annotations

import contextvars
import itertools
import logging
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from millpond.connectors.source import Source
from millpond.engine import jvm
from millpond.engine.failures import explain
from millpond.engine.internals import MemoryStream, active_context
from millpond.engine.reader import reading_session
from millpond.engine.session import new_session
from millpond.errors import Closed, EngineLost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("millpond")
T = TypeVar("T")
_LOOK = 0.5
"""Seconds between two checks whether the query still runs."""
_IDLE = 30.0
"""Seconds without a range after which the query ends."""

_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_CHECKPOINT = {
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": _FILES,
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""The checkpoint is temporary. By default Spark writes each of its files, and a checksum of it, with ten processes:
``chmod``, and ``readlink`` for each step.
"""


class Sessions:
    """Runs work on Spark in the thread of its caller."""

    def __init__(self, source: Source | None, spark: Callable[[], SparkSession]):
        self._source = source
        self._spark = spark
        self._session: SparkSession | None = None

    def session(self) -> SparkSession:
        """Returns a session, which reads the source if there is one: another one after Spark's process has ended."""
        spark = self._spark()
        if self._session is None or self._session.sparkContext is not spark.sparkContext:
            self._session = reading_session(spark, self._source)
        return self._session

    def run(
        self,
        what: str,
        work: Callable[[], T],
        prepare: Callable[[], object] | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> T:
        """Runs the work, and returns its result; ``what`` names the range of offsets that it is for. ``prepare`` is
        what can be done for it while Spark begins, ``meanwhile`` for later work while Spark is busy with this.
        """
        return work()


class Carrier(Sessions):
    """Runs one piece of work at a time, for one thread, in batches of a query. ``directory`` is temporary."""

    def __init__(self, source: Source, name: str, directory: Path, spark: Callable[[], SparkSession]):
        super().__init__(source, spark)
        self._name = name
        self._directory = directory
        self._ranges: MemoryStream | None = None
        self._query: StreamingQuery | None = None
        self._started_in: SparkSession | None = None
        self._numbers = itertools.count(1)
        self._work: Callable[[], None] | None = None
        self._used = time.monotonic()

    def run(
        self,
        what: str,
        work: Callable[[], T],
        prepare: Callable[[], object] | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> T:
        """Runs the work in the query's next batch, and returns its result. Raises what the work raises, and EngineLost
        if Spark ends meanwhile.
        """
        found: list[T] = []
        failed: list[BaseException] = []
        context = contextvars.copy_context()
        prepared, done = threading.Event(), threading.Event()

        def run() -> None:
            try:
                prepared.wait()
                found.append(context.run(work))
            except BaseException as error:
                failed.append(error)
            done.set()

        self._work = run
        try:
            self._begin(what, prepare, prepared)
            if meanwhile is not None:
                with suppress(Exception):  # what needs it makes it again
                    meanwhile()
            while not done.wait(_LOOK):
                self._check(done)
        except Exception as error:
            self._query = None
            raise explain(error) from error
        finally:
            prepared.set()
            self._work, self._used = None, time.monotonic()
        if failed:
            raise failed[0]
        return found[0]

    def _begin(self, what: str, prepare: Callable[[], object] | None, prepared: threading.Event) -> None:
        """Asks for a batch of the query, which it starts if need be, and prepares the work meanwhile."""
        session = self.session()

        def ask() -> None:
            self._start(session)
            assert self._ranges is not None
            self._ranges.add(what)

        if prepare is None:
            prepared.set()
            ask()
            return
        with ThreadPoolExecutor(1) as beside:
            asked = beside.submit(ask)
            with suppress(Exception):  # the work raises it again
                prepare()
            prepared.set()
            asked.result()

    def _start(self, session: SparkSession) -> None:
        if self._started_in is session and self._query is not None and self._query.isActive:
            return
        self._started_in, self._query = session, None
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        number = next(self._numbers)
        self._ranges = MemoryStream(_light(new_session(session)))
        self._query = (
            self._ranges.frame.writeStream.foreachBatch(self._batch)
            .queryName(f"{self._name} ({self._directory.name}-{number})")
            .option("checkpointLocation", str(self._directory / str(number)))
            .start()
        )

    def _batch(self, frame: DataFrame, number: int) -> None:
        """Runs the current work. Called by Spark."""
        work, self._work = self._work, None
        if work is not None:
            work()

    def _check(self, done: threading.Event) -> None:
        """Raises if the query does not run any more."""
        query = cast("StreamingQuery", self._query)
        if (how := jvm.end()) is not None:
            raise EngineLost(f"Spark's Java process is gone: {how}")
        if not query.isActive and not done.is_set():
            raise query.exception() or Closed("the query of a stream was stopped")

    def rest(self) -> None:
        """Ends the query if it has nothing to do for a while."""
        if self._query is not None and time.monotonic() - self._used > _IDLE:
            self.close()

    def close(self) -> None:
        """Ends the query."""
        query, self._query = self._query, None
        if query is not None:
            if self._started_in is not None and self._started_in.sparkContext is active_context():
                end_query(query)
            shutil.rmtree(self._directory, ignore_errors=True)


def _light(session: SparkSession) -> SparkSession:
    """Returns the session, whose queries write their checkpoint, which is temporary, in the quickest way."""
    for name, value in _CHECKPOINT.items():
        session.conf.set(name, value)
    return session


def end_query(query: StreamingQuery) -> None:
    """Stops a query of Spark."""
    try:
        query.stop()
    except Exception:  # it may have ended with its own error
        log.debug("a query had ended", exc_info=True)
