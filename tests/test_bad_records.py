"""Records of files that cannot be read: put aside with file, line, reason and text; the rest counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond import App
from millpond.errors import BadData

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
