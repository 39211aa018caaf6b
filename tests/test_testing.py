"""The form of .test files, and what their runner says when a case fails."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import SqlSyntaxError
from millpond.testing import Case, CaseFailed, Mode, modes_of, parse_cases, run_case
from millpond.testing.cases import split_cells
from millpond.testing.values import matches, parse_cell, show

TABLE = "=== name\n--- app\nCREATE TABLE t (id INT PRIMARY KEY, s STRING);\nINSERT INTO t VALUES (1, 'a'), (2, NULL);\n"


def only(text: str) -> Case:
    (case,) = parse_cases(text, Path("x.test"))
    return case


def run(text: str, directory: Path, mode: Mode = "duckdb") -> None:
    run_case(only(text), mode, directory)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (None, None, "NULL"),
        (True, None, "true"),
        (12, None, "12"),
        ("12", None, '"12"'),
        ("Alice B", None, "Alice B"),
        ("", None, '""'),
        (" x", None, '" x"'),
        ("a|b", None, '"a|b"'),
        ("NULL", None, '"NULL"'),
        ("2024-01-01", None, '"2024-01-01"'),
        (0.1, pa.float64(), "0.1"),
        (0.10000000149011612, pa.float32(), "0.1"),
        (float("nan"), None, "NaN"),
        (Decimal("1E+3"), None, "1000"),
        (Decimal("1.500"), None, "1.500"),
        (b"\x00\xff", None, "0x00ff"),
        (dt.date(2024, 2, 29), None, "2024-02-29"),
        (dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC), None, "2024-02-29T01:00:00Z"),
        (dt.datetime(2024, 2, 29, 1, 0, 0, 5), None, "2024-02-29T01:00:00.000005"),
        ([1, None, "x"], None, '[1, NULL, "x"]'),
        ({"a": Decimal("1.0")}, None, '{"a": 1.0}'),
    ],
)
def test_the_text_of_a_value(value: Any, dtype: pa.DataType | None, text: str) -> None:
    assert show(value, dtype) == text
    assert matches(text, show(value, dtype))


@pytest.mark.parametrize(
    ("text", "dtype", "value"),
    [
        ("NULL", pa.string(), None),
        ("12", pa.string(), "12"),
        ("12", pa.int32(), 12),
        ("1.50", pa.decimal128(5, 2), Decimal("1.50")),
        ("1.50", pa.float64(), 1.5),
        ("true", pa.bool_(), True),
        ('"a|\\n"', pa.string(), "a|\n"),
        ("0x0f", pa.binary(), b"\x0f"),
        ('{"a": 1.10}', pa.struct([("A", pa.decimal128(5, 2))]), {"a": Decimal("1.10")}),
        ("[1.5, 2]", pa.list_(pa.float64()), [1.5, 2]),
        ("2024-01-01", pa.date32(), "2024-01-01"),
    ],
)
def test_the_value_of_a_cell(text: str, dtype: pa.DataType, value: Any) -> None:
    found = parse_cell(text, dtype)
    assert found == value and type(found) is type(value)


def test_near_numbers() -> None:
    assert matches("~220", "220.00000000000003")
    assert not matches("~220", "220.1")
    assert not matches("~220", "NULL")
    assert not matches("220", "220.0")


def test_cells() -> None:
    assert split_cells('a | "b|\\"c" | [1, 2]') == ["a", '"b|\\"c"', "[1, 2]"]
    assert split_cells("one") == ["one"]


def test_a_file_holds_cases() -> None:
    text = (
        "# a file\n\n=== one\n--- app\nCREATE STREAM s (id INT);\n"
        "=== two\n--- query\nSELECT 1\n--- rows in order\na\n1\n"
    )
    one, two = parse_cases(text, Path("x.test"))
    assert (one.name, one.line, one.has_stream, modes_of(one)) == ("one", 3, True, ("plain", "restart"))
    assert (two.name, two.line, two.has_stream, modes_of(two)) == (
        "two",
        6,
        False,
        ("duckdb", "spark", "restart"),
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("SELECT 1", 1, "begins with a case"),
        ("===\n", 1, "has a name"),
        ("=== a\n--- wuery\n", 2, '"wuery" is not a section'),
        ("=== a\n--- rows\na\n", 2, "must follow a step"),
        ("=== a\n--- query\nSELECT 1\n--- rows\na\n--- rows\na\n", 6, "must follow a step"),
        ("=== a\n--- send\nid\n1\n", 2, "needs a name"),
        ("=== a\n--- send s\nid | x\n1\n", 4, "1 cells, 2 columns"),
        ("=== a\n--- send s\nid | x\n1 |\n", 4, "columns"),
        ("=== a\n--- query\nSELECT 1\n--- error\n", 4, "error code"),
        ("=== a\n--- only spark\n", 2, "reason"),
        ("=== a\n--- advance five minutes\n", 2, "write: --- advance 5m"),
        ("=== a\n--- clock 2024-03-01T10:00:00\n", 2, "write: --- clock 2024-03-01T10:00:00Z"),
        ("=== a\n--- advance 5m\nSELECT 1\n", 2, "nothing stands below advance"),
    ],
)
def test_a_wrong_file(text: str, line: int, message: str) -> None:
    with pytest.raises(SqlSyntaxError, match=message) as caught:
        parse_cases(text, Path("x.test"))
    assert caught.value.line == line


def test_rows_of_a_cache_end_by_the_clock_of_the_case(tmp_path: Path) -> None:
    held = "--- query\nSELECT * FROM t\n--- rows\n"
    run(
        "=== name\n--- app\nCREATE TABLE t (id INT PRIMARY KEY) WITH ('extension' = 'cache', 'ttl' = '10m');\n"
        "INSERT INTO t VALUES (1);\n--- advance 9m\n--- sql\nINSERT INTO t VALUES (2)\n"
        f"{held}id\n1\n2\n--- advance 2m\n{held}id\n2\n",
        tmp_path,
    )


def test_time_does_not_go_back(tmp_path: Path) -> None:
    with pytest.raises(CaseFailed, match="time does not go back"):
        run("=== name\n--- advance 1s\n--- clock 2024-01-01T00:00:00Z\n", tmp_path)


def test_rows_of_tables_that_would_go_to_a_topic_are_looked_at(tmp_path: Path) -> None:
    run(TABLE + "--- sql\nINSERT INTO kafka://out SELECT id FROM t\n--- emits\nid\n1\n2\n", tmp_path, "plain")


CASES = """
=== rows that wait for a match are given up when their time is over

