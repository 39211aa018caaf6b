"""Columns that come up in files later: they become columns of what reads all there are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from millpond import App
from millpond.connectors.files.source import FileSource
from millpond.formats.base import Piece, find_format
from millpond.loading import chunks
from millpond.types import Column, Schema

LIST = pa.list_(pa.field("element", pa.int64()))
KNOWN = Schema((Column("id", pa.int64()),))


@pytest.mark.parametrize(
    ("name", "content", "fresh"),
    [
        ("a.csv", b"id,X\n1,2\n", {"X": pa.int64()}),
        ("a.csv", b"ID\n1\n", {}),
        ("a.jsonl", b'{"id": 1}\n{"Id": 2, "x": [1], "z": null}\n', {"x": LIST, "z": pa.null()}),
        ("a.jsonl", b'{"id": "no number"}\n{"id": 1\n{"x": 1.5}\n', {"x": pa.decimal128(38, 19)}),
        ("a.jsonl", b'{"id": 1}\n', {}),
        ("a.json", b'[{"id": 1, "x": true}]', {"x": pa.bool_()}),
    ],
)  # fmt: skip
def test_columns_that_are_not_known(
    tmp_path: Path, name: str, content: bytes, fresh: dict[str, pa.DataType]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    found = find_format(name)().fresh(str(path), KNOWN, Piece())
    assert {c.name: c.type for c in found} == fresh


def test_a_table_over_files_gets_new_columns(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.csv").write_text("id,x\n1,a\n")
    sql = f"""CREATE TABLE t AS SELECT * FROM file://{data}/*.csv WITH ('watch.debounce' = '0s');
        CREATE TABLE n AS SELECT id FROM file://{data}/*.csv WITH ('watch.debounce' = '0s')"""
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        (data / "b.csv").write_text("y,ID\n2.5,2\n")
        app.drain()
        assert app.sql("SELECT * FROM t ORDER BY id").rows() == [
            {"id": 1, "x": "a", "y": None},
            {"id": 2, "x": None, "y": 2.5},
        ]
        assert app.sql("SELECT * FROM n ORDER BY id").rows() == [{"id": 1}, {"id": 2}]
    (data / "0.csv").write_text("z,id\ntrue,3\n")
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        (data / "c.csv").write_text("id,y\n4,none\n")
        app.drain()
        rows = app.sql("SELECT * FROM t ORDER BY id").rows()
        assert rows[2:] == [{"id": 3, "x": None, "y": None, "z": True}]
        (row,) = app.sql("SELECT reason FROM t$errors").rows()
        assert '"none" in column "y" is not a DECIMAL(38,19)' in row["reason"]
        assert len(app.table("n")) == 3


def test_a_table_over_parquet_gets_new_columns(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    sql = f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/*.parquet WITH ('watch.debounce' = '0s')"
    with App(sql, _direct=True) as app:
        parquet.write_table(pa.table({"id": [2], "x": ["b"]}), tmp_path / "b.parquet")
        app.drain()
        assert app.sql("SELECT * FROM t ORDER BY id").rows() == [{"id": 1, "x": None}, {"id": 2, "x": "b"}]


def test_a_stream_over_files_gets_new_columns(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.jsonl").write_text('{"id": 1, "x": "a"}\n')
    sql = f"""
        CREATE STREAM s WITH ('connector' = 'file://{data}/*.jsonl');
        CREATE TABLE t AS SELECT * FROM s;
        CREATE TABLE n AS SELECT COUNT(*) AS n FROM s;
    """
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        app.drain()
        (data / "b.jsonl").write_text('{"id": 2, "y": 2.5}\n{"id": "x"}\n')
        app.drain()
        assert app.sql("SELECT * FROM t ORDER BY id").rows() == [
            {"id": 1, "x": "a", "y": None},
            {"id": 2, "x": None, "y": 2.5},
        ]
        assert app.sql("SELECT n FROM n").rows() == [{"n": 2}]
        assert len(app.table("t$errors")) == len(app.table("n$errors")) == 1
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        (data / "c.jsonl").write_text('{"id": 3, "y": 1, "z": true}\n')
        app.drain()
        assert app.sql("SELECT * FROM t WHERE id = 3").rows() == [{"id": 3, "x": None, "y": 1.0, "z": True}]


def test_a_stream_on_spark_gets_new_columns(tmp_path: Path, spark: object) -> None:
    (tmp_path / "a.csv").write_text("id,x\n1,a\n")
    sql = f"""
        CREATE STREAM s WITH ('connector' = 'file://{tmp_path}/*.csv', 'watch.debounce' = '0s');
        CREATE TABLE t AS SELECT *, spark_partition_id() AS p FROM s;
        CREATE TABLE n AS SELECT id, spark_partition_id() AS p FROM s;
    """
    with App(sql) as app:
        app.drain()
        (tmp_path / "b.csv").write_text("id,y\n2,true\n")
        app.drain()
        assert app.sql("SELECT id, x, y FROM t ORDER BY id").rows() == [
            {"id": 1, "x": "a", "y": None},
            {"id": 2, "x": None, "y": True},
        ]
        assert app.sql("SELECT id FROM n ORDER BY id").rows() == [{"id": 1}, {"id": 2}]


def test_columns_that_another_reader_finds_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    source = FileSource(f"file://{tmp_path}/*.csv", {}, None)
    assert source.schema().names == ("id",)
    (tmp_path / "b.csv").write_text("id,w\n2,5\n")
    monkeypatch.setattr(chunks, "CHUNK", 1)
    splits = source.splits(None, source.latest(None))
    reading = chunks.chunks_of(source, splits, True)
    found = [next(reading).rows]
    source.notice(splits)
    assert source.schema().names == ("id", "w")
    found += [chunk.rows for chunk in reading]
    assert pa.concat_tables(found).to_pydict() == {"id": [1, 2]}
