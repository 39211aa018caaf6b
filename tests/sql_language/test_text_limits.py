"""Texts that are too long, too deep or too wide: they work, or are refused with a place and a hint."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from millpond import App
from millpond.errors import Error, InvalidRecord, SqlError, SqlSyntaxError
from millpond.sql.limits import CLIENTS, OWN, TextLimits
from millpond.sql.parse import parse, parse_condition
from millpond.sql.printer import print_statement

# Each makes a text of a size.
DEEP: dict[str, Callable[[int], str]] = {
    "plus": lambda n: "SELECT " + " + ".join(["1"] * n),
    "minus": lambda n: "SELECT " + "- " * n + "1",
    "concat": lambda n: "SELECT " + " || ".join(["s"] * n) + " FROM t",
    "compare": lambda n: "SELECT " + " = ".join(["true"] * n),
    "not": lambda n: "SELECT " + "NOT " * n + "true",
    "casts": lambda n: "SELECT 1" + "::int" * n,
    "dots": lambda n: "SELECT s" + ".a" * n + " FROM t",
    "brackets": lambda n: "SELECT a" + "[0]" * n + " FROM t",
    "union": lambda n: " UNION ALL ".join(["SELECT 1 AS a"] * n),
    "except": lambda n: " EXCEPT ".join(["SELECT 1 AS a"] * n),
    "parentheses": lambda n: "SELECT " + "(" * n + "1" + ")" * n,
    "functions": lambda n: "SELECT " + "abs(" * n + "1" + ")" * n,
    "case": lambda n: "SELECT " + "CASE WHEN true THEN " * n + "1" + " ELSE 0 END" * n,
    "subqueries": lambda n: "SELECT * FROM " + "(SELECT * FROM " * n + "t" + ")" * n,
    "scalars": lambda n: "SELECT " + "(SELECT " * n + "1" + ")" * n,
    "exists": lambda n: "SELECT 1 WHERE " + "EXISTS (SELECT 1 WHERE " * n + "true" + ")" * n,
    "in": lambda n: "SELECT id FROM t WHERE id" + " IN (SELECT id FROM t WHERE id" * n + " > 0" + ")" * n,
    "arrays": lambda n: "SELECT " + "array(" * n + "1" + ")" * n,
    "structs": lambda n: "SELECT " + "struct(" * n + "1" + ")" * n,
    "types": lambda n: "SELECT CAST(NULL AS " + "ARRAY<" * n + "INT" + ">" * n + ")",
    "columns": lambda n: "CREATE TABLE u (c " + "ARRAY<" * n + "INT" + ">" * n + ")",
    "lambdas": lambda n: "SELECT " + "transform(a, x -> " * n + "1" + ")" * n + " FROM t",
    "windows": lambda n: "SELECT " + "SUM(" * n + "1" + ") OVER ()" * n,
    "intervals": lambda n: "SELECT " + "- " * n + "INTERVAL 1 DAY",
    "between": lambda n: "SELECT " + "1 BETWEEN 0 AND " * n + "1",
    "explain": lambda n: "EXPLAIN " * n + "SELECT 1",
    "with": lambda n: "WITH a AS (" * n + "SELECT 1 AS x" + ") SELECT x FROM a" * n,
    "values": lambda n: "INSERT INTO t (id) VALUES (" + "(" * n + "1" + ")" * n + ")",
    "where": lambda n: "DELETE FROM t WHERE id = " + " + ".join(["1"] * n),
    "set": lambda n: "UPDATE t SET s = " + "upper(" * n + "s" + ")" * n,
}
WIDE: dict[str, Callable[[int], str]] = {
    "or": lambda n: "SELECT id FROM t WHERE " + " OR ".join(f"id = {i}" for i in range(n)),
    "and": lambda n: "SELECT id FROM t WHERE " + " AND ".join(f"id <> {-1 - i}" for i in range(n)),
    "list": lambda n: "SELECT id FROM t WHERE id IN (" + ", ".join(map(str, range(n))) + ")",
    "select": lambda n: "SELECT " + ", ".join(f"id + {i} AS c{i}" for i in range(n)) + " FROM t",
    "when": lambda n: "SELECT CASE " + " ".join(f"WHEN id = {i} THEN {i}" for i in range(n)) + " END FROM t",
    "concat": lambda n: "SELECT concat(" + ", ".join(["s"] * n) + ") FROM t",
}


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    with App(
        "CREATE TABLE t (id INT PRIMARY KEY, s STRING, a ARRAY<INT>); INSERT INTO t VALUES (1, 'x', array(1))"
    ) as app:
        yield app


def refused(call: Callable[[], Any]) -> SqlError:
    with pytest.raises(SqlError) as e:
        call()
    return e.value


@pytest.mark.parametrize("count", [1_000, 10_000])
@pytest.mark.parametrize("shape", DEEP)
def test_what_is_too_deep_is_refused(app: App, shape: str, count: int) -> None:
    error = refused(lambda: app.sql(DEEP[shape](count)))
    assert "nested too deeply" in error.message or "not expected here" in error.message
    if "nested" in error.message:
        assert error.hint and error.line == 1 and error.column and error.column < 10_000


@pytest.mark.parametrize("shape", [s for s in DEEP if s not in ("lambdas", "columns", "intervals")])
def test_no_depth_takes_more_calls_than_there_are(app: App, shape: str) -> None:
    """Just below the limits a statement works, or is refused for its own reasons: in a thread with a deep stack too."""
    found: list[BaseException] = []

    def run(calls: int = 300) -> None:
        if calls:
            return run(calls - 1)
        for count in (4, 14, 28, OWN.depth // 2, OWN.depth - 2):
            try:
                app.sql(DEEP[shape](count))
            except Error as error:
                assert "internal" not in error.message
            except BaseException as error:
                found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not found


@pytest.mark.parametrize("shape", WIDE)
def test_what_is_only_wide_works(app: App, shape: str) -> None:
    assert app.sql(WIDE[shape](600)).to_arrow().num_rows == 1


def test_chains_of_and_and_or_mean_the_same_and_print_back(app: App) -> None:
    for word in ("AND", "OR"):
        for count in (2, 16, 17, 100, 1_001):
            parts = [f"id = {i}" if i % 3 else f"(id > {i} AND s = 'x')" for i in range(count)]
            (statement,) = parse(f"SELECT id FROM t WHERE {f' {word} '.join(parts)}").require()
            assert parse(print_statement(statement)).require() == (statement,)
    rows = [{"id": i, "s": "x", "a": [i]} for i in range(50)]
    with App("CREATE TABLE t (id INT PRIMARY KEY, s STRING, a ARRAY<INT>)") as own:
        own.table("t").bulk_insert(rows)
        odd = " OR ".join(f"id = {i}" for i in range(1, 50, 2))
        assert own.sql(f"SELECT COUNT(*) AS n FROM t WHERE {odd}").rows() == [{"n": 25}]
        none = " AND ".join(f"id <> {i}" for i in range(40))
        assert own.sql(f"SELECT MIN(id) AS n FROM t WHERE {none}").rows() == [{"n": 40}]
        assert own.sql(f"SELECT COUNT(*) AS n FROM t WHERE {none} OR {odd}").rows() == [{"n": 30}]


def test_each_limit_has_its_place(app: App) -> None:
    limits = TextLimits(length=200, words=20, depth=5, inputs=3, statements=2)
    texts = {
        "characters": ("SELECT\n  '" + "x" * 300 + "'", 2, 194),
        "words and signs, and at most": ("SELECT 1,\n" + "1, " * 15 + "1", 2, 26),
        "more than 20 words and signs": ("SELECT 1,\n" + "1, " * 30 + "1", 2, 58),
        "levels": ("SELECT\n((((((1))))))", 2, 5),
        "tables and subqueries": ("SELECT 1 FROM a,\nb,\nc,\nd", None, None),
        "statements": ("SELECT 1;\nSELECT 2;\n SELECT 3", 3, 2),
    }
    for what, (text, line, column) in texts.items():
        error = refused(lambda text=text: parse(text, {}, limits).require())
        assert what in error.message and error.hint, error.message
        if line is not None:
            assert (error.line, error.column) == (line, column), what
        assert len(str(error)) < 1_000


def test_conditions(app: App) -> None:
    table = app.table("t")
    for condition in (
        "(" * 500 + "true" + ")" * 500,
        "id = " + " + ".join(["1"] * 5_000),
        "NOT " * 500 + "true",
        "id IN " + "(SELECT id FROM t WHERE id IN " * 40 + "(1)" + ")" * 40,
    ):
        assert "nested too deeply" in refused(lambda c=condition: table.compile_condition(c)).message
    assert "characters" in refused(lambda: parse_condition("x" * (CLIENTS.length + 1))).message
    many = " OR ".join(f"id = {i}" for i in range(2_000))
    assert [row["id"] for row in table.sql_filter(many)] == [1]


@pytest.mark.parametrize(
    "number",
    [
        "1e999999999",
        "1E+309",
        "9" * 39,
        "9" * 10_000,
        "0." + "1" * 40,
        "1" * 20 + "." + "1" * 20,
        "1.8e308",
        "1e" + "9" * 30,
        "12345e305",
    ],
)
def test_numbers_that_no_type_holds(app: App, number: str) -> None:
    for text in (f"SELECT\n {number} AS x", f"SELECT\n {number}"):
        error = refused(lambda text=text: app.sql(text))
        assert isinstance(error, SqlSyntaxError) and "number" in error.message
        assert (error.line, error.column) == (2, 2) and error.hint


def test_numbers_that_fit(app: App) -> None:
    for number in ("1e308", "1e-999999999", "0" * 100 + "1", "9" * 38, "0." + "1" * 37, "000.5", "1.7e308"):
        assert app.sql(f"SELECT {number} AS x").to_arrow().num_rows == 1


@pytest.mark.parametrize(
    "value", [Decimal("1e999999999"), Decimal("1e-999999999"), 10**40, Decimal("1." + "1" * 60)]
)
def test_parameters_that_no_type_holds(app: App, value: Any) -> None:
    with pytest.raises(InvalidRecord, match="digits"):
        app.sql("SELECT ? AS x", [value])
    with pytest.raises(InvalidRecord, match="digits"):
        app.sql("SELECT id FROM t WHERE id = :v", {"v": value})


def test_intervals_of_a_billion_digits() -> None:
    with pytest.raises(Error) as e:
        App(
            "CREATE STREAM a (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);"
            "CREATE STREAM b (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);"
            "CREATE TABLE c AS SELECT a.k FROM a JOIN b ON a.k = b.k "
            "AND a.ts BETWEEN b.ts AND b.ts + INTERVAL '1e999999999' SECOND",
            _direct=True,
        )
    assert "internal" not in e.value.message
