"""Uses a Spark session that the program has made: in a notebook, or on a platform that starts Spark itself.

It is never stopped, and none of its settings change: everything here runs in sessions of its own beside it, which have
our settings and share its context. What only the start of Spark can set is checked.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.connectors.spark import SparkFormat, spark_formats
from millpond.engine import internals
from millpond.engine.cluster import SETTINGS, is_cluster, send_package
from millpond.engine.jobs import is_for_a_statement
from millpond.errors import ConnectorMissing, EngineError, InvalidOption, NotSupported

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

VERSION = "4.2"
"""The version of Spark whose answers ours are."""
_THEIRS = ("spark.sql.adaptive.", "spark.sql.catalog.", "spark.sql.shuffle.", "spark.sql.warehouse.")
"""Settings of a given session that hold for ours too: how and where, not what Spark answers."""
_lock = threading.Lock()
_sent: list[SparkContext] = []
"""The context that has our package."""
_known: tuple[SparkContext, SparkSession] | None = None


def check_given(spark: Any) -> None:
    """Raises InvalidOption or NotSupported if an app cannot use a session."""
    kind = type(spark)
    if kind.__module__.startswith("pyspark.sql.connect"):
        raise NotSupported(
            "an app cannot use a session of Spark Connect: it reads and registers in Spark's own process",
            hint="run the app in the driver's process, with a classic session: SparkSession.builder.master(…)",
        )
    from pyspark.sql import SparkSession

    if not isinstance(spark, SparkSession):
        raise InvalidOption(
            f"spark is a {kind.__name__}", hint="pass a SparkSession, or leave it out: Millpond starts Spark"
        )
    _check_runs(spark)
    if spark.version.split(".")[:2] != VERSION.split("."):
        raise NotSupported(
            f"the given session is Spark {spark.version}; Millpond supports Spark {VERSION}",
            hint=f"choose a platform, or a version of PySpark, with Spark {VERSION}",
        )
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise NotSupported(
            "the given session was started with spark.speculation: messages of a key would be written out of order",
            hint="start it with spark.speculation=false",
        )
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        raise NotSupported(
            "the given session was started with PYSPARK_PIN_THREAD=false",
            hint="unset it before Spark starts: statements run in threads of their own",
        )


def session_of(
    spark: SparkSession,
    formats: Collection[str],
    settings: Mapping[str, str],
    check: Callable[[SparkSession], None],
) -> SparkSession:
    """Returns a session beside a given one, with our ``settings``; ``check`` looks at the executors of a cluster.
    Raises ConnectorMissing if Spark was started without what the ``formats`` need, EngineError if it was stopped.
    """
    global _known
    with _lock:
        _check_runs(spark)
        context = spark.sparkContext
        if _known is None or _known[0] is not context:
            check_given(spark)
            own = prepared(spark.newSession(), settings)
            if is_cluster(context.master or ""):
                if context not in _sent:
                    directory = tempfile.mkdtemp(prefix="millpond-")  # executors fetch from there at any time
                    atexit.register(shutil.rmtree, directory, ignore_errors=True)
                    send_package(own, Path(directory))
                    _sent[:] = [context]
                check(own)
            # PySpark logs every failure of a query; those of our statements become error records, or errors of theirs.
            logging.getLogger("SQLQueryContextLogger").addFilter(_is_of_the_program)
            _known = context, own
        for name, kind in spark_formats().items():
            if name in formats:
                _check_format(kind, _known[1])
        return _known[1]


def is_given(context: SparkContext) -> bool:
    """Returns whether the program has started a context, and not Millpond."""
    return _known is not None and _known[0] is context


def active_kept(session: SparkSession) -> AbstractContextManager[None]:
    """Keeps the program's session the active one, while rows are passed to one of ours."""
    return internals.first_active(session) if is_given(session.sparkContext) else nullcontext()


def prepared(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Returns a session with our ``settings``, and else with those that Spark begins with: what the program has set for
    its own sessions does not change our answers.
    """
    for name in session.conf.getAll:
        if name.startswith("spark.sql.") and not name.startswith(_THEIRS) and session.conf.isModifiable(name):
            session.conf.unset(name)
    for name, value in settings.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    context = session.sparkContext
    if is_cluster(context.master or ""):
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
    else:
        session.conf.set("spark.sql.shuffle.partitions", str(context.defaultParallelism))
    return session


def _is_of_the_program(record: logging.LogRecord) -> bool:
    return not is_for_a_statement(record)


def _check_runs(spark: SparkSession) -> None:
    if not internals.runs(spark.sparkContext):
        raise EngineError(
            "the Spark session of the app was stopped",
            hint="make another one, and open the app again with it",
        )


def _check_format(kind: SparkFormat, session: SparkSession) -> None:
    if not internals.has_format(session, kind.name):
        raise ConnectorMissing(
            f"the given Spark session was started without {kind.package}",
            hint=f'start it with SparkSession.builder.config("spark.jars.packages", "{kind.package}"), or with these'
            " jars on its class path",
        )
