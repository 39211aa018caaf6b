"""Delta tables as sinks: what is in them, others that write there, what is refused."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from millpond import App
from millpond.app.check import check_text
from millpond.connectors.delta.sink import DeltaSink
from millpond.connectors.delta.written_table import WrittenTable
from millpond.errors import BadData, ConfigurationIssue, ConnectionLost, Error, InvalidOption, TypeMismatch
from millpond.options import defaults
from millpond.testing.contracts.sink import position
from millpond.types import Column, Schema
from tests.servers import Servers

STREAM = "CREATE STREAM s (id BIGINT, k STRING, n INT);"
COLUMNS = Schema((Column("id", pa.int64()), Column("k", pa.string())))


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().sort_by("id").to_pylist()
    return rows


def sink_at(path: Path, schema: Schema = COLUMNS, **values: Any) -> DeltaSink:
    return DeltaSink(f"delta://{path}", values, schema)


def test_a_live_aggregate_keeps_a_table_equal(tmp_path: Path) -> None:
    text = f"""{STREAM}
        CREATE TABLE live AS SELECT k AS id, COUNT(*) AS c, SUM(n) AS total FROM s GROUP BY k;
        INSERT INTO delta://{tmp_path}/out SELECT k AS id, COUNT(*) AS c, SUM(n) AS total FROM s GROUP BY k
        WITH ('key' = 'id')"""
    with App(text, state=tmp_path / "state", _direct=True) as app:
        for first in range(0, 40, 10):
            app.send("s", [{"id": i, "k": f"k{i % 7}", "n": i} for i in range(first, first + 10)])
            app.drain(60)
            assert rows_of(tmp_path / "out") == sorted(
                app.sql("SELECT * FROM live").rows(), key=lambda r: r["id"]
            )


def test_every_type_comes_back(tmp_path: Path) -> None:
    text = f"""CREATE STREAM s (id BIGINT, b BOOLEAN, t TINYINT, f FLOAT, d DECIMAL(20, 4), x BINARY, day DATE,
            at TIMESTAMP, local TIMESTAMP_NTZ, l ARRAY<STRING>, m MAP<STRING, INT>, r STRUCT<a: INT, b: STRING>);
        CREATE TABLE kept AS SELECT * FROM s;
        INSERT INTO delta://{tmp_path}/out SELECT * FROM s"""
    with App(text, state=tmp_path / "state", _direct=True) as app:
        app.sql("""INSERT INTO s SELECT 1, true, CAST(-3 AS TINYINT), CAST(1.5 AS FLOAT),
            CAST('1.2345' AS DECIMAL(20, 4)),
            X'00ff', DATE'2024-02-29', TIMESTAMP'2024-01-01 00:00:00.000001Z', TIMESTAMP_NTZ'1999-12-31 23:59:59',
            ARRAY('a', NULL), MAP('k', 1), NAMED_STRUCT('a', 1, 'b', NULL)""")
        app.send("s", [{"id": 2}])
        app.drain(60)
        expected = app.sql("SELECT * FROM kept ORDER BY id").to_arrow()
    found = DeltaTable(tmp_path / "out").to_pyarrow_table().sort_by("id")
    assert found.to_pylist() == expected.to_pylist()


def test_an_existing_table_with_more_columns_and_other_spelling(tmp_path: Path) -> None:
    there = pa.table({"K": ["old"], "ID": pa.array([1], pa.int64()), "more": ["stays"]})
    write_deltalake(tmp_path / "t", there)
    sink = sink_at(tmp_path / "t", key="id")
    assert sink.open("q") is None
    sink.write(pa.table({"id": [1, 2, 2], "k": ["new", "first", "last"]}, COLUMNS.arrow()), position(0))
    sink.close()
    found = DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("ID").to_pylist()
    assert found == [{"K": "new", "ID": 1, "more": "stays"}, {"K": "last", "ID": 2, "more": None}]


def test_others_may_write_meanwhile(tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "t", key="id")
    sink.open("q")
    for batch in range(3):
        sink.write(pa.table({"id": [batch], "k": ["ours"]}, COLUMNS.arrow()), position(batch))
        write_deltalake(
            tmp_path / "t", pa.table({"id": [100 + batch], "k": ["theirs"]}, COLUMNS.arrow()), mode="append"
        )
    sink.close()
    assert [r["id"] for r in rows_of(tmp_path / "t")] == [0, 1, 2, 100, 101, 102]
    again = sink_at(tmp_path / "t", key="id")
    assert again.open("q") == position(2)


def test_a_state_that_is_older_than_the_log_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_at(tmp_path / "t")
    sink.open("q")
    sink.write(pa.table({"id": [1], "k": ["a"]}, COLUMNS.arrow()), position(4))
    monkeypatch.setattr(DeltaTable, "history", lambda self: [])
    newest = sink_at(tmp_path / "t")
    newest.known_batch = 4
    assert newest.open("q") is None
    older = sink_at(tmp_path / "t")
    older.known_batch = 3
    with pytest.raises(ConfigurationIssue, match="has batch 4 of this query"):
        older.open("q")


