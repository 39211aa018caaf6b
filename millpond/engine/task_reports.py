"""Collects what tasks of Spark report, by an accumulator. A task that runs twice reports twice, which does no harm."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

Reported = dict[int, dict[int, Any]]
_numbers = itertools.count(1)
_lock = threading.Lock()
_making = threading.Lock()
_reports: list[tuple[SparkContext, Accumulator[Any]]] = []


class _Joined:
    """Joins the reports of tasks, by the number of the work and of the task, as an AccumulatorParam of Spark."""

    def zero(self, value: Reported) -> Reported:
        return {}

    def addInPlace(self, value1: Reported, value2: Reported) -> Reported:
        with _lock:
            for number, tasks in value2.items():
                value1.setdefault(number, {}).update(tasks)
        return value1


def new_number() -> int:
    """Returns a number for some work whose tasks report."""
    return next(_numbers)


def reports_of(spark: SparkSession) -> Accumulator[Any]:
    """Returns the reports of all tasks: one for every context, as Spark never forgets one."""
    context = spark.sparkContext
    with _making:
        for known, reports in _reports:
            if known is context:
                return reports
        made: Accumulator[Any] = context.accumulator({}, _Joined())  # type: ignore[arg-type]
        _reports[:] = [(context, made)]
    return made


def reported(reports: Accumulator[Any], number: int) -> dict[int, Any]:
    """Returns what the tasks of some work have reported, by their numbers."""
    found = reports.value
    with _lock:
        return dict(found.get(number, {}))


def taken(reports: Accumulator[Any], number: int) -> dict[int, Any]:
    """Returns what the tasks of some work have reported, and forgets it."""
    found = reports.value
    with _lock:
        return dict(found.pop(number, {}))
