"""Provides one Spark session for the process: started at the first request, shared by all apps."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.connectors.spark import SparkFormat, spark_formats
from millpond.engine import internals, jvm
from millpond.engine.archive import find_archive, java_options, make_later
from millpond.engine.cluster import OWN, SETTINGS, check_master, is_cluster, is_here, send_package
from millpond.engine.cluster_check import check_executors
from millpond.engine.defaults import with_defaults
from millpond.engine.jars import jars_of
from millpond.engine.java import find_java, prepare_java
from millpond.engine.program_session import is_given, prepared, session_of
from millpond.engine.row_store import SETTING, open_store
from millpond.errors import ConnectorMissing, EngineError, Error
from millpond.sql.functions import function_classes

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_lock = threading.Lock()
_ours: SparkContext | None = None
"""The context that was started here."""

_LOG_CONFIG = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""

# XML that is a value of a row names no file or host: neither an external DTD nor a schema is fetched.
_CLOSED_XML = "-Djavax.xml.accessExternalDTD= -Djavax.xml.accessExternalSchema="
_CLOSED = {"spark.sql.variable.substitute": "false"}
"""Settings of every session that runs SQL: `${env:NAME}` in a text is plain text."""

_PER_SESSION = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "64MB",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
}
_AT_START = {
    "spark.app.name": "millpond",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    "spark.scheduler.mode": "FAIR",
    "spark.speculation": "false",  # two tasks would write the same messages, and the slower one again after the other
    "spark.executor.defaultJavaOptions": _CLOSED_XML,
}

_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_JAVA = "-XX:+UseParallelGC -XX:+ExitOnOutOfMemoryError -XX:+DisplayVMOutputToStderr"
"""When memory runs out, the process ends and another one is started: it would be of no use any more."""


def started() -> bool:
    """Returns whether Spark is up in this process."""
    if "pyspark" not in sys.modules:
        return False
    return internals.active_context() is not None


def get_session(
    master: str | None = None,
    log_dir: Path | None = None,
    *,
    formats: Collection[str] = (),
    store: str | None = None,
) -> SparkSession:
    """Returns the process's Spark session, started at the first call.

    Spark's log goes to ``spark.log`` in ``log_dir`` of that call, never to the terminal. It can read and write
    the ``formats`` of connectors: if their jars are missing, Spark downloads them. Executors of a cluster get rows
    through the ``store``, if there is one. Raises JavaMissing, ConnectorMissing, and EngineError for a cluster that
    cannot be used.
    """
    global _ours
    needed = [kind for name, kind in spark_formats().items() if name in formats]
    with _lock:
        from pyspark.sql import SparkSession

        if started() and jvm.end() is not None:
            jvm.let_go()
        if started():
            session = SparkSession.builder.getOrCreate()
            if session.sparkContext is not _ours:
                return given_session(session, formats, store)
            for kind in needed:
                _check(kind, session)
            return session
        where = _where(master)
        check_master(where)
        # Spark outlives the app that started it, so its temporary files are not in that app's directory.
        directory = Path(tempfile.mkdtemp(prefix="millpond-spark-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        if log_dir is None or not log_dir.parent.is_dir():
            log_dir = directory  # the app that starts it may be closed by now
        log_dir.mkdir(exist_ok=True)
        log = log_dir / "spark.log"
        java, before = find_java(), dict(os.environ)
        os.environ.update(prepare_java(java, directory))
        archive = find_archive(java)
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        if not is_cluster(where) or not os.environ.get("PYSPARK_PYTHON"):
            os.environ["PYSPARK_PYTHON"] = sys.executable
        if is_here(where):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        config = directory / "log4j2.properties"
        config.write_text(_LOG_CONFIG.format(log=log), encoding="utf-8")
        logging.getLogger("SQLQueryContextLogger").disabled = True
        internals.silence_gateway()
        builder = SparkSession.builder.master(where)
        settings, classes = with_defaults(_settings(directory, config, formats)), java_options(archive)
        if is_cluster(where):
            settings = {k: v for k, v in settings.items() if k not in OWN} | SETTINGS
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            with _own_interrupt():
                _launch(where, settings, classes, log)
                session = builder.getOrCreate()
                if is_cluster(where):
                    send_package(session, directory)
        except Exception as error:
            for kind in needed:
                if not jars_of(kind):
                    raise _no_connector(kind, f"Spark could not fetch {kind.package}: see {log}") from None
            if is_cluster(where):
                raise EngineError(
                    f'Spark could not be started with the master "{where}": see {log}',
                    hint="check the address, and that its workers have room: executors ask for 1 GB and all cores",
                ) from error
            if isinstance(error, Error):
                raise
            raise EngineError(
                f"Spark could not be started: see {log}",
                hint="check that there is memory for its Java process: MILLPOND_DRIVER_MEMORY sets how much (4g)",
            ) from error
        _ours = session.sparkContext
        internals.silence_accumulators(session.sparkContext)
        atexit.register(_stop, session)
        make_later(archive, before)
        if is_cluster(where):
            _join_cluster(session, store)
        return session


def _join_cluster(session: SparkSession, store: str | None) -> None:
    """Checks that executors have what they need; else Spark is stopped, so that the next call tries again."""
    try:
        _check_executors(session, store)
    except EngineError:
        session.stop()
        raise


def _check_executors(session: SparkSession, store: str | None) -> None:
    check_executors(session, None if store is None else open_store(session, store))


def check_start(master: str | None) -> None:
    """Raises what is known before Spark is started: JavaMissing, and EngineError for a master that does not answer."""
    find_java()
    check_master(_where(master))


def _where(master: str | None) -> str:
    return master or os.environ.get("MILLPOND_MASTER") or f"local[{os.cpu_count() or 2}]"


def given_session(
    spark: SparkSession, formats: Collection[str] = (), store: str | None = None
) -> SparkSession:
    """Returns a session of ours beside one that the program has made, which stays as it is."""
    if spark.sparkContext is _ours:
        return get_session(formats=formats)
    return session_of(spark, formats, _PER_SESSION | _CLOSED, lambda own: _check_executors(own, store))


def new_session(spark: SparkSession) -> SparkSession:
    """Returns a session for statements, which does not have functions that reach outside of SQL, and in which the text
    of a statement is only SQL. They are refused before Spark gets a statement; this is the second line of defence.
    """
    session = spark.newSession()
    if is_given(spark.sparkContext):
        prepared(session, _PER_SESSION)
    for name, value in _CLOSED.items():
        session.conf.set(name, value)
    if (store := spark.conf.get(SETTING, None)) is not None:
        session.conf.set(SETTING, store)
    registry = internals.java_session(session).sessionState().functionRegistry()
    for function in _outside(session.sparkContext):
        registry.dropFunction(function)
    return session


@lru_cache(1)
def _outside(context: SparkContext) -> list[Any]:
    """Returns the functions that reach outside, as Spark's registry names them."""
    java = internals.java_of(context)
    some, identifier = java.scala.Option.apply, java.org.apache.spark.sql.catalyst.FunctionIdentifier
    builtin, system = some("builtin"), some("system")
    return [
        identifier(name, builtin, system) for name, kind in function_classes().items() if kind == "outside"
    ]