def test_a_merge_that_finds_nothing(tmp_path: Path) -> None:
    """Delta makes no commit then: the batch may come again, and finds nothing again."""
    sink = sink_at(tmp_path / "t", Schema((*COLUMNS, Column("_deleted", pa.bool_()))), key="id")
    sink.open("q")
    gone = pa.table(
        {"id": [7], "k": ["x"], "_deleted": [True]}, pa.schema([*COLUMNS.arrow(), ("_deleted", pa.bool_())])
    )
    sink.write(gone, position(0))
    sink.write(gone, position(1))
    assert rows_of(tmp_path / "t") == []


def test_rows_that_cannot_be_written(tmp_path: Path) -> None:
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("k", pa.string())])
    DeltaTable.create(tmp_path / "t", strict)
    with App(
        f"{STREAM} INSERT INTO delta://{tmp_path}/t SELECT id, k FROM s WITH ('query.name' = 'out')",
        state=tmp_path / "state",
        _direct=True,
    ) as app:
        app.send("s", [{"id": 1, "k": "a"}, {"id": None, "k": "b"}, {"id": 3, "k": "c"}])
        app.drain(60)
        assert [r["id"] for r in rows_of(tmp_path / "t")] == [1, 3]
        (error,) = app.sql("SELECT * FROM `out$errors`").rows()
        assert 'column "id" must not be NULL' in str(error)


@pytest.mark.parametrize(
    ("options", "select", "said"),
    [
        ("'key' = 'nope'", "id, k", 'the query has no column "nope"'),
        ("'mode' = 'upsert'", "id, k", "without a key"),
        ("'partition.by' = 'nope'", "id, k", 'the query has no column "nope"'),
        ("'partition.by' = 'id, k'", "id, k", "a column that it is not partitioned by"),
        ("'table' = 't'", "id, k", "table"),
        ("'mode' = 'append'", "id AS `a b`", "Delta allows no ' ' in names"),
        ("'mode' = 'append'", "k, COUNT(*) AS c FROM s GROUP BY k", "written by their key"),
    ],
)
def test_what_check_refuses(options: str, select: str, said: str) -> None:
    select = select if " FROM " in select else f"{select} FROM s"
    errors = check_text(f"{STREAM} INSERT INTO delta:///tmp/t SELECT {select} WITH ({options})").errors
    assert any(said in str(e) for e in errors), errors


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (pa.table({"id": pa.array([1], pa.int64())}), 'has no column "k"'),
        (
            pa.table({"id": pa.array([1], pa.int32()), "k": ["a"]}),
            'column "id" of .* is INT, and the query gives BIGINT',
        ),
    ],
)
def test_a_table_that_does_not_fit(tmp_path: Path, there: pa.Table, said: str) -> None:
    write_deltalake(tmp_path / "t", there)
    with pytest.raises(Error, match=said):
        sink_at(tmp_path / "t").open("q")


def test_a_folder_that_is_no_table_is_made_one_and_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Error, match="Delta table"):
        sink_at(tmp_path / "file").open("q")
    (tmp_path / "folder").mkdir()
    sink_at(tmp_path / "folder").open("q")
    assert rows_of(tmp_path / "folder") == []


def test_partitions(tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "t", **{"partition.by": "k"})
    sink.open("q")
    sink.write(pa.table({"id": [1, 2], "k": ["a", None]}, COLUMNS.arrow()), position(0))
    assert (tmp_path / "t" / "k=a").is_dir() and len(rows_of(tmp_path / "t")) == 2
    with pytest.raises(ConfigurationIssue, match="is partitioned by k, not by id"):
        sink_at(tmp_path / "t", **{"partition.by": "id"}).open("q")


def test_a_type_that_delta_does_not_have() -> None:
    spans = Schema((Column("id", pa.int64()), Column("l", pa.list_(pa.duration("us")))))
    with pytest.raises(TypeMismatch, match='column "l": Delta has no'):
        DeltaSink.check_statement("delta:///tmp/t", defaults(DeltaSink.options), spans, running=True)


