"""What Spark says of the jobs that it has run: their names, pools, tasks, rows read, and bytes sent to the driver."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Stage(NamedTuple):
    """A stage of a job that was not skipped."""

    job: int
    statement: str | None
    pool: str
    tasks: int
    read: int
    """Rows that its tasks have read from a source or a file."""
    shuffled: int
    """Rows that its tasks have read from a shuffle."""
    result: int
    """Bytes of the results that its tasks have sent to the driver."""


def stages_of(spark: SparkSession, after: int = -1) -> list[Stage]:
    """Returns the stages of the jobs that Spark knows of, without those up to the job ``after``: Spark keeps a
    thousand, and each answer of its Java process takes time.
    """
    store = _store(spark)
    listed = store.jobsList(None)  # the newest first
    found = []
    for job in (listed.apply(i) for i in range(listed.size())):
        if job.jobId() <= after:
            break
        said, stages = job.description(), job.stageIds()
        for number in (stages.apply(i) for i in range(stages.size())):
            with suppress(Py4JJavaError):  # a stage that was skipped is not known
                stage = store.lastStageAttempt(number)
                found.append(
                    Stage(
                        job.jobId(),
                        said.get() if said.isDefined() else None,
                        stage.schedulingPool(),
                        stage.numTasks(),
                        stage.inputRecords(),
                        stage.shuffleReadRecords(),
                        stage.resultSize(),
                    )
                )
    return found


def last_job(spark: SparkSession) -> int:
    """Returns the number of the newest job; -1 if there is none."""
    listed = _store(spark).jobsList(None)
    numbers = [listed.apply(i).jobId() for i in (0, listed.size() - 1)] if listed.size() else [-1]
    assert numbers == sorted(numbers, reverse=True), "the newest comes first"
    return max(numbers)


def _store(spark: SparkSession) -> Any:
    context = spark.sparkContext._jsc.sc()  # type: ignore[union-attr]
    context.listenerBus().waitUntilEmpty()
    return context.statusStore()


class Jobs:
    """The jobs since now."""

    def __init__(self, spark: SparkSession):
        self._spark = spark
        self._before = last_job(spark)

    @property
    def stages(self) -> list[Stage]:
        return stages_of(self._spark, self._before)

    def of(self, statement: str) -> list[Stage]:
        """Returns the stages of the jobs of one statement."""
        return [s for s in self.stages if s.statement == statement]
