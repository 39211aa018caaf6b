"""What Spark says of expressions over the relation ``t``: their types, or why not, and their values row by row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j import java_gateway
from py4j.protocol import Py4JError, Py4JJavaError, get_return_value
from pyspark.sql.classic.column import Column
from pyspark.sql.types import StructType

from millpond.engine import jvm
from millpond.engine.collect import collect
from tests.oracle.cells import RAISED, Refused, cells
from tests.oracle.values import relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONDITION = re.compile(r"\[([A-Z0-9_.]+)\]\s*([^\n]*)")
TOGETHER = 40
"""How many expressions are analysed at once where none is expected to be refused."""
FEW = 8
"""How many aggregates are evaluated at once, as one that fails takes all with it."""
_BETWEEN = "\x01"
_SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""An expression over some rows is evaluated, not compiled."""


class SparkEnded(Exception):
    """An expression ended the process in which Spark runs."""


@dataclass(frozen=True)
class Analysed:
    """An expression as Spark's analyser has it: its type, and its tree, if that can be had, without what does not
    matter."""

    type: str
    tree: Callable[[], Any] | None

    def same(self, other: Analysed) -> bool:
        if self.type != other.type or self.tree is None or other.tree is None:
            return False
        return bool(self.tree().equals(other.tree()))


def _tree(outputs: Any, at: int) -> Any:
    return outputs.apply(at).child().canonicalized()


class SparkSide:
    """Analyses and evaluates many expressions over the rows of ``t`` at a time. A row on which one fails does not keep
    the others from their values: each is wrapped in what makes ``try_`` functions of others."""

    def __init__(self, spark: SparkSession):
        spark = self.spark = spark.newSession()
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        self.rows: pa.Table = spark.sql(relation()).toArrow()
        schema = spark.sql(relation()).schema
        self.frame = spark.createDataFrame(self.rows, schema=schema).alias("t")
        session, jvm = spark._jsparkSession, spark._jvm
        assert jvm is not None
        self._parser = session.sessionState().sqlParser()
        self._try = jvm.org.apache.spark.sql.catalyst.expressions.TryEval
        # Each call of the JVM costs more than what it does: many texts go there as one.
        self._split = jvm.java.util.regex.Pattern.compile(_BETWEEN).split
        self._column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column

    def analyse(self, texts: Sequence[str], together: int = TOGETHER) -> list[Analysed | Refused]:
        """Each expression analysed. Where one of many is refused, they are halved."""
        if len(texts) > together:
            parts = (texts[at : at + together] for at in range(0, len(texts), together))
            return [found for part in parts for found in self.analyse(part, together)]
        if not texts:
            return []
        try:
            with _plain_errors():
                return self._analysed(texts)
        except Py4JError as error:
            self._check_alive(error, texts)
            if not isinstance(error, Py4JJavaError):
                raise
            if len(texts) == 1:
                return [Refused(condition(error))]
            half = len(texts) // 2
            return [*self.analyse(texts[:half], together), *self.analyse(texts[half:], together)]

    def _analysed(self, texts: Sequence[str]) -> list[Analysed | Refused]:
        named = _BETWEEN.join(f"({text}) AS c{i}" for i, text in enumerate(texts))
        frame = self.frame._jdf.selectExpr(self._split(named))
        plan = frame.queryExecution().analyzed()
        # An aggregate makes another node than a projection.
        outputs = plan.projectList() if plan.nodeName() == "Project" else None
        schema = StructType.fromJson(json.loads(frame.schema().json()))
        return [
            Analysed(field.dataType.simpleString(), None if outputs is None else partial(_tree, outputs, i))
            for i, field in enumerate(schema)
        ]

    def values(self, texts: Sequence[str]) -> list[list[Any]]:
        """The values of each, row by row, RAISED where a row fails."""
        columns = [self.frame["k"]]
        for at, text in enumerate(texts):
            tried = self._try(self._parser.parseExpression(f"named_struct('v', IF(k < 0, NULL, {text}))"))
            columns.append(Column(self._column(tried)).alias(f"c{at}"))
        try:
            return cells(collect(self.frame.select(*columns)))
        except Exception as error:
            self._check_alive(error, texts)
            if len(texts) == 1:
                return [[RAISED] * self.rows.num_rows]
            half = len(texts) // 2
            return [*self.values(texts[:half]), *self.values(texts[half:])]

    def error(self, text: str, row: int | None) -> str | None:
        """What Spark says when an expression fails on a row, or on any."""
        try:
            collect(self._one(text, row))
        except Exception as error:
            self._check_alive(error, [text])
            found = _CONDITION.search(str(error))
            return f"[{found[1]}] {found[2]}" if found else str(error).splitlines()[0]
        return None

    def _check_alive(self, error: Exception, texts: Sequence[str]) -> None:
        """Raises SparkEnded with the texts, one of which did it, if Spark's process is gone."""
        if jvm.lost(error) is not None:
            raise SparkEnded("one of these ended Spark's process:\n" + "\n".join(texts)) from error

    def _one(self, text: str, row: int | None) -> DataFrame:
        frame = self.frame if row is None else self.frame.where(f"k = {row}")
        return frame.selectExpr(f"({text}) AS c")


class SparkGroups(SparkSide):
    """What Spark says of aggregates over the groups of ``t``."""

    def __init__(self, spark: SparkSession):
        super().__init__(spark)
        # One partition in the order of k: lists are made in that order.
        self.frame.coalesce(1).sortWithinPartitions("k").createOrReplaceTempView("t")

    def _analysed(self, texts: Sequence[str]) -> list[Analysed | Refused]:
        frame = self.spark._jsparkSession.sql(
            f"SELECT {', '.join(f'{text} AS c{i}' for i, text in enumerate(texts))} FROM t GROUP BY g"
        )
        schema = StructType.fromJson(json.loads(frame.schema().json()))
        return [Analysed(field.dataType.simpleString(), None) for field in schema]

    def values(self, texts: Sequence[str]) -> list[list[Any]]:
        """The values of each, group by group, RAISED for all if one fails. Beside one with DISTINCT the lists of the
        others would have another order: these are asked for by themselves."""
        apart = [[t for t in texts if ("DISTINCT" in t) is distinct] for distinct in (False, True)]
        if all(apart):
            found = {t: v for part in apart for t, v in zip(part, self.values(part), strict=True)}
            return [found[text] for text in texts]
        if len(texts) > FEW:
            parts = (texts[at : at + FEW] for at in range(0, len(texts), FEW))
            return [found for part in parts for found in self.values(part)]
        columns = "".join(f", named_struct('v', {text}) AS c{i}" for i, text in enumerate(texts))
        try:
            return cells(collect(self.spark.sql(f"SELECT g AS k{columns} FROM t GROUP BY g")))
        except Exception as error:
            self._check_alive(error, texts)
            if len(texts) == 1:
                return [[RAISED]]
            half = len(texts) // 2
            return [*self.values(texts[:half]), *self.values(texts[half:])]

    def _one(self, text: str, row: int | None) -> DataFrame:
        return self.spark.sql(f"SELECT {text} AS c FROM t GROUP BY g")


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors of the JVM as they are: making PySpark's of them costs more than the analysis."""
    own = java_gateway.get_return_value
    java_gateway.get_return_value = get_return_value
    try:
        yield
    finally:
        java_gateway.get_return_value = own


def condition(error: Py4JJavaError) -> str:
    """``[CONDITION] message`` of an error of Spark."""
    said = str(error.java_exception.getMessage())
    found = _CONDITION.search(said)
    return f"[{found[1]}] {found[2]}" if found else said.splitlines()[0]
