"""What the path of a file stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond import App
from millpond.errors import BadData, FileMissing, SourceEmpty


def test_a_link_to_its_own_directory_leads_to_no_rows_twice(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    (tmp_path / "b c.csv").write_text("id\n2\n")
    (tmp_path / "0.csv").symlink_to(tmp_path / "a.csv")
    (tmp_path / "loop").symlink_to(tmp_path)
    with App() as app:
        assert app.sql(f"SELECT COUNT(*) AS n FROM file://{tmp_path}/**/*.csv").rows() == [{"n": 2}]
        assert app.sql(f"SELECT id FROM 'file://{tmp_path}/b c.csv'").rows() == [{"id": 2}]


def test_a_pattern_may_begin_without_files(tmp_path: Path) -> None:
    with App() as app:
        app.sql(
            f"CREATE TABLE t (id INT) AS SELECT * FROM file://{tmp_path}/*.csv WITH ('file.create.empty' = 'true')"
        )
        assert len(app.table("t")) == 0 and list(tmp_path.iterdir()) == []
        (tmp_path / "a.csv").write_text("id\n1\n")
        app.drain()
        assert app.table("t").all_rows() == [{"id": 1}]


def test_a_column_without_a_name_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"": 1, "b": 2}\n')
    (tmp_path / "none.jsonl").write_text('{"": 1}\n')
    with App() as app:
        assert app.sql(f"SELECT * FROM file://{tmp_path}/a.jsonl").rows() == [{"b": 2}]
        with pytest.raises(BadData, match="no column with a name"):
            app.sql(f"SELECT * FROM file://{tmp_path}/none.jsonl")


def test_characters_may_be_written_by_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "my orders.csv").write_text("id\n1\n")
    (tmp_path / "größe 50%.csv").write_text("id\n2\n")
    (tmp_path / "as%20it%20is.csv").write_text("id\n3\n")
    (tmp_path / "50%.csv").write_text("id\n4\n")
    with App() as app:

        def ids(name: str) -> list[int]:
            return sorted(r["id"] for r in app.sql(f"SELECT id FROM file://{tmp_path}/{name}").rows())

        assert ids("my%20orders.csv") == [1]
        assert ids("gr%C3%B6%C3%9Fe%2050%25.csv") == [2]
        assert ids("as%20it%20is.csv") == [3]
        assert ids("50%.csv") == [4]
        assert ids("my%20*.csv") == [1]
        with pytest.raises(FileMissing, match=r"my orderz\.csv"):
            ids("my%20orderz.csv")
        app.sql(f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/my%20orders.csv")
        (tmp_path / "my orders.csv").write_text("id\n5\n")
        app.drain()
        assert app.table("t").all_rows() == [{"id": 5}]
        for wrong in ("a%ff.csv", "a%00.csv", "a%2.csv"):
            with pytest.raises(FileMissing):
                ids(wrong)


def test_a_missing_file_is_made_with_the_columns_that_the_table_declares(tmp_path: Path) -> None:
    made = "WITH ('file.create.empty' = 'true')"
    with App(_direct=True) as app:
        app.sql(
            f"CREATE TABLE t (k BIGINT PRIMARY KEY, n STRING) AS SELECT id, name FROM file://{tmp_path}/a.csv {made}"
        )
        app.sql(
            f"CREATE TABLE s (id BIGINT, n BIGINT) AS SELECT id, COUNT(*) FROM file://{tmp_path}/a.csv f "
            f"WHERE f.id > 1 GROUP BY id {made}"
        )
        (tmp_path / "a.csv").write_text("id,name\n1,x\n2,y\n2,z\n")
        app.drain()
        assert app.table("t").all_rows() == [{"k": 1, "n": "x"}, {"k": 2, "n": "z"}]
        assert app.table("s").all_rows() == [{"id": 2, "n": 2}]
        for query in ("SELECT id, upper(name)", "SELECT id, name", "SELECT *"):
            columns = "(id BIGINT, name STRING)" if "upper" in query else ""
            with pytest.raises(SourceEmpty, match="its columns cannot be discovered") as caught:
                app.sql(f"CREATE TABLE u {columns} AS {query} FROM file://{tmp_path}/b.csv {made}")
            assert "declare the columns" in str(caught.value.hint)
        assert not (tmp_path / "b.csv").exists()
