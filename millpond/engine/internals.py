"""Accesses private parts of PySpark: its Java process and the Java objects behind a session and a frame.

No other file uses PySpark's private fields, so only this one depends on its version.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import DataFrame, SparkSession


def active_context() -> SparkContext | None:
    """Returns the context of this process, if Spark is up."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def gateway() -> Any:
    """Returns the connection to the Java process, if there is one."""
    from pyspark import SparkContext

    return SparkContext._gateway


def forget_process() -> None:
    """Lets PySpark start another Java process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def spark_home() -> Path:
    """Returns the folder of the Spark that PySpark starts."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def end_process(seconds: float) -> int:
    """Stops Spark, ends its Java process and returns its exit code."""
    context, process = active_context(), gateway().proc
    if context is not None:
        context.stop()
    gateway().shutdown()
    process.stdin.close()
    return int(process.wait(seconds))


def kill_process() -> None:
    """Ends the Java process that this one has started, if it runs, at once."""
    process = getattr(gateway(), "proc", None)
    if process is not None:
        process.kill()
        process.wait()


def runs(context: SparkContext) -> bool:
    """Returns whether a context was not stopped, and its Java process answers."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        return context._jsc is not None and not context._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def has_format(session: SparkSession, name: str) -> bool:
    """Returns whether a session can read and write a format."""
    sources = java_of(session.sparkContext).org.apache.spark.sql.execution.datasources.DataSource
    try:
        sources.lookupDataSource(name, java_session(session).sessionState().conf())
    except Exception:  # PySpark makes its own of Java's
        return False
    return True


@contextmanager
def first_active(session: SparkSession) -> Iterator[None]:
    """Makes the session that the program has made first the active one again: PySpark makes a session active, for all
    threads, when rows are passed to it.
    """
    from pyspark.sql import SparkSession

    sessions = java_sessions(session)
    before = sessions.getActiveSession()
    try:
        yield
    finally:
        SparkSession._activeSession = SparkSession._instantiatedSession
        with suppress(Exception):  # the Java process may be gone
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()


def java_of(context: SparkContext) -> Any:
    """Returns the classes of the Java process."""
    return context._jvm


def java_session(session: SparkSession) -> Any:
    """Returns the Java object of a session."""
    return session._jsparkSession


def java_sessions(session: SparkSession) -> Any:
    """Returns the Java class of sessions, which stores the one that a thread last used."""
    return session._get_j_spark_session_class(session._jvm)


def java_frame(frame: DataFrame) -> Any:
    """Returns the Java object of a frame."""
    return frame._jdf


def hadoop_files(context: SparkContext, uri: str) -> tuple[Any, Any]:
    """Returns the file system that Spark reaches a URI with, and the Java class of its paths."""
    path_of = java_of(context).org.apache.hadoop.fs.Path
    return path_of(uri).getFileSystem(context._jsc.hadoopConfiguration()), path_of


def arrow_batches(frame: DataFrame) -> Any:
    """Collects the rows of a frame as Arrow batches."""
    return frame._collect_as_arrow(empty_list_if_zero_records=False)  # type: ignore[operator]


def observed(frame: DataFrame, name: str) -> list[Any] | None:
    """Returns the values that ``DataFrame.observe`` has computed under that name while the frame was evaluated; None
    if it had no rows.
    """
    return _observed(java_frame(frame).queryExecution(), name)


def _observed(query: Any, name: str) -> list[Any] | None:
    found = query.observedMetrics().get(name)
    return [found.get().get(i) for i in range(found.get().size())] if found.isDefined() else None


def silence_gateway() -> None:
    """Keeps broken connections to the Java process out of the program's log: they become errors of ours, raised to the
    caller. Some messages of the gateway go to the root logger, and would set that up as a side effect.
    """
    from py4j import java_gateway  # type: ignore[import-untyped]

    if logging.getLogger("py4j").level == logging.NOTSET:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    java_gateway.logging = java_gateway.logger


def silence_accumulators(context: SparkContext) -> None:
    """Suppresses the traceback of a message that was cut off because its process ended."""
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]


def launch(conf: SparkConf, log: IO[bytes]) -> None:
    """Starts the JVM that Spark's context will use, unless there is one. Its standard error goes to ``log``."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if gateway() is None:
        SparkContext._ensure_initialized(gateway=launch_gateway(conf, {"stderr": log}), conf=conf)  # type: ignore[no-untyped-call]


class Shuffled:
    """Runs a frame up to its last shuffle: its rows are then on the executors, and jobs over ``frame`` begin there."""

    def __init__(self, frame: DataFrame):
        from pyspark.sql import DataFrame

        self._query = java_frame(frame).queryExecution()
        self._context = frame.sparkSession.sparkContext._jsc.sc()
        rows = self._query.toRdd()
        self._shuffle = _last_shuffle(rows)
        if self._shuffle is None:  # only a plan that Spark knows to have no rows
            assert rows.getNumPartitions() == 0, "a frame without a shuffle"
        elif self._shuffle.rdd().getNumPartitions():
            self._context.submitMapStage(self._shuffle).get()
        java = java_session(frame.sparkSession)
        self.frame = DataFrame(
            java.internalCreateDataFrame(rows, java_frame(frame).schema(), False), frame.sparkSession
        )

    def observed(self, name: str) -> list[Any] | None:
        """Returns the values that ``DataFrame.observe`` has computed before the shuffle; None if it has no rows."""
        return _observed(self._query, name)

    def close(self) -> None:
        """Removes the rows from the executors, who would keep them until a garbage collection here."""
        cleaner = self._context.cleaner()
        if self._shuffle is not None and cleaner.isDefined():
            cleaner.get().doCleanupShuffle(self._shuffle.shuffleId(), False)


