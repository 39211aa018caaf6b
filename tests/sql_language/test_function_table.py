"""The table of functions: its rows are whole and agree, and their examples hold here and on Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millpond import App
from millpond.sql.functions import Aggregate, Function, WindowFunction, base, functions
from millpond.sql.functions.base import EXAMPLE_COLUMNS, EXAMPLE_ROWS, families
from millpond.sql.grouping import contains_aggregate
from millpond.sql.parse import parse_condition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Why a function that may be called has no example: an error, bytes that nobody writes by hand, or no place to stand.
NO_EXAMPLE = {
    "raise_error": "always raises",
    "from_avro": "reads bytes",
    "to_avro": "needs a jar of Spark's",
    "schema_of_avro": "needs a jar of Spark's",
    "measure": "only in metric views",
    "window_time": "only over window()",
    "collations": "gives rows of Spark's own",
    "sql_keywords": "gives rows of Spark's own",
    **dict.fromkeys(
        "make_time time time_diff time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis "
        "time_to_seconds time_trunc to_time try_to_time".split(),
        "Spark has the type TIME switched off",
    ),
}
NOT_HERE = {
    "variant_explode": "columns of a variant are not known in FROM",
    "variant_explode_outer": "columns of a variant are not known in FROM",
}
"""Functions whose example Spark takes and Millpond does not, with the reason."""


@cache
def kinds() -> dict[str, list[Function]]:
    """The rows with examples: plain conditions, those over groups, and whole queries."""
    found: dict[str, list[Function]] = {"rows": [], "groups": [], "queries": []}
    for row in functions():
        if row.example.startswith("SELECT"):
            found["queries"].append(row)
        elif row.example:
            grouped = contains_aggregate(parse_condition(row.example))
            found["groups" if grouped else "rows"].append(row)
    return found


def wrong(rows: list[Function], ask: Callable[[str], dict[str, Any]]) -> Iterator[str]:
    """The examples that do not hold. ``ask`` gives the one row of a query, or that in which least holds."""
    for query in (False, True):
        some = [row for row in rows if row.example.startswith("SELECT") == query]
        for at in range(0, len(some), 60):
            yield from _wrong(some[at : at + 60], ask)


def _wrong(rows: list[Function], ask: Callable[[str], dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    columns = [f"({row.example}) AS {row.name}_" for row in rows]
    source = "" if rows[0].example.startswith("SELECT") else " FROM t"
    try:
        found = ask(f"SELECT {', '.join(columns)}{source}")
    except Exception as error:
        if len(rows) == 1:
            yield f"{rows[0].name}: {rows[0].example}: {type(error).__name__}: {str(error)[:300]}"
        else:
            half = len(rows) // 2
            yield from _wrong(rows[:half], ask)
            yield from _wrong(rows[half:], ask)
        return
    yield from (
        f"{row.name}: {row.example} is {found[row.name + '_']}"
        for row in rows
        if found[row.name + "_"] is not True
    )


def least(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """For each column whether it is TRUE in all rows."""
    return {name: all(row[name] is True for row in rows) for name in rows[0]}


@pytest.fixture
def app() -> Iterator[App]:
    with App(f"CREATE TABLE t ({EXAMPLE_COLUMNS}); INSERT INTO t VALUES {EXAMPLE_ROWS}") as app:
        yield app


def test_every_row_is_whole() -> None:
    for row in functions():
        assert re.fullmatch(r"[a-z]\w*", row.name) and set(row.ours) <= set(row.also), row.name
        assert row.doc.endswith((".", "…")), row.name
        assert bool(row.takes) != bool(row.arity) or row.name == "date_diff", row.name
        assert re.fullmatch(r"any|even|(\d+(-\d+|\+)?)(,\d+(-\d+)?)*", row.counts), row.name
        assert row.duckdb is None or row.takes or row.type is not None or row.node is not None, row.name
        expected = row.kind != "outside" and row.name not in NO_EXAMPLE
        assert bool(row.example) == expected, f"{row.name}: an example, or a reason in NO_EXAMPLE"


def test_a_name_is_in_one_row() -> None:
    names = [name for row in functions() for name in row.names]
    assert len(names) == len(set(names))
    assert [row.name for rows in families().values() for row in rows] == [row.name for row in functions()]


def test_every_module_is_a_family() -> None:
    files = {file.stem for file in Path(base.__file__).parent.glob("[a-z]*.py")}
    assert set(families()) == files - {"base"}


def test_rows_of_one_expression_agree() -> None:
    """The type and the form of a call are found by its expression, whichever name it was called by."""
    seen: dict[type, Function] = {}
    for row in functions():
        if row.node is not None:
            first = seen.setdefault(row.node, row)
            assert (row.type, type(row.duckdb), type(row)) == (first.type, type(first.duckdb), type(first)), (
                row.name
            )


def test_an_aggregate_with_an_expression_is_kept_in_one_way() -> None:
    for row in functions():
        if isinstance(row, Aggregate):
            assert row.keeps is None or row.lowers is None, row.name
            assert not (row.repeatable and row.keeps is None), row.name
            assert row.few is None or row.node is not None, row.name
        elif isinstance(row, WindowFunction):
            assert row.node is not None and row.duckdb is not None, row.name


@pytest.mark.parametrize("kind", ["rows", "groups", "queries"])
def test_examples_of_what_runs_in_process(app: App, kind: str) -> None:
    """Each is answered by the DuckDB form of its row, and of those that it is made of."""
    rows = [row for row in kinds()[kind] if row.duckdb is not None]

    def ask(query: str) -> dict[str, Any]:
        evaluated = "\n".join(str(line) for line in app.sql(f"EXPLAIN {query}").rows())
        assert "evaluated by: duckdb" in evaluated, evaluated
        return least(app.sql(query).rows())

    assert not list(wrong(rows, ask))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "groups", "queries"])
def test_examples_of_what_spark_is_asked(spark: SparkSession, app: App, kind: str) -> None:
    rows = [row for row in kinds()[kind] if row.duckdb is None and row.name not in NOT_HERE]
    assert not list(wrong(rows, lambda query: least(app.sql(query).rows())))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "groups", "queries"])
def test_spark_gives_the_same_for_every_example(spark: SparkSession, kind: str) -> None:
    from millpond.engine.session import new_session

    session = new_session(spark)
    names = ", ".join(column.split()[0] for column in EXAMPLE_COLUMNS.split(", "))
    session.sql(f"SELECT * FROM VALUES {EXAMPLE_ROWS} AS v({names})").createOrReplaceTempView("t")

    def ask(query: str) -> dict[str, Any]:
        return least([row.asDict() for row in session.sql(query).collect()])

    assert not list(wrong(kinds()[kind], ask))
