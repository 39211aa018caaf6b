from __future__ import annotations

import io
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from millpond.cli.output import Format, Printer
from millpond.cli.values import to_cell, to_csv, to_json

TABLE = pa.table(
    {
        "id": [1, 20],
        "name": ["ä", None],
        "price": pa.array([Decimal("1.50"), Decimal("-12345678901234567890.10")], pa.decimal128(22, 2)),
    }
)


def printed(format: Format, *tables: pa.Table) -> str:
    out = io.StringIO()
    printer = Printer(format, out)
    for table in tables:
        printer.answer(table)
    return out.getvalue()


def test_a_table_aligns_numbers_right_and_shows_all_digits():
    assert printed(Format.table, TABLE).splitlines() == [
        "id │ name │                    price",
        "───┼──────┼─────────────────────────",
        " 1 │ ä    │                     1.50",
        "20 │ NULL │ -12345678901234567890.10",
        "(2 rows)",
        "",
    ]


def test_json_writes_decimals_as_exact_numbers():
    assert printed(Format.json, TABLE).splitlines() == [
        '{"id":1,"name":"ä","price":1.50}',
        '{"id":20,"name":null,"price":-12345678901234567890.10}',
    ]


def test_csv_tells_null_from_the_empty_string():
    table = pa.table({"a": ["", None, 'x"y', "p,q"], "b": [True, False, None, True]})
    assert printed(Format.csv, table).splitlines() == ["a,b", '"",true', ",false", '"x""y",', '"p,q",true']


def test_equal_column_names_keep_their_place():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    assert printed(Format.csv, table) == "id,id\n1,2\n"
    assert printed(Format.json, table) == '{"id":1,"id_1":2}\n'


def test_nothing_is_cut_where_the_output_is_no_terminal():
    long = "x" * 5000
    assert long in printed(Format.table, pa.table({"a": [long], "b": [long]}))


def test_wide_characters_take_two_places():
    lines = printed(Format.table, pa.table({"a": ["水車", "ab"], "b": [1, 2]})).splitlines()
    assert lines[2:4] == ["水車 │ 1", "ab   │ 2"]


def test_a_running_query_shows_its_header_once_and_when_another_was_between():
    out = io.StringIO()
    printer = Printer(Format.csv, out)
    for query, value in (("q", 1), ("q", 2), ("r", 3), ("q", 4)):
        printer.live(query, pa.table({query: [value]}))
    assert out.getvalue().split() == ["q", "1", "2", "r", "3", "q", "4"]


def test_a_running_query_keeps_its_columns_in_line():
    out = io.StringIO()
    printer = Printer(Format.table, out)
    printer.live("q", pa.table({"n": ["wide value"], "i": [1]}))
    printer.live("q", pa.table({"n": ["x"], "i": [2]}))
    assert out.getvalue().splitlines()[2:] == ["wide value │ 1", "x          │ 2"]


@pytest.mark.parametrize(
    ("value", "cell", "json", "csv"),
    [
        (None, "NULL", "null", ""),
        (True, "true", "true", "true"),
        ("a\x1b[31m\n", "a\\x1b[31m\\n", '"a\\u001b[31m\\n"', '"a\x1b[31m\n"'),
        (Decimal("1E+3"), "1000", "1000", "1000"),
        (float("nan"), "nan", '"NaN"', "NaN"),
        (float("-inf"), "-inf", '"-Infinity"', "-Infinity"),
        (date(2026, 1, 5), "2026-01-05", '"2026-01-05"', "2026-01-05"),
        (
            datetime(2026, 1, 5, 9, 30, 0, 500000, tzinfo=UTC),
            "2026-01-05 09:30:00.5",
            '"2026-01-05T09:30:00.500000Z"',
            "2026-01-05T09:30:00.500000Z",
        ),
        (b"\x00\xff", "00FF", '"AP8="', "AP8="),
        ([1, None], "[1,null]", "[1,null]", '"[1,null]"'),
        ({"a": Decimal("0.10")}, '{"a":0.10}', '{"a":0.10}', '"{""a"":0.10}"'),
    ],
)
def test_values(value, cell, json, csv):
    assert (to_cell(value), to_json(value), to_csv(value)) == (cell, json, csv)
