"""Names the jobs that Spark runs for a statement, and puts them into a scheduler pool of the statement.

So Spark tells them apart in its pages and logs, and those of a heavy statement do not hold the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from logging import LogRecord
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_statement: ContextVar[str | None] = ContextVar("statement", default=None)
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
