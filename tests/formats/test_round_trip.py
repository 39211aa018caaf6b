"""Random tables, written by other programs' writers and read back."""

from __future__ import annotations

import csv
import json
import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from millpond.formats.base import find_format
from millpond.types import TIMESTAMP, Column, Schema

pytestmark = pytest.mark.slow

TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.decimal128(38, 9): st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -9))
    ),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.date32(): st.dates(),
    TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
}
NESTED: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.list_(pa.field("element", pa.string())): st.lists(st.none() | TYPES[pa.string()], max_size=3),
    pa.struct([("x", pa.int64()), ("y", pa.date32())]): st.fixed_dictionaries(
        {"x": st.none() | TYPES[pa.int64()], "y": st.none() | st.dates()}
    ),
    pa.list_(pa.field("element", pa.decimal128(38, 9))): st.lists(TYPES[pa.decimal128(38, 9)], max_size=3),
    pa.map_(pa.string(), pa.int64()): st.dictionaries(TYPES[pa.string()], TYPES[pa.int64()], max_size=3),
}


@st.composite
def tables(draw: st.DrawFn, types: dict[pa.DataType, st.SearchStrategy[Any]]) -> pa.Table:
    chosen = draw(st.lists(st.sampled_from(list(types)), min_size=1, max_size=5))
    count = draw(st.integers(1, 20))
    columns = {"id": pa.array(range(count), pa.int64())}
    for number, dtype in enumerate(chosen):
        values = draw(st.lists(st.none() | types[dtype], min_size=count, max_size=count))
        if pa.types.is_map(dtype):
            values = [None if v is None else list(v.items()) for v in values]
        columns[f"c{number}"] = pa.array(values, dtype)
    return pa.table(columns)


def read_back(path: Path, table: pa.Table) -> pa.Table:
    wanted = Schema(tuple(Column(f.name, f.type) for f in table.schema))
    return pa.Table.from_batches(find_format(str(path))().read(str(path), wanted), table.schema)


def check(suffix: str, write: Any, table: pa.Table) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"t{suffix}"
        write(path, table)
        found = read_back(path, table)
        assert found.to_pylist() == table.to_pylist()


def write_csv(path: Path, table: pa.Table) -> None:
    """NULL is nothing, text is always quoted."""

    def text(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, str):
            return '"' + value.replace('"', '""') + '"'
        return format(value, "f") if isinstance(value, Decimal) else str(value)

    lines = [",".join(table.column_names)] + [",".join(map(text, r.values())) for r in table.to_pylist()]
    path.write_bytes("".join(line + "\r\n" for line in lines).encode())


def write_jsonl(path: Path, table: pa.Table) -> None:
    def text(value: Any) -> str:
        if isinstance(value, Decimal):
            return format(value, "f")
        if isinstance(value, datetime | date):
            return f'"{value.isoformat()}"'
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(k)}: {text(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(text, value)) + "]"
        return json.dumps(value, ensure_ascii=False)

    rows = table.to_pylist(maps_as_pydicts="strict")
    path.write_bytes("".join(text(row) + "\n" for row in rows).encode())


@given(tables(TYPES))
@settings(deadline=None)
def test_csv(table: pa.Table) -> None:
    check(".csv", write_csv, table)


@given(tables(TYPES))
@settings(deadline=None)
def test_json_lines(table: pa.Table) -> None:
    check(".jsonl", write_jsonl, table)


@given(tables(TYPES | NESTED))
@settings(deadline=None)
def test_nested_json_lines(table: pa.Table) -> None:
    check(".jsonl", write_jsonl, table)


@given(tables(TYPES | NESTED))
@settings(deadline=None)
def test_parquet(table: pa.Table) -> None:
    check(".parquet", lambda path, t: parquet.write_table(t, path), table)


@given(
    st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=3, max_size=3), min_size=1)
)
@settings(deadline=None)
def test_csv_of_pythons_writer(rows: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "t.csv"
        with path.open("w", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["a", "b", "c"], *rows])
        table = pa.table(
            {n: [r[i] for r in rows] for i, n in enumerate("abc")},
            pa.schema(dict.fromkeys("abc", pa.string())),
        )
        assert read_back(path, table).to_pylist() == table.to_pylist()
