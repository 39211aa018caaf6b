"""Runs interactive queries on Spark: a client can cancel them, and their results have a maximum size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond import allowance, steps
from millpond.allowance import Allowance
from millpond.engine.collect import collect, schema_of
from millpond.engine.failures import explain, unknown_type
from millpond.engine.functions import register
from millpond.engine.internals import java_frame
from millpond.engine.row_transfer import to_frame
from millpond.engine.session import new_session
from millpond.errors import Error
from millpond.types import normal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_IN_JOBS = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in ("ConstantFolding", "ConvertToLocalRelation")
)
"""Optimizer rules that evaluate expressions while Spark plans, where nothing can cancel them. In a job they can be
cancelled.
"""
_numbers = itertools.count(1)


def ask(spark: SparkSession, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Returns the result of a Spark query over named Arrow tables."""
    steps.run_by("spark")
    limit = allowance.current()
    session = new_session(spark)
    try:
        with _tagged(session):
            for name, rows in tables.items():
                to_frame(session, rows).createOrReplaceTempView(name)
            register(session, sql)
            if limit is None:
                return _known(collect(session.sql(sql)))
            session.conf.set("spark.sql.optimizer.excludedRules", _IN_JOBS)
            return _known(_collect(session.sql(sql), limit))
    except Error:
        raise
    except Exception as error:
        allowance.check()  # it may have failed because it was cancelled
        raise explain(error) from error


def _known(rows: pa.Table) -> pa.Table:
    """Returns the rows, if all their types are known here."""
    for field in rows.schema:
        try:
            normal(field.type)
        except TypeError:
            raise unknown_type("Time") from None
    return rows


@contextmanager
def _tagged(session: SparkSession) -> Iterator[None]:
    """Makes the jobs that this thread starts cancellable."""
    if allowance.current() is None:
        yield
        return
    context, tag = session.sparkContext, f"millpond-{next(_numbers)}"
    with allowance.ending(lambda: context.cancelJobsWithTag(tag)):
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)
        try:
            yield
        except BaseException:
            context.cancelJobsWithTag(tag)
            raise
        finally:
            context.removeJobTag(tag)
            context.setInterruptOnCancel(False)


def _collect(frame: DataFrame, limit: Allowance) -> pa.Table:
    """Returns all rows, or stops at the first that is too many."""
    from pyspark.sql.pandas.serializers import ArrowCollectSerializer
    from pyspark.util import _load_from_socket

    schema = schema_of(frame)
    if limit.rows is not None:
        frame = frame.limit(limit.rows + 1)
    port, secret, server = java_frame(frame).collectAsArrowToPython()
    batches: list[pa.RecordBatch] = []
    order: list[int] = []
    rows = size = 0
    with _load_from_socket((port, secret), ArrowCollectSerializer()) as stream:  # type: ignore[no-untyped-call]
        for found in stream:
            if isinstance(found, pa.RecordBatch):
                batches.append(found)
                rows, size = rows + found.num_rows, size + found.nbytes
                limit.check_size(rows, size)
            else:
                order = list(found)
    server.getResult()  # raises the error of the job
    return pa.Table.from_batches([batches[i] for i in order], None if batches else schema).cast(schema)