@pytest.mark.slow
def test_in_an_object_store(servers: Servers, tmp_path: Path) -> None:
    s3, name = servers.s3, f"b{uuid.uuid4().hex[:10]}"
    s3.client().create_bucket(Bucket=name)
    storage = {
        "AWS_ENDPOINT_URL": s3.url,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    options = ", ".join(f"'storage.{k}' = '{v}'" for k, v in storage.items())
    text = f"{STREAM} INSERT INTO delta://s3://{name}/t SELECT id, k FROM s WITH ('key' = 'id', {options})"
    for first in (0, 5):
        with App(text, state=tmp_path / "state", _direct=True) as app:
            app.send("s", [{"id": i % 7, "k": str(i)} for i in range(first, first + 5)])
            app.drain(60)
    found = DeltaTable(f"s3://{name}/t", storage_options=storage).to_pyarrow_table().sort_by("id").to_pylist()
    assert found == [{"id": i, "k": str(i + 7 if i < 3 else i)} for i in range(7)]


def test_a_commit_whose_answer_is_lost_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[int] = []
    append = WrittenTable._append

    def losing(self: WrittenTable, rows: pa.Table, properties: Any) -> None:
        append(self, rows, properties)
        if len(lost) < 2:
            lost.append(rows.num_rows)
            raise CommitFailedError("Transaction failed: the version exists")

    monkeypatch.setattr(WrittenTable, "_append", losing)
    sink = sink_at(tmp_path / "t")
    assert sink.open("q") is None  # the answer to the take-over is lost
    sink.write(
        pa.table({"id": [1, 2], "k": ["a", "b"]}, COLUMNS.arrow()), position(0)
    )  # and that to the rows
    assert lost == [0, 2] and [r["id"] for r in rows_of(tmp_path / "t")] == [1, 2]
    assert sink_at(tmp_path / "t").open("q") == position(0)


@pytest.mark.parametrize(
    ("given", "there"),
    [
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.string())])),
        (pa.struct([("a", pa.int32()), ("x", pa.int32())]), pa.struct([("a", pa.int32())])),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.string())),
        (pa.list_(pa.string()), pa.list_(pa.int32())),
    ],
)
def test_nested_columns_that_do_not_fit(tmp_path: Path, given: pa.DataType, there: pa.DataType) -> None:
    DeltaTable.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("n", there)]))
    with pytest.raises(TypeMismatch, match='column "n"'):
        sink_at(tmp_path / "t", Schema((Column("id", pa.int64()), Column("n", given)))).open("q")


def test_a_column_that_must_have_a_value_is_missed_at_the_start(tmp_path: Path) -> None:
    DeltaTable.create(
        tmp_path / "t",
        pa.schema([("id", pa.int64()), ("k", pa.string()), pa.field("m", pa.int64(), nullable=False)]),
    )
    with pytest.raises(Error, match=r'column "m" .* must not be NULL'):
        sink_at(tmp_path / "t").open("q")


def test_an_empty_text_in_a_partition_column_is_refused(tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "t", **{"partition.by": "k"})
    sink.open("q")
    with pytest.raises(BadData, match="an empty text"):
        sink.check(pa.table({"id": [1], "k": [""]}, COLUMNS.arrow()))


def test_a_dropped_query_is_forgotten_though_the_columns_have_changed(tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "t")
    sink.open("q")
    sink.write(pa.table({"id": [1], "k": ["a"]}, COLUMNS.arrow()), position(3))
    sink_at(tmp_path / "t", Schema((Column("other", pa.int64()),))).forget("q")
    assert sink_at(tmp_path / "t").open("q") is None


def test_a_folder_with_a_percent_sign() -> None:
    with pytest.raises(InvalidOption, match='no "%" in its name'):
        DeltaSink("delta:///tmp/p%2520q", {}, COLUMNS)


def test_rows_that_are_replayed_stay_until_the_table_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = pa.schema([pa.field("id", pa.int64()), pa.field("k", pa.string(), nullable=False)])
    DeltaTable.create(tmp_path / "t", strict)
    text = f"""{STREAM} CREATE TABLE names (id BIGINT PRIMARY KEY, k STRING);
        INSERT INTO delta://{tmp_path}/t SELECT s.id, n.k FROM s LEFT JOIN names n ON n.id = s.id
        WITH ('query.name' = 'out')"""
    with App(text, state=tmp_path / "state", _direct=True) as app:
        app.send("s", [{"id": 1, "k": "a"}])
        app.drain(60)
        assert len(app.sql("SELECT * FROM `out$errors`").rows()) == 1
        app.sql("INSERT INTO names VALUES (1, 'one')")
        with monkeypatch.context() as patch:
            patch.setattr(WrittenTable, "write", lambda *_: (_ for _ in ()).throw(ConnectionLost("away")))
            with pytest.raises(Error):
                app.sql("REPLAY `out$errors`")
        assert len(app.sql("SELECT * FROM `out$errors`").rows()) == 1
        app.sql("REPLAY `out$errors`")
        assert app.sql("SELECT * FROM `out$errors`").rows() == []
    assert rows_of(tmp_path / "t") == [{"id": 1, "k": "one"}]


def test_changes_of_a_table_of_which_only_the_key_is_written(tmp_path: Path) -> None:
    text = f"""CREATE TABLE t (id BIGINT PRIMARY KEY, k STRING);
        INSERT INTO delta://{tmp_path}/out SELECT id FROM t WHERE k <> 'x' EMIT CHANGES"""
    with App(text, state=tmp_path / "state", _direct=True) as app:
        for statement, ids in (
            ("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'x')", [1, 2]),
            ("UPDATE t SET k = 'c' WHERE id = 1", [1, 2]),
            ("UPDATE t SET k = 'x' WHERE id = 2", [1]),
            ("UPDATE t SET k = 'd' WHERE id = 3", [1, 3]),
            ("DELETE FROM t WHERE id = 1", [3]),
        ):
            app.sql(statement)
            app.drain(60)
            assert [r["id"] for r in rows_of(tmp_path / "out")] == ids, statement
