"""Start-up: tables load side by side, what needs them waits, and how far they are can be asked."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond import App, Error
from millpond.loading.progress import Progress

ROWS = 300_000


class Gate:
    """Holds up a load after its first chunk."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, progress: Progress) -> None:
        if progress.table == self.table and progress.rows:
            self.reached.set()
            assert self.open.wait(60)


def write(path: Path, rows: int = ROWS) -> None:
    pq.write_table(pa.table({"id": range(rows), "name": [f"n{i % 100}" for i in range(rows)]}), path)


def opened(tmp_path: Path, gate: Gate, sql: str, **options: Any) -> App:
    write(tmp_path / "big.parquet")
    text = f"CREATE TABLE big (PRIMARY KEY (id)) AS SELECT * FROM file://{tmp_path}/big.parquet;" + sql
    return App(text, _on_progress=gate, _defer=True, _direct=True, engine="process", **options)


def until(true: Any) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


STREAMS = """
CREATE STREAM s (id INT);
CREATE TABLE other (id INT);
INSERT INTO other SELECT id FROM s WITH ('query.name' = 'other');
CREATE TABLE named (id INT, name STRING);
INSERT INTO named SELECT s.id, b.name FROM s JOIN big b ON b.id = s.id WITH ({options});
"""


def test_only_what_needs_a_table_waits_for_it(tmp_path: Path) -> None:
    gate = Gate("big")
    sql = STREAMS.format(options="'query.name' = 'join'")
    with opened(tmp_path, gate, sql, state=tmp_path / "state") as app:
        assert gate.reached.wait(60)
        start = threading.Thread(target=app._start)
        start.start()
        until(
            lambda: (
                {q["name"]: q["state"] for q in app.sql("SHOW QUERIES").rows()}
                == {"other": "running", "join": "waiting"}
            )
        )
        ready = app.ready()
        assert not ready and (ready.state, ready.waiting) == ("loading", {"join": ("big",)})
        (load,) = ready.loading
        assert (load.table, load.rows, load.of, load.percent) == ("big", 131_072, ROWS, 43) and load.rate > 0
        health = app.table("big").health_check()
        assert health.status == "loading" and health.reason.startswith("131,072 of 300,000 rows, 43 %, ")
        app.send("s", {"id": 299_999})
        asked: list[Any] = []
        ask = threading.Thread(target=lambda: asked.append(app.sql("SELECT COUNT(*) AS n FROM big").rows()))
        ask.start()
        assert app.sql("SELECT COUNT(*) AS n FROM other").rows()[0]["n"] == 0  # it is answered meanwhile
        assert not asked
        gate.open.set()
        ask.join(60)
        start.join(60)
        assert asked == [[{"n": ROWS}]]
        app.drain()
        assert app.ready().state == "ready" and app.table("big").health_check().status == "healthy"
        assert app.table("named").all_rows() == [{"id": 299_999, "name": "n99"}]
        described = {r["property"]: r["value"] for r in app.sql("DESCRIBE EXTENDED big").rows()}
        assert described["load"].startswith("300,000 of 300,000 rows, 100 %, ")


@pytest.mark.parametrize("miss", ["null", "fail"])
def test_a_query_waits_so_long(tmp_path: Path, miss: str) -> None:
    gate = Gate("big")
    sql = STREAMS.format(
        options=f"'query.name' = 'join', 'table.wait.timeout' = '50ms', 'on.miss' = '{miss}'"
    )
    with opened(tmp_path, gate, sql) as app:
        assert gate.reached.wait(60)
        start = threading.Thread(target=app._start)
        start.start()
        app.send("s", [{"id": 1}, {"id": 299_999}])
        until(lambda: "join" not in app._runtime.runner.starter.needed())
        if miss == "fail":
            with pytest.raises(Error, match="table big is not loaded after"):
                app.drain()
        else:
            app.drain()
            assert sorted(app.table("named").all_rows(), key=lambda r: r["id"]) == [
                {"id": 1, "name": "n1"},
                {"id": 299_999, "name": None},
            ]
        gate.open.set()
        start.join(60)
        assert app.ready().state == ("degraded" if miss == "fail" else "ready")