--- app
CREATE STREAM s (id INT, k STRING);
CREATE TABLE names (k STRING PRIMARY KEY, name STRING);
CREATE TABLE t AS SELECT s.id, n.name FROM s JOIN names n ON n.k = s.k
  WITH ('on.miss' = 'retry', 'on.miss.timeout' = '10m');

--- send s
id | k
1  | a
2  | b

--- advance 9m

--- insert names
k | name
a | Ann

--- advance 2m

--- query
SELECT * FROM t
--- rows
id | name
1  | Ann

--- query
SELECT seq, time FROM t$errors
--- rows
seq | time
1   | 2024-01-01T00:11:00Z

=== a message that cannot be decoded is put aside

--- app
CREATE STREAM orders (id BIGINT, price DECIMAL(10, 2)) WITH (
  'connector' = 'kafka://broker:9092/orders', 'format' = 'avro', 'schema.registry.url' = 'http://registry');
CREATE TABLE t (PRIMARY KEY (id)) AS SELECT * FROM orders;

--- send orders
{"id": 1, "price": 1.10}
{"id": 2, "price": "dear"}
{"id": 3

--- query
SELECT * FROM t
--- rows
id | price DECIMAL(10,2)
1  | 1.10

--- query
SELECT seq, time FROM t$errors
--- rows
seq | time
1   | 2024-01-01T00:00:00Z
2   | 2024-01-01T00:00:00Z

=== a topic that nothing is known of

--- app
CREATE TABLE t AS SELECT * FROM kafka_topic('nothing');
--- error source_empty
the case sends no rows to "kafka://nothing"
"""


@pytest.mark.parametrize("case", parse_cases(CASES, Path("x.test")), ids=lambda case: case.name)
def test_topics_and_time(case: Case, tmp_path: Path) -> None:
    run_case(case, "plain", tmp_path)


def test_a_case_that_passes(tmp_path: Path) -> None:
    run(TABLE + "--- query\nSELECT * FROM t\n--- rows\nid INT | s\n2 | NULL\n1 | a\n", tmp_path)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            "--- query\nSELECT * FROM t\n--- rows\nid | s\n1 | b\n2 | NULL\n",
            r"x\.test:7: name \[duckdb\]: expected 2 rows in any order, got 2\n"
            r"    id \| s\n    2  \| NULL\n  - 1  \| b\n  \+ 1  \| a",
        ),
        ("--- query\nSELECT * FROM t\n--- rows in order\nid | s\n2 | NULL\n1 | a\n", "in order"),
        ("--- query\nSELECT * FROM t\n--- rows\n", "expected 0 rows"),
        ("--- query\nSELECT id AS x FROM t\n--- rows\nid\n1\n", "expected the columns id; got x"),
        ("--- query\nSELECT id FROM t\n--- rows\nid BIGINT\n1\n2\n", '"id" is INT, expected BIGINT'),
        ("--- query\nSELECT nope FROM t\n--- rows\nid\n", 'query failed: 1:8: column "nope"'),
        ("--- query\nSELECT id FROM t\n--- error unknown_name\n", "there was none"),
        (
            "--- query\nSELECT nope FROM t\n--- error syntax\n",
            'expected the error "syntax", got "unknown_name"',
        ),
        ("--- query\nSELECT nope FROM t\n--- error unknown_name\nabc\n", "expected in the error: abc"),
        ("--- query\nSELECT nope FROM t\n--- error unknown_name at 1:9\n", "it is at 1:8"),
        ("--- sql\nINSERT INTO t VALUES (3, 'c')\n--- count 2\n", "expected 2 rows touched, got 1"),
        ("--- emits\n", "has 0 running SELECTs"),
    ],
)
def test_a_case_that_fails_shows_the_difference(tmp_path: Path, step: str, message: str) -> None:
    with pytest.raises(CaseFailed, match=message):
        run(TABLE + step, tmp_path)


def test_a_restart_keeps_the_state(tmp_path: Path) -> None:
    insert = "--- sql\nINSERT INTO t VALUES (3, 'c')\n--- restart\n"
    run(TABLE + insert + "--- query\nSELECT COUNT(*) AS n FROM t\n--- rows\nn\n3\n", tmp_path, "restart")


def test_only_spark_is_strict(tmp_path: Path) -> None:
    text = (
        TABLE.replace("--- app", "--- only spark: no entry\n--- app")
        + "--- query\nSELECT 1 AS a\n--- rows\na\n1\n"
    )
    assert modes_of(only(text)) == ("duckdb", "spark")
    with pytest.raises(CaseFailed, match="take the line"):
        run(text, tmp_path)
