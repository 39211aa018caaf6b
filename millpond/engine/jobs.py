"""Names the jobs that Spark runs for a statement, puts them into a scheduler pool of the statement, and cancels them.

So Spark tells them apart in its pages and logs, and those of a heavy statement do not hold the others.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from logging import LogRecord
from typing import TYPE_CHECKING

from millpond.engine.internals import active_context
from millpond.errors import Closed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_statement: ContextVar[str | None] = ContextVar("statement", default=None)
_numbers = itertools.count(1)
_PROPERTIES = ("spark.job.description", "spark.scheduler.pool")


@contextmanager
def working_for(statement: str) -> Iterator[None]:
    """Says which statement the work inside is for."""
    before = _statement.set(statement)
    try:
        yield
    finally:
        _statement.reset(before)


def is_for_a_statement(record: LogRecord) -> bool:
    """Returns whether something is logged by work for a statement."""
    return _statement.get() is not None


@contextmanager
def named(spark: SparkSession) -> Iterator[None]:
    """Gives the jobs that this thread starts the name and the pool of the statement that it works for."""
    name, context = _statement.get(), spark.sparkContext
    if name is None:
        yield
        return
    before = [(p, context.getLocalProperty(p)) for p in _PROPERTIES]
    for key in _PROPERTIES:
        context.setLocalProperty(key, name)
    try:
        yield
    finally:
        with suppress(Exception):  # the Java process may be gone
            for key, value in before:
                context.setLocalProperty(key, value)  # type: ignore[arg-type]


class Cancellable:
    """Represents work on Spark, in any number of threads, that another thread can cancel for good."""

    def __init__(self) -> None:
        self._tag = f"millpond-work-{next(_numbers)}"
        self._lock = threading.Lock()
        self._running = 0
        self._cancelled = False

    @contextmanager
    def running(self, spark: SparkSession) -> Iterator[None]:
        """Runs jobs in this thread. Raises Closed if the work is cancelled, or was."""
        context = spark.sparkContext
        with self._lock:
            self._running += 1
        context.addJobTag(self._tag)
        context.setInterruptOnCancel(True)
        try:
            self._check()
            yield
        except Exception as error:
            if not isinstance(error, Closed):
                self._check()
            raise
        finally:
            with suppress(Exception):  # the Java process may be gone
                context.removeJobTag(self._tag)
                context.setInterruptOnCancel(False)
            with self._lock:
                self._running -= 1

    def _check(self) -> None:
        if self._cancelled:
            raise Closed("the work was cancelled", hint="run it again")

    def cancel(self) -> bool:
        """Cancels the current jobs, and all later ones; returns whether something still runs. A job may just have
        begun: it is called until nothing does.
        """
        self._cancelled = True
        if self._running and (context := active_context()) is not None:
            with suppress(Exception):  # the Java process may be gone
                context.cancelJobsWithTag(self._tag)
        return self._running > 0
