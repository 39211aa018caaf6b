"""Columns that come up in files later: they become columns of what reads all there are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from millpond import App, Table
from millpond.connectors.files.source import FileSource
from millpond.dml.mutate import Outdated
from millpond.errors import Conflict, StateUnwritable
from millpond.formats.base import Piece, find_format
from millpond.loading import chunks
from millpond.sql.catalog import Relation
from millpond.store.store import Store
from millpond.testing import faults
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


UPDATE = "UPDATE t SET x = 'z' WHERE id >= 1"
STALE: dict[str, Callable[[App], object]] = {
    "planned": lambda app: app.sql(UPDATE),
    "not planned": lambda app: app.sql(f"{UPDATE}; SELECT 1"),
    "in a block": lambda app: app.sql(f"BEGIN; {UPDATE}; COMMIT"),
    "merge": lambda app: app.sql(
        "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET x = 'z'"
    ),
}


@pytest.mark.parametrize("way", STALE)
def test_a_change_that_was_checked_before_keeps_new_columns(tmp_path: Path, way: str) -> None:
    """The table gets a column and a row with a value of it while a statement waits for its turn to write."""
    (tmp_path / "a.csv").write_text("id,x\n1,a\n")

    def drift() -> None:
        (tmp_path / "b.csv").write_text("id,x,y\n2,b,2.5\n")
        app.drain()

    sql = f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/*.csv WITH ('watch.debounce' = '0s')"
    with App(sql, _direct=True) as app:
        app.sql("UPDATE t SET x = 'p' WHERE id >= 9")
        with faults.at("statement checked", drift):
            STALE[way](app)
        rows = [{"id": 1, "x": "z", "y": None}, {"id": 2, "x": "z", "y": Decimal("2.5")}]
        assert app.sql("SELECT * FROM t ORDER BY id").rows() == rows


def test_nobody_writes_between_new_columns_of_a_table_and_of_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a statement that has waited would go by the columns that the table had."""
    (tmp_path / "a.csv").write_text("id,x\n1,a\n")
    sql = f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/*.csv WITH ('watch.debounce' = '0s')"
    with App(sql, _direct=True) as app, ThreadPoolExecutor() as threads:
        catalog, writing = app._runtime.catalog, app._runtime.store.writing
        add, free = catalog.add, []

        def is_free() -> bool:
            if not writing.try_enter():
                return False
            writing.__exit__()
            return True

        def watched(*relations: Relation) -> None:
            free.append(threads.submit(is_free).result())
            add(*relations)

        monkeypatch.setattr(catalog, "add", watched)
        (tmp_path / "b.csv").write_text("id,x,y\n2,b,2.5\n")
        app.drain()
        assert app.table("t").schema.names == ("id", "x", "y") and free == [False]


def test_what_began_before_new_columns_is_run_again(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x\n1,a\n")
    sql = f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/*.csv WITH ('watch.debounce' = '0s')"
    with App(sql, _direct=True) as app:
        table, transaction = app.table("t"), app.begin_transaction()
        (tmp_path / "b.csv").write_text("id,x,y\n2,b,2.5\n")
        app.drain()
        assert transaction.sql("SELECT * FROM t").rows() == [{"id": 1, "x": "a"}]
        with pytest.raises(Conflict, match="new columns"):
            transaction.sql("UPDATE t SET x = 'z' WHERE id = 1")
        assert table is app.table("t") and table.schema.names == ("id", "x", "y")
        assert table.update("id >= 1", {"x": "z"}) == 2
        assert table.all_rows() == [
            {"id": 1, "x": "z", "y": None},
            {"id": 2, "x": "z", "y": Decimal("2.5")},
        ]


def test_what_was_compiled_before_new_columns_keeps_their_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x\n1,a\n")
    sql = f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/*.csv WITH ('watch.debounce' = '0s')"
    with App(sql, _direct=True) as app:
        table = app.table("t")
        sets, condition = table.compile_update_set("x = upper(x)"), table.compile_condition("x > 'A'")
        assert table.query_batch(1) == [{"id": 1, "x": "a"}]
        transaction, looked = app.begin_transaction(), table.get_stats().lookups
        (tmp_path / "b.csv").write_text("id,x,y\n2,b,2.5\n3,c,3.5\n")
        app.drain()
        assert table.query_batch(1, 1) == []  # the page after the first one, as of then
        assert [r["y"] for r in table.find(condition, id=2)] == [Decimal("2.5")]
        assert table.get_stats().lookups >= looked
        assert table.update(condition, sets) == 3
        assert table.bulk_update([(condition, sets), ("id = 3", {"x": "z"})]) == 3
        assert [(r["x"], r["y"]) for r in table.all_rows()] == [
            ("A", None),
            ("B", Decimal("2.5")),
            ("z", Decimal("3.5")),
        ]
        assert transaction.table("t").find("x = 'a'") == [{"id": 1, "x": "a"}]


def test_a_table_whose_new_columns_cannot_be_stored_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("id,x\n1,a\n")
    sql = f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/*.csv WITH ('watch.debounce' = '0s')"
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        put, failed = app._runtime.journal.put_entry, []

        def full(entry: Any) -> None:
            if entry.kind == "table" and not failed:
                failed.append(entry)
                raise StateUnwritable("the disk is full")
            put(entry)

        monkeypatch.setattr(app._runtime.journal, "put_entry", full)
        (tmp_path / "b.csv").write_text("id,x,y\n2,b,2.5\n")
        app.drain()
        assert failed and app.table("t").schema.names == ("id", "x")
        assert app.sql("UPDATE t SET x = concat(x, x), id = id").count == 2
        assert app.table("t").update("id >= 1", {"x": "z"}) == 2


def test_a_statement_of_the_file_that_met_new_columns_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "CREATE TABLE t (id INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 0); UPDATE t SET n = n + 1 WHERE n >= 0"
    write, done = Store.write, []

    def outdated(store: Store, find: Any, **more: Any) -> Any:
        if more.get("done"):
            done.append(more["done"])
            if len(done) == 2:
                raise Outdated("the table has new columns")
        return write(store, find, **more)

    monkeypatch.setattr(Store, "write", outdated)
    for _ in range(2):
        with App(sql, state=tmp_path / "state") as app:
            assert app.sql("SELECT n FROM t").rows() == [{"n": 1}]
    assert len(done) == 3 and done[1] == done[2]  # the INSERT, and the UPDATE twice


def test_rows_of_a_condition_that_was_compiled_before(tmp_path: Path) -> None:
    table = Table({"id": "INT", "x": "STRING"}, key="id")
    condition = table.compile_condition("x > 'a'")
    wide = pa.table({"id": pa.array([1, 2], pa.int32()), "x": ["a", "b"], "y": [1.5, 2.5]})
    assert condition.rows(wide).to_pylist() == [{"id": 2, "x": "b"}]
