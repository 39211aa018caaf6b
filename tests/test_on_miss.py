"""Rows of a stream that find no match: counted, and kept until the match is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from millpond import App

SQL = """
CREATE STREAM s (id INT, tags ARRAY<STRING>);
CREATE TABLE names (id INT PRIMARY KEY, name STRING);
CREATE TABLE late (id INT, name STRING, tags ARRAY<STRING>) {options};
INSERT INTO late SELECT s.id, n.name, s.tags FROM s JOIN names n ON n.id = s.id
  WITH ('query.name' = 'retried', 'on.miss' = 'retry', 'on.miss.timeout' = '1h');
INSERT INTO late SELECT s.id, n.name, NULL FROM s JOIN names n ON n.id = s.id
  WITH ('query.name' = 'dropped', 'on.miss' = 'drop');
INSERT INTO late SELECT s.id, n.name, NULL FROM s JOIN names n ON n.id = s.id WITH ('query.name' = 'plain');
"""


def queries(app: App) -> dict[str, dict[str, Any]]:
    return {q["name"]: q for q in app.sql("SHOW QUERIES").rows()}


@pytest.mark.parametrize("extension", ["memory", "sqlite"])
def test_rows_wait_across_restarts(tmp_path: Path, extension: str) -> None:
    options = "" if extension == "memory" else f"WITH ('extension' = 'sqlite', 'path' = '{tmp_path}/late.db')"
    sql = SQL.format(options=options)
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        app.send("s", [{"id": i, "tags": [f"t{i}"]} for i in range(4)])
        app.drain()
        app.sql("INSERT INTO names VALUES (0, 'zero')")
        app.drain()
        found = queries(app)
        assert (found["retried"]["misses"], found["retried"]["waiting"]) == (4, 3)
        assert (found["dropped"]["misses"], found["dropped"]["waiting"]) == (4, None)
        assert found["plain"]["misses"] is None
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        assert queries(app)["retried"]["waiting"] == 3
        app.sql("INSERT INTO names VALUES (2, 'two')")
        late = app.table("late")
        deadline = time.monotonic() + 60
        while len(late) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)  # no batch and no drain: the change of the table is enough
        assert sorted((r["id"], r["name"], r["tags"]) for r in late) == [
            (0, "zero", ["t0"]),
            (2, "two", ["t2"]),
        ]
        app.drain()
        assert (len(late), queries(app)["retried"]["waiting"]) == (2, 2)
        app.sql("DROP QUERY retried")
        app.sql("INSERT INTO names VALUES (1, 'one')")
        app.drain()
        assert len(late) == 2