def _last_shuffle(rows: Any) -> Any:
    while not (needed := rows.dependencies()).isEmpty():
        if needed.head().getClass().getSimpleName() == "ShuffleDependency":
            return needed.head()
        rows = needed.head().rdd()
    return None


class MemoryStream:
    """Wraps Spark's stream of texts in memory: ``frame`` is a streaming DataFrame of what is added."""

    def __init__(self, session: SparkSession):
        from pyspark.sql import DataFrame

        self._java = java = java_of(session.sparkContext)
        spark = java.org.apache.spark.sql
        self._stream = spark.execution.streaming.runtime.MemoryStream(
            0, java_session(session), java.scala.Option.apply(1), spark.Encoders.STRING()
        )
        self.frame = DataFrame(self._stream.toDF(), session)

    def add(self, text: str) -> None:
        self._stream.addData(self._java.PythonUtils.toSeq([text]).toList())


class ParquetScan:
    """Reads byte ranges of Parquet files by Spark's own reader. Its public API reads whole files only, leaves out those
    whose names begin with _ or a dot, and takes some letters of a name for patterns.
    """

    ROW = "_tmp_metadata_row_index"
    """The column that Spark's reader fills with the place of a row in its file."""
    FILE = "_tmp_file_number"
    """The column with the number of a file."""

    def __init__(self, session: SparkSession, options: dict[str, str]):
        self._session = session
        self._java = java_of(session.sparkContext)
        self._options = self._java.PythonUtils.toScalaMap(options)
        self._settings = java_session(session).sessionState().newHadoopConfWithOptions(self._options)
        self._nothing = self._java.PythonUtils.toSeq([]).toList()

    def rows_in(self, path: str, begin: int, end: int) -> tuple[int, range]:
        """Returns how many row groups of a file Spark reads in some bytes, and which rows of the file they have."""
        parquet, hadoop = self._java.org.apache.parquet, self._java.org.apache.hadoop
        only = parquet.format.converter.ParquetMetadataConverter.range(begin, end)
        found = parquet.hadoop.ParquetFileReader.readFooter(
            self._settings, hadoop.fs.Path(f"file://{path}"), only
        )
        blocks = found.getBlocks()
        count = blocks.size()
        if not count:
            return 0, range(0)
        first, last = blocks.get(0), blocks.get(count - 1)
        return count, range(first.getRowIndexOffset(), last.getRowIndexOffset() + last.getRowCount())

    def frame(self, columns: str, tasks: list[list[tuple[str, int, int, int, int]]]) -> DataFrame:
        """Returns these columns of what each task reads, and ``ROW`` and ``FILE``. Of a file are given: its path, its
        size, the range, and the number for ``FILE``.
        """
        from pyspark.sql import DataFrame

        java, session = self._java, java_session(self._session)
        spark, types = java.org.apache.spark.sql, java.org.apache.spark.sql.types.StructType
        files, row = spark.execution.datasources, f"`{self.ROW}` BIGINT"
        own = ", ".join(filter(None, (columns, row)))
        read = files.parquet.ParquetFileFormat().buildReaderWithPartitionValues(
            session,
            types.fromDDL(columns) if columns else types(),
            types.fromDDL(f"{self.FILE} BIGINT"),
            types.fromDDL(own),
            self._nothing,
            self._options,
            self._settings,
        )
        made = [files.FilePartition(n, self._files(task)) for n, task in enumerate(tasks)]
        every = types.fromDDL(f"{own}, {self.FILE} BIGINT")
        rows = files.FileScanRDD(
            session,
            read,
            java.PythonUtils.toSeq(made).toList(),
            every,
            self._nothing,
            java.PythonUtils.toScalaMap({}),
            spark.catalyst.FileSourceOptions(self._options),
        )
        return DataFrame(session.internalCreateDataFrame(rows, every, False), self._session)

    def _files(self, task: list[tuple[str, int, int, int, int]]) -> Any:
        java = self._java
        kind, row = java.org.apache.spark.sql.execution.datasources.PartitionedFile, self._constant
        nowhere, nothing = gateway().new_array(java.java.lang.String, 0), java.PythonUtils.toScalaMap({})
        made = gateway().new_array(kind, len(task))
        for n, (path, size, begin, end, number) in enumerate(task):
            at = java.org.apache.spark.paths.SparkPath.fromPath(
                java.org.apache.hadoop.fs.Path(f"file://{path}")
            )
            made[n] = kind(row(number), at, begin, end - begin, nowhere, 0, size, nothing)
        return made

    def _constant(self, number: int) -> Any:
        """Returns a row with one number, as Spark keeps rows."""
        row = self._java.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(1)
        row.setLong(0, number)
        return row
