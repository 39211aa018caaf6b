"""Tables and streams of one app, read by another in the same process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millpond import App
from millpond.connectors.memory import source as memory
from millpond.errors import SourceError, UnknownName


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_table_over_a_table_of_another_app_follows_it() -> None:
    with App("CREATE TABLE items (id INT PRIMARY KEY, name STRING, price INT)") as one, App() as other:
        one.sql("INSERT INTO items VALUES (1, 'a', 10), (2, 'b', 20)")
        other.sql(
            "CREATE TABLE dear (PRIMARY KEY (id)) AS SELECT id, name FROM memory://items WHERE price >= 10;"
            "CREATE TABLE total AS SELECT SUM(price) AS s FROM memory://items;"
            "CREATE TABLE copy AS SELECT id FROM memory://items WITH ('refresh' = 'once')"
        )
        one.sql("UPDATE items SET name = 'c', price = price + 1 WHERE id = 1; DELETE FROM items WHERE id = 2")
        one.sql("INSERT INTO items VALUES (3, 'd', 5), (4, 'e', 50)")
        other.drain()
        dear = [{"id": 1, "name": "c"}, {"id": 4, "name": "e"}]
        assert other.sql("SELECT * FROM dear ORDER BY id").rows() == dear
        assert other.sql("SELECT s FROM total").rows() == [{"s": 66}]
        assert other.sql("SELECT id FROM copy ORDER BY id").rows() == [{"id": 1}, {"id": 2}]
        one.sql("TRUNCATE TABLE items")
        deadline = time.monotonic() + 30
        while other.sql("SELECT * FROM dear").rows():
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_query_answers_once() -> None:
    with App("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)") as one, App() as other:
        assert other.sql("SELECT * FROM memory://t").rows() == [{"a": 1}]
        one.sql("INSERT INTO t VALUES (2)")
        assert other.sql("SELECT SUM(a) AS s FROM memory://T").rows() == [{"s": 3}]


def test_a_table_that_is_gone_leaves_its_copy() -> None:
    with App() as other:
        with App("CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1)"):
            other.sql("CREATE TABLE u (PRIMARY KEY (a)) AS SELECT * FROM memory://t")
        with pytest.raises(UnknownName, match='"t" is published'):
            other.drain()
        assert other.sql("SELECT * FROM u").rows() == [{"a": 1}]
        assert other.table("u").health_check().status == "stale"
        with App("CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (2)"):
            other.drain()
            assert other.sql("SELECT * FROM u").rows() == [{"a": 2}]


def test_what_one_app_ends_another_may_have_published_anew() -> None:
    with App("CREATE TABLE t (a INT)") as one, App("CREATE TABLE t (b INT); INSERT INTO t VALUES (7)") as two:
        one.close()
        assert two.sql("SELECT * FROM memory://t").rows() == [{"b": 7}]
        two.sql("DROP TABLE t")
        with pytest.raises(UnknownName, match="is published"):
            two.sql("SELECT * FROM memory://t")


def test_a_table_is_followed_on_after_a_restart(tmp_path: Path) -> None:
    sql = "CREATE TABLE u (PRIMARY KEY (a)) AS SELECT * FROM memory://t"
    with App("CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1), (2)") as one:
        with App(sql, state=tmp_path / "s") as other:
            other.drain()
        one.sql("DELETE FROM t WHERE a = 1; INSERT INTO t VALUES (3)")
        with App(sql, state=tmp_path / "s") as other:
            other.drain()
            assert other.sql("SELECT a FROM u ORDER BY a").rows() == [{"a": 2}, {"a": 3}]


def test_rows_that_a_program_sends_to_a_stream(spark: object) -> None:
    with App("CREATE STREAM trades (id INT, price DECIMAL(10, 2))") as one, App() as other:
        one.send("trades", [{"id": 1, "price": "1.50"}])
        other.sql(
            "CREATE STREAM s WITH ('connector' = 'memory://trades');"
            "CREATE TABLE sums AS SELECT COUNT(*) AS n, SUM(price) AS p FROM s"
        )
        one.send("trades", [{"id": 1, "price": 2}, {"id": 2, "price": 3}])
        other.drain()
        assert [(r["n"], str(r["p"])) for r in other.sql("SELECT * FROM sums").rows()] == [(3, "6.50")]


def test_a_table_that_is_a_stream_for_a_while() -> None:
    with App() as other:
        with App("CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1)"):
            other.sql("CREATE TABLE u (PRIMARY KEY (a)) AS SELECT * FROM memory://t")
        with App("CREATE STREAM t (a INT)"), pytest.raises(SourceError, match="is a stream now"):
            other.drain()
        with App("CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (2)"):
            wait_until(lambda: other.sql("SELECT * FROM u").rows() == [{"a": 2}])


def test_a_table_in_a_database_is_looked_at_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LOOK_OUTSIDE", 3600.0)
    looked: list[None] = []
    stop = threading.Event()
    sql = f"CREATE TABLE t (a INT PRIMARY KEY) WITH ('extension' = 'sqlite', 'path' = '{tmp_path}/x.db')"
    with App(sql):
        news = threading.Thread(
            target=lambda: looked.extend(memory.MemorySource("memory://t", {}, None).changes(stop))
        )
        news.start()
        wait_until(lambda: looked)
        time.sleep(10 * memory.LOOK)
        stop.set()
        news.join()
    assert len(looked) == 1


def test_what_tells_news_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    found = memory.MemorySource.changes
    failed: list[None] = []

    def changes(self: memory.MemorySource, stop: threading.Event) -> Iterator[None]:
        if not failed:
            failed.append(None)
            raise OSError("too many watches")
        return found(self, stop)

    monkeypatch.setattr(memory.MemorySource, "changes", changes)
    with App("CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1)") as one, App() as other:
        other.sql("CREATE TABLE u (PRIMARY KEY (a)) AS SELECT * FROM memory://t")
        wait_until(lambda: failed)
        wait_until(lambda: "too many watches" in other.table("u").health_check().reason)
        for n in (2, 3):
            one.sql(f"INSERT INTO t VALUES ({n})")
            wait_until(lambda n=n: len(other.table("u")) == n)
        assert other.table("u").health_check().status == "healthy"