def test_statements_of_the_file_wait_for_the_tables_they_name(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d", "e"):
        write(tmp_path / f"{name}.parquet", 1_000)
    loads = "".join(f"CREATE TABLE {n} AS SELECT * FROM file://{tmp_path}/{n}.parquet;" for n in "abcde")
    sql = loads + (
        "CREATE TABLE v AS SELECT a.id FROM a JOIN b ON a.id = b.id; DELETE FROM c WHERE id > 9;"
        "CREATE TABLE copied AS SELECT id FROM d WITH ('refresh' = 'once'); INSERT INTO e VALUES (-1, 'x');"
    )
    with App(sql) as app:
        assert {t: len(app.table(t)) for t in app.tables()} == {
            **dict.fromkeys("abd", 1_000),
            "c": 10,
            "e": 1_001,
            "v": 1_000,
            "copied": 1_000,
        }


def test_changes_of_the_file_wait_for_the_tables_they_read(tmp_path: Path) -> None:
    write(tmp_path / "big.parquet")
    sql = f"""
    CREATE TABLE big AS SELECT * FROM file://{tmp_path}/big.parquet;
    CREATE TABLE t (id INT PRIMARY KEY, name STRING);
    INSERT INTO t VALUES (299999, 'x');
    UPDATE t SET name = big.name FROM big WHERE big.id = t.id;
    """
    with App(sql) as app:
        assert app.sql("SELECT name FROM t").to_arrow()["name"].to_pylist() == ["n99"]


def test_a_load_that_fails(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("id\n" + "1\n" * 200_000 + "x\n")
    sql = f"CREATE TABLE bad (id INT) AS SELECT * FROM file://{tmp_path}/bad.csv WITH ('on.error' = 'fail')"
    with pytest.raises(Error, match="INT"):
        App(sql)


ONCE = {
    "table": "CREATE TABLE t (id INT) AS SELECT * FROM {file} WITH ('refresh' = 'once')",
    "in sqlite": (
        "CREATE TABLE t (id INT) WITH ('extension' = 'sqlite', 'path' = '{dir}/t.db', 'refresh' = 'once')"
        " AS SELECT * FROM {file}"
    ),
    "materialized view": "CREATE MATERIALIZED VIEW t AS SELECT id FROM {file} WITH ('refresh' = 'once')",
}


@pytest.mark.parametrize("kind", ONCE)
def test_a_table_that_was_loaded_once_after_a_restart(tmp_path: Path, kind: str) -> None:
    """Its file is not read again, even if it is gone; its error records and its health stay."""
    file = tmp_path / "t.csv"
    bad = "" if kind == "materialized view" else "x\n"
    file.write_text(f"id\n1\n{bad}2\n")
    sql = ONCE[kind].format(file=f"file://{file}", dir=tmp_path)

    def seen(app: App) -> list[object]:
        errors = app.sql("SELECT reason FROM `t$errors`").rows()
        return [app.sql("SELECT * FROM t ORDER BY id").rows(), errors, app.table("t").health_check().status]

    with App(sql, state=tmp_path / "state") as app:
        before = seen(app)
    assert before[0] == [{"id": 1}, {"id": 2}]
    for text in ("id\n1\n2\n3\n", None):
        file.write_text(text) if text else file.unlink()
        with App(sql, state=tmp_path / "state") as app:
            app.drain()
            assert seen(app) == before


def test_a_table_over_a_view_that_was_loaded_once(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("id\n1\n2\n")
    sql = f"""CREATE VIEW v AS SELECT * FROM file://{file};
              CREATE TABLE t AS SELECT id FROM v WITH ('refresh' = 'once')"""
    with App(sql, state=tmp_path / "state") as app:
        errors = app.sql("SELECT * FROM `t$errors`").rows()
    file.write_text("id\n1\n2\n3\n")
    with App(sql, state=tmp_path / "state") as app:
        app.drain()
        assert app.sql("SELECT id FROM t ORDER BY id").rows() == [{"id": 1}, {"id": 2}]
        assert app.sql("SELECT * FROM `t$errors`").rows() == errors


def test_a_table_whose_source_is_gone_degrades_the_app(tmp_path: Path) -> None:
    write(tmp_path / "t.parquet", 10)
    sql = f"CREATE TABLE t (id BIGINT, name STRING) AS SELECT * FROM file://{tmp_path}/t.parquet"
    with App(sql, state=tmp_path / "state") as app:
        assert app.ready().state == "ready"
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and nothing that can be read PAR1")
    os.utime(tmp_path / "t.parquet", (1, 1))
    with App(state=tmp_path / "state") as app:
        ready = app.ready()
        assert ready.state == "degraded" and 'table "t": it stays as it was' in ready.problems[0]
        assert app.table("t").health_check().status == "stale" and len(app.table("t")) == 10


def test_closing_ends_a_load_that_goes_on_later(tmp_path: Path) -> None:
    gate = Gate("big")
    app = opened(tmp_path, gate, "", state=tmp_path / "state")
    assert gate.reached.wait(60)
    closing = threading.Thread(target=app.close)
    closing.start()
    until(lambda: app._runtime.lifetime.closed)
    gate.open.set()
    closing.join(60)
    assert app.ready().state == "closed"
    with opened(tmp_path, Gate("none"), "", state=tmp_path / "state") as app:
        app._start()
        assert len(app.table("big")) == ROWS
