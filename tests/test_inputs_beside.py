"""Sources that live tables and running statements meet beside tables and streams."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond import App

DEBOUNCE = "'watch.debounce' = '50ms'"


@pytest.fixture
def app() -> Iterator[App]:
    with App("CREATE TABLE k (id BIGINT PRIMARY KEY); INSERT INTO k VALUES (1), (2), (3)") as made:
        yield made


def join(app: App, uri: object, more: str = f" WITH ({DEBOUNCE})") -> None:
    app.sql(f"CREATE TABLE j AS SELECT k.id, f.v FROM k JOIN '{uri}' f ON k.id = f.id{more}")


def rows(app: App, table: str = "j") -> list[tuple[Any, ...]]:
    return sorted((tuple(r.values()) for r in app.table(table).all_rows()), key=repr)


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_records_that_cannot_be_read_are_left_out(
    app: App, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,v\n1,a\n")
    join(app, f"file://{file}")
    with caplog.at_level(logging.WARNING, "millpond"):
        file.write_text("id,v\n1,a\ntwo,b\n2,c\n")
        app.drain()
    assert rows(app) == [(1, "a"), (2, "c")] and app.ready()
    assert '1 records cannot be read and are left out: file "' in caplog.text


def test_rows_of_a_removed_file_stay_when_another_is_written_anew(app: App, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,a\n")
    (tmp_path / "b.csv").write_text("id,v\n2,b\n")
    join(app, f"file://{tmp_path}/*.csv")
    (tmp_path / "a.csv").unlink()
    app.drain()
    (tmp_path / "b.csv").write_text("id,v\n3,c\n")
    app.drain()
    assert rows(app) == [(1, "a"), (3, "c")]


def test_a_column_that_another_table_takes_in(app: App, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,a\n")
    app.sql(f"CREATE TABLE t AS SELECT * FROM 'file://{tmp_path}/*.csv' WITH ({DEBOUNCE})")
    join(app, f"file://{tmp_path}/*.csv")
    (tmp_path / "b.csv").write_text("id,v,w\n2,b,5\n")
    app.drain()
    assert rows(app, "t") == [(1, "a", None), (2, "b", 5)] and rows(app) == [(1, "a"), (2, "b")]


def test_a_view_that_has_become_wider_follows_its_source_on(app: App, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,a\n")
    (tmp_path / "names.jsonl").write_text('{"id": 1, "name": "A"}\n')
    app.sql(
        f"CREATE TABLE t AS SELECT * FROM 'file://{tmp_path}/*.csv' WITH ({DEBOUNCE});"
        f"CREATE TABLE j AS SELECT t.*, f.name FROM t JOIN 'file://{tmp_path}/names.jsonl' f ON t.id = f.id"
        f" WITH ({DEBOUNCE})"
    )
    (tmp_path / "b.csv").write_text("id,v,w\n2,b,5\n")
    app.drain()
    with (tmp_path / "names.jsonl").open("a") as file:
        file.write('{"id": 2, "name": "B"}\n')
    app.drain()
    assert {row["name"]: row.get("v") for row in app.table("j").all_rows()} == {"A": "a", "B": "b"}


def test_a_source_that_is_gone_is_told(app: App) -> None:
    published = "CREATE TABLE names (id BIGINT PRIMARY KEY, v STRING); INSERT INTO names VALUES (1, 'a')"
    with App(published):
        join(app, "memory://names", "")
        app.drain()
        assert app.ready() and app.table("j").health_check().status == "healthy"
    until(lambda: app.table("j").health_check().status == "stale")
    assert 'no table or stream "names"' in app.table("j").health_check().reason
    assert app.ready().state == "degraded" and 'table "j": no table' in app.ready().problems[0]
    assert rows(app) == [(1, "a")]
    with App(published.replace("'a'", "'b'")):
        until(lambda: rows(app) == [(1, "b")] and app.ready())


def test_a_source_beside_a_stream_that_is_gone_is_told() -> None:
    sql = (
        "CREATE STREAM s (id BIGINT);"
        "CREATE TABLE t AS SELECT s.id, f.v FROM s JOIN memory://names f ON s.id = f.id"
    )
    with App("CREATE TABLE names (id BIGINT, v STRING); INSERT INTO names VALUES (1, 'a')"):
        app = App(sql, _direct=True)
        app.send("s", [{"id": 1}])
        app.drain()
        assert rows(app, "t") == [(1, "a")] and app.ready()
    with app, pytest.raises(Exception, match="is published"):
        try:
            app.drain()
        finally:
            health = app.table("t").health_check()
            assert health.status == "stale" and 'no table or stream "names"' in health.reason
            assert app.ready().state == "degraded"
