"""What tables say about themselves: numbers, what fills them, and whether that goes on."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from millpond import App, Table


def described(app: App, table: str) -> dict[str, str]:
    return {r["property"]: r["value"] for r in app.sql(f"DESCRIBE EXTENDED {table}").rows()}


def test_numbers(tmp_path: Path) -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY, name STRING)", state=tmp_path / "state") as app:
        table = app.table("t")
        assert table.get_stats().last_update is None
        began = time.time()
        table.bulk_insert([{"id": i, "name": f"n{i}"} for i in range(100)])
        assert table.get_record(1) is not None and table.contains(2) and len(table.find(id=3)) == 1
        table.find("name LIKE 'n1%'")
        stats = table.get_stats()
        assert (stats.rows, stats.source, stats.evictions, stats.spilled_bytes) == (100, "program", 0, 0)
        assert stats.lookups >= 3 and stats.queries >= 1 and stats.bytes > 1000
        assert stats.last_update is not None and stats.last_update >= began - 1
        assert dict(stats)["rows"] == 100
        about = described(app, "t")
        assert about["rows"] == "100" and about["health"].startswith("healthy: ")
        assert {"bytes", "last_update", "source", "lookups", "queries", "evictions", "spilled_bytes"} <= set(
            about
        )
        assert {"query_cache_hits", "durability"} <= set(about)
        app.sql("DROP TABLE t")
        assert table.health_check().status == "missing"


def test_a_table_of_files(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("id,name\n" + "".join(f"{i},n{i}\n" for i in range(300_000)))
    sql = f"CREATE TABLE t (PRIMARY KEY (id)) AS SELECT * FROM file://{tmp_path}/f.csv"
    seen = []
    with App(state=tmp_path / "state", engine="process") as app:
        app._on_progress = lambda progress: seen.append(app.table("t").health_check())
        app.sql(sql)
        assert (
            {h.status for h in seen} == {"loading"}
            and "rows, 0 %" in seen[0].reason
            and "from file:///" in seen[0].reason
        )
        health = app.table("t").health_check()
        assert health.status == "healthy" and f"it follows file://{tmp_path}/f.csv" in health.reason
        assert app.table("t").get_stats().source == "file"
        assert described(app, "t")["health"] == str(health)
        app.sql("CREATE TABLE copy WITH ('refresh' = 'once') AS SELECT id FROM t")
        assert app.table("copy").health_check().status == "static"
    with App(sql, state=tmp_path / "state") as app:
        assert app.table("t").health_check().status == "healthy"
    (tmp_path / "f.csv").unlink()
    with App(state=tmp_path / "state") as app:
        health = app.table("t").health_check()
        assert health.status == "stale" and "stays as it was" in health.reason
        assert len(app.table("t")) == 300_000


def test_a_table_over_tables() -> None:
    with App("CREATE TABLE a (id INT); CREATE TABLE b AS SELECT id + 1 AS id FROM a") as app:
        assert str(app.table("b").health_check()) == 'healthy: it follows "a"'
        assert app.table("b").get_stats().source == "table"


def test_statistics_wait_for_no_writer() -> None:
    """They are told while another thread holds what writers hold."""
    table = Table("id INT PRIMARY KEY", options={"max_memory": "1MB"})
    table.insert({"id": 1})
    with App("CREATE TABLE t (id INT PRIMARY KEY)") as app:
        other = app.table("t")
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with table._backend._writing, other._backend._writing, app._runtime.store.writing:  # type: ignore[attr-defined]
                held.set()
                done.wait(20)

        writer = threading.Thread(target=hold)
        writer.start()
        try:
            assert held.wait(20)
            for one in (table, other):
                assert one.get_stats().rows in (0, 1)
                assert one.health_check().status == "healthy"
            assert not done.is_set()
        finally:
            done.set()
            writer.join()


@pytest.mark.usefixtures("spark")
def test_a_table_that_a_query_fills() -> None:
    sql = "CREATE TABLE t AS SELECT 10 DIV n AS n FROM s WITH ('on.error' = 'fail')"
    with App("CREATE STREAM s (n INT);" + sql) as app:
        app.send("s", {"n": 5})
        app.drain()
        table = app.table("t")
        assert table.health_check().status == "healthy" and table.get_stats().source == "stream"
        assert 'query "table:t" fills it' in table.health_check().reason
        app.send("s", {"n": 0})
        with pytest.raises(Exception, match="zero"):
            app.drain()
        assert table.health_check().status == "stale" and "zero" in table.health_check().reason.lower()
        assert len(table) == 1
