"""Every function over every type in every argument: what is refused, and all types, are as in Spark's analyser."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from millpond.sql.functions import Aggregate, by_name, known_functions, wrong_number
from tests.oracle.cells import Refused
from tests.oracle.compare import plain_type
from tests.oracle.generate import POOLS_OF, Function, functions
from tests.oracle.our_side import OurSide
from tests.oracle.spark_side import SparkSide
from tests.oracle.values import KINDS, TYPES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBER = re.compile(r"WRONG_NUM_ARGS|REQUIRED_PARAMETER_NOT_FOUND")
_LITERALS = {"i": "1", "c": "1", "s": "'a'", "dt": "DATE '2024-01-01'"}
_ELEMENTS = {"ai": "i32_1", "as": "s_1", "ad": "d_1", "aa": "ai_1"}


def _calls(function: Function) -> Iterator[str]:
    """The function with each argument of each type in its turn, the others as it takes them."""
    usual: list[str] = []
    for kind in function.arguments:
        usual.append(_usual(kind, usual))
    for count in range(function.fewest, len(usual) + 1):
        yield f"{function.name}({', '.join(usual[:count])})"
    for at, kind in enumerate(function.arguments):
        if kind.startswith((":", "<")) and kind not in ("<format>", "<zone>", "<place>"):
            continue
        for dtype in (*TYPES, "NULL"):
            given = [*usual]
            given[at] = dtype if dtype == "NULL" else f"{dtype}_1"
            yield f"{function.name}({', '.join(given[: max(function.fewest, at + 1)])})"


def _usual(kind: str, before: list[str]) -> str:
    if kind.startswith(":"):
        return kind[1:]
    if kind.startswith("<"):
        return POOLS_OF[kind[1:-1]][0]
    if kind.startswith("="):
        return before[int(kind[1:]) - 1]
    if kind == "e":
        return _ELEMENTS[before[0][:2]]
    return f"{KINDS[kind][0]}_1"


def _every_call() -> list[str]:
    return list(dict.fromkeys(c for f in functions("functions") for c in _calls(f)))


def test_some_types_in_every_argument(spark: SparkSession) -> None:
    _check(spark, random.Random(0).sample(_every_call(), 1000))


@pytest.mark.chaos
def test_every_type_in_every_argument(spark: SparkSession) -> None:
    _check(spark, _every_call())


def _check(spark: SparkSession, calls: list[str]) -> None:
    theirs, wrong = SparkSide(spark), []
    ours = OurSide(theirs.rows)
    known, others = [], []
    for call in calls:
        found = ours.read(call)
        (others if isinstance(found, Refused) or found.type is None else known).append((call, found))
    for group, together in ((known, 40), (others, 1)):
        answers = theirs.analyse([call for call, _ in group], together)
        for (call, mine), spark_says in zip(group, answers, strict=True):
            if isinstance(mine, Refused):
                if not isinstance(spark_says, Refused):
                    wrong.append(f"{call}: refused, {mine.why}; Spark has {spark_says.type}")
            elif mine.type is not None:
                told = (
                    f"nothing, {spark_says.why}"
                    if isinstance(spark_says, Refused)
                    else plain_type(spark_says.type)
                )
                if told != mine.type:
                    wrong.append(f"{call}: {mine.type}; Spark has {told}")
    assert not wrong, f"{len(wrong)} of {len(calls)}:\n" + "\n".join(line[:200] for line in wrong)


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.chaos)])
def test_numbers_of_arguments(spark: SparkSession, step: int) -> None:
    """How many arguments each function takes, or every tenth of them, is what Spark says."""
    theirs, wrong = SparkSide(spark), []
    # Spark looks at these first as something else, or not at all; with OVER; or with a word for a unit.
    apart = {*"cast try_cast extract hour minute second collect covar kafka_topic trim position".split()}
    apart |= {"cume_dist", "lag", "lead", "date_add", "dateadd", "date_diff", "datediff"}
    for name in sorted(known_functions() - apart)[::step]:
        for count in range(5):
            (said,) = theirs.analyse([f"`{name}`({', '.join(['NULL'] * count)})"], 1)
            refused = isinstance(said, Refused) and bool(_NUMBER.search(said.why))
            unknown = isinstance(said, Refused) and ("ROUTINE" in said.why or "NOT_A_SCALAR" in said.why)
            if not unknown and refused != (wrong_number(name, count) is not None):
                wrong.append(f"{name} with {count}: {said}")
    assert not wrong, "\n".join(wrong)


def test_aggregates(spark: SparkSession) -> None:
    """Which functions are aggregates is what Spark says."""
    registry = spark._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry  # type: ignore[union-attr]
    builtin, found = registry.builtin(), set()
    names = builtin.listFunction().iterator()
    while names.hasNext():
        name = names.next()
        info = builtin.lookupFunction(name)
        if info.isDefined() and info.get().getGroup() == "agg_funcs":
            found.add(name.unquotedString().rpartition(".")[2])
    ours = {"collect", "covar"}
    elsewhere = {"schema_of_variant_agg", "vector_avg", "vector_sum"}
    known = {name for name, function in by_name().items() if isinstance(function, Aggregate)}
    assert found - known == set()
    assert known - found - ours == elsewhere, "aggregates that Spark lists with other functions"
