"""What the path of a file stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond import App
from millpond.errors import BadData


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