def _check(kind: SparkFormat, session: SparkSession) -> None:
    settings = session.sparkContext.getConf()
    name = kind.package.split(":")[1]
    if name not in settings.get("spark.jars", "") + settings.get("spark.jars.packages", ""):
        raise _no_connector(kind, f"Spark was started without {kind.package}")


def _no_connector(kind: SparkFormat, message: str) -> ConnectorMissing:
    return ConnectorMissing(
        message,
        hint=f"fetch the jars once with `millpond jars {kind.name}`,"
        " or name a folder that has them in MILLPOND_JARS",
    )


def is_local(spark: SparkSession) -> bool:
    """Returns whether the executors are this process."""
    return not is_cluster(spark.sparkContext.master or "")


def _settings(directory: Path, log_config: Path, formats: Collection[str]) -> dict[str, str]:
    cores = os.cpu_count() or 2
    return (
        _PER_SESSION
        | _AT_START
        | {
            # A statement that uses all memory, or all of a stack, fails; it does not end the JVM of everybody else.
            "spark.executor.killOnFatalError.depth": "0",
            "spark.sql.shuffle.partitions": str(cores),
            "spark.default.parallelism": str(cores),
            "spark.driver.memory": os.environ.get("MILLPOND_DRIVER_MEMORY", "4g"),
            _DRIVER_OPTIONS: f"-Dlog4j2.configurationFile=file:{log_config} {_JAVA} {_CLOSED_XML}",
            "spark.local.dir": str(directory / "spark-local"),
            "spark.sql.warehouse.dir": str(directory / "spark-warehouse"),
            "spark.sql.catalogImplementation": "in-memory",
        }
        | connector_settings(formats)
    )


def has_jars(formats: Collection[str]) -> bool:
    """Returns whether the jars of all these formats are here; otherwise Spark downloads them when it starts."""
    return all(jars_of(kind) for kind in spark_formats().values() if kind.name in formats)


def connector_settings(formats: Collection[str]) -> dict[str, str]:
    """Returns the jars of connectors: local ones, or, for the ``formats`` that are needed, as Spark downloads them; and
    the settings of those formats.
    """
    wanted = [kind for kind in spark_formats().values() if kind.name in formats or not kind.settings]
    local = {kind.name: jars_of(kind) for kind in wanted}
    found = ",".join(str(jar) for jars in local.values() for jar in jars)
    missing = ",".join(k.package for k in wanted if not local[k.name] and k.name in formats)
    settings = {name: value for kind in wanted for name, value in kind.settings.items()}
    return (
        settings
        | ({"spark.jars": found} if found else {})
        | ({"spark.jars.packages": missing} if missing else {})
    )


def _launch(master: str, settings: Mapping[str, str], classes: str, log: Path) -> None:
    """Starts the JVM, with an archive of classes if there is one; should Java not start with it, without. It prints to
    the log file.
    """
    from pyspark import SparkConf

    options = settings[_DRIVER_OPTIONS]
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as out:
        for tried in (f"{options} {classes}", options):
            conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
            try:
                internals.launch(conf.set(_DRIVER_OPTIONS, tried), out)
                return
            except Exception:
                if not classes or tried == options:
                    raise


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Restores the program's handler of Ctrl-C, which PySpark replaces when it starts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _stop(session: SparkSession) -> None:
    with suppress(Exception):  # the JVM may be gone already at exit
        session.stop()
