"""Records of files that cannot be read: put aside with file, line, reason and text; the rest counts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from millpond import App
from millpond.errors import BadData, UnknownName

LINES = '{"id": 1, "x": "a"}\n{"id": "two"}\n{"id": 3\n{"id": 4, "x": "d"}\n'


def orders(tmp_path: Path, more: str = "") -> str:
    (tmp_path / "a.jsonl").write_text(LINES)
    (tmp_path / "b.csv").write_text("id,x\n5,e\n6\n")
    return f"""
        CREATE STREAM lines (id BIGINT, x STRING) WITH ('connector' = 'file://{tmp_path}/*.jsonl');
        CREATE STREAM rows (id BIGINT, x STRING) WITH ('connector' = 'file://{tmp_path}/*.csv');
        CREATE TABLE t (id BIGINT PRIMARY KEY, x STRING);
        INSERT INTO t SELECT * FROM lines WITH ('query.name' = 'from_lines' {more});
        INSERT INTO t SELECT * FROM rows WITH ('query.name' = 'from_rows' {more});
    """


def check(app: App, tmp_path: Path) -> None:
    app.drain()
    assert [r["id"] for r in app.sql("SELECT id FROM t ORDER BY id").rows()] == [1, 4, 5]
    assert {q["name"]: (q["state"], q["errors"]) for q in app.sql("SHOW QUERIES").rows()} == {
        "from_lines": ("running", 2),
        "from_rows": ("running", 1),
    }
    found = app.sql("SELECT seq, reason, row FROM from_lines$errors ORDER BY seq").rows()
    path = tmp_path / "a.jsonl"
    assert found[0]["reason"] == f'file "{path}", line 2: "two" in column "id" is not a BIGINT'
    assert found[0]["row"] == '{"_message": "{\\"id\\": \\"two\\"}"}'
    assert found[1]["reason"].startswith(f'file "{path}", line 3: not JSON: ')
    assert found[1]["seq"] - found[0]["seq"] == 1
    (row,) = app.sql("SELECT reason, row FROM from_rows$errors").rows()
    assert row == {
        "reason": f'file "{tmp_path / "b.csv"}", line 3: 1 values where there are 2 columns',
        "row": '{"_message": "6"}',
    }


def test_bad_records_of_a_stream(tmp_path: Path) -> None:
    with App(orders(tmp_path), _direct=True) as app:
        check(app, tmp_path)


def test_bad_records_of_a_stream_on_spark(tmp_path: Path, spark: object) -> None:
    with App(orders(tmp_path)) as app:
        check(app, tmp_path)


def test_a_statement_that_stops(tmp_path: Path) -> None:
    with App(orders(tmp_path, ", 'on.error' = 'fail'"), _direct=True) as app:
        with pytest.raises(BadData, match="line 2"):
            app.drain()
        assert len(app.table("t")) <= 1


def test_a_corrected_record_is_replayed(tmp_path: Path) -> None:
    with App(orders(tmp_path), _direct=True) as app:
        app.drain()
        app.sql("""UPDATE from_lines$errors SET row = '{"id": 2, "x": "b"}' WHERE reason LIKE '%"two"%'""")
        app.sql("REPLAY from_lines$errors")
        assert [r["id"] for r in app.sql("SELECT id FROM t ORDER BY id").rows()] == [1, 2, 4, 5]
        assert len(app.table("from_lines$errors")) == 1


def test_a_query_that_answers_once_raises(tmp_path: Path) -> None:
    orders(tmp_path)
    with App() as app, pytest.raises(BadData, match="line 3"):
        app.sql(f"SELECT * FROM file://{tmp_path}/a.jsonl")


def reasons(app: App, table: str) -> list[str]:
    return [r["reason"] for r in app.sql(f"SELECT reason FROM {table}$errors ORDER BY seq").rows()]


def test_bad_records_of_a_table(tmp_path: Path) -> None:
    """They are put aside with the rows, go when the file is put right, and are there after a restart."""
    orders(tmp_path)
    path = tmp_path / "a.jsonl"
    sql = (
        f"CREATE TABLE t (id BIGINT, x STRING) AS SELECT * FROM file://{path} WITH ('watch.debounce' = '0s')"
    )
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        assert [r["id"] for r in app.sql("SELECT id FROM t ORDER BY id").rows()] == [1, 4]
        assert ["line 2" in r for r in reasons(app, "t")] == [True, False]
        with path.open("a") as file:
            file.write('{"id": 5}\n[6]\n')
        app.drain()
        assert len(app.table("t")) == 3 and reasons(app, "t")[-1].endswith("not a JSON object")
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        assert len(app.table("t")) == 3 and len(reasons(app, "t")) == 3
        path.write_text('{"id": 1}\n{"id": 2}\n{"id": x}\n')
        app.drain()
        assert [r["id"] for r in app.sql("SELECT id FROM t ORDER BY id").rows()] == [1, 2]
        assert len(reasons(app, "t")) == 1 and "line 3" in reasons(app, "t")[0]
        app.sql("DROP TABLE t")
        with pytest.raises(UnknownName):
            app.sql("SELECT * FROM t$errors")


def test_a_total_of_files_with_bad_records(tmp_path: Path) -> None:
    orders(tmp_path)
    with App(f"CREATE TABLE t AS SELECT COUNT(*) AS n FROM file://{tmp_path}/a.jsonl", _direct=True) as app:
        assert app.sql("SELECT n FROM t").rows() == [{"n": 3}]
        assert len(reasons(app, "t")) == 1


def test_a_table_that_must_not_have_any(tmp_path: Path) -> None:
    orders(tmp_path)
    sql = f"CREATE TABLE t (id BIGINT) AS SELECT id FROM file://{tmp_path}/a.jsonl WITH ('on.error' = 'fail')"
    with pytest.raises(BadData, match="line 2"), App(sql, _direct=True) as app:
        app.sql("SELECT * FROM t")


def test_a_damaged_file_is_one_bad_record(tmp_path: Path) -> None:
    for name in ("a", "c"):
        parquet.write_table(pa.table({"id": [1, 2]}), tmp_path / f"{name}.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[:-20])
    (tmp_path / "d.parquet").write_bytes(whole[:4] + b"\xff" * 40 + whole[44:])
    with App(f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/*.parquet", _direct=True) as app:
        assert len(app.table("t")) == 4
        found = reasons(app, "t")
        assert ["b.parquet" in found[0], "d.parquet" in found[1]] == [True, True]


def test_what_a_load_has_read_is_counted(tmp_path: Path) -> None:
    orders(tmp_path)
    (tmp_path / "c.jsonl").write_text('{"id": 7}\n')
    sql = f"CREATE TABLE t (id BIGINT, x STRING) AS SELECT * FROM file://{tmp_path}/*.jsonl"
    with App(sql, _direct=True) as app:
        found = app.table("t").get_stats()
        size = sum(p.stat().st_size for p in tmp_path.glob("*.jsonl"))
        assert (found["files"], found["read_bytes"], found["bad_records"]) == (2, size, 2)
        about = {r["property"]: r["value"] for r in app.sql("DESCRIBE EXTENDED t").rows()}
        assert about["load"].startswith("3 rows, 2 of 2 files, 100 %")
