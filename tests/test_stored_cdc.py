"""Tables in a database that follow its log: what other programs change there reaches views, changefeeds and caches,
once and in the order of the commits.

This file is also the program that is killed.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond import App, Error
from millpond.changes import Changes
from millpond.errors import ConnectionLost
from millpond.testing.faults import failing
from tests.servers import Servers
from tests.test_captured import MariaShop, Shop, rows
from tests.test_kill import kill_after, run_to_the_end, running, say

VIEW = "SELECT who, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY who"


@pytest.fixture(params=["postgresql", "mariadb"])
def shop(servers: Servers, request: pytest.FixtureRequest) -> Iterator[Shop | MariaShop]:
    shop = Shop(servers.own_postgresql) if request.param == "postgresql" else MariaShop(servers.mariadb)
    yield shop
    gc.collect()  # what holds a snapshot would keep the database
    shop.end()


def with_options(shop: Shop | MariaShop, more: str = "'cdc' = 'true'") -> str:
    if isinstance(shop, Shop):
        return f"'extension' = 'postgresql', 'url' = '{shop.server.url('shop')}', {more}"
    return f"'extension' = 'mysql', 'url' = '{shop.url}', {more}"


def create(app: App, options: str) -> None:
    app.sql(
        "CREATE TABLE orders (id INT PRIMARY KEY, who STRING, amount DECIMAL(10, 2), note STRING)"
        f" WITH ({options})"
    )


class Seen:
    """What a changefeed is told: each commit, and the rows that they leave."""

    def __init__(self, app: App, table: str = "orders"):
        self.commits: list[list[dict[str, Any]]] = []
        self.lost_times = 0
        self.rows: dict[int, dict[str, Any]] = {}
        app._runtime.store.watch(table, self)

    def committed(self, change: Changes) -> None:
        self.commits.append(change.rows.to_pylist())
        gone = [False] * len(change) if change.deleted is None else change.deleted.to_pylist()
        for row, is_gone in zip(self.commits[-1], gone, strict=True):
            if is_gone:
                self.rows.pop(row["id"], None)
            else:
                self.rows[row["id"]] = row

    def lost(self, why: str) -> None:
        self.lost_times += 1

    @property
    def count(self) -> int:
        return sum(map(len, self.commits))


def check_equal(app: App, seen: Seen | None = None) -> None:
    app.drain()
    assert rows(app, "SELECT * FROM sums ORDER BY who") == rows(app, f"{VIEW} ORDER BY who")
    if seen is not None:
        there = app.sql("SELECT * FROM orders").rows()
        assert seen.rows == {row["id"]: row for row in there}


def test_what_others_change_reaches_views_and_changefeeds_once(shop: Shop | MariaShop) -> None:
    with App(_direct=True) as app:
        create(app, with_options(shop))
        app.sql(f"CREATE TABLE sums AS {VIEW}")
        seen = Seen(app)
        shop.run("INSERT INTO orders VALUES (1, 'ann', 1.50, NULL), (2, 'bob', 2, NULL)")
        check_equal(app, seen)
        assert seen.count == 2
        app.sql("INSERT INTO orders VALUES (3, 'cid', 3, 'ours')")
        app.sql("UPDATE orders SET amount = 5 WHERE id = 1")
        check_equal(app, seen)
        assert seen.count == 4  # our own are told once
        shop.run("UPDATE orders SET id = 20 WHERE id = 2; DELETE FROM orders WHERE id = 3")
        check_equal(app, seen)
        assert seen.count == 7 and sorted(seen.rows) == [1, 20]
        app.sql("DELETE FROM orders WHERE id = 1")
        check_equal(app, seen)
        assert seen.count == 8 and seen.lost_times == 0
        app.drain()
        assert seen.count == 8
        gc.collect()
        shop.run("TRUNCATE TABLE orders")
        app.drain()
        assert rows(app, "SELECT * FROM sums") == [] and seen.lost_times == 1


@pytest.mark.parametrize("point", ["stored: read", "stored: reached"])
def test_a_change_that_could_not_be_told_is_not_lost(shop: Shop | MariaShop, point: str) -> None:
    with App(_direct=True) as app:
        create(app, with_options(shop))
        app.sql(f"CREATE TABLE sums AS {VIEW}")
        shop.run("INSERT INTO orders VALUES (1, 'ann', 1.50, NULL)")
        check_equal(app)
        shop.run("UPDATE orders SET amount = 7 WHERE id = 1")
        with failing(point, ConnectionLost("gone")), pytest.raises(Error):
            app.drain()
        check_equal(app)


def test_changes_from_before_an_alter_have_no_other_columns(shop: Shop | MariaShop) -> None:
    with App(_direct=True) as app:
        app.sql(f"CREATE TABLE made (id INT PRIMARY KEY, who STRING, n INT) WITH ({with_options(shop)})")
        app.drain()
        seen = Seen(app, "made")
        shop.run("INSERT INTO made VALUES (1, 'ann', 5)")
        app.sql("ALTER TABLE made RENAME COLUMN who TO name")
        app.drain()
        assert all(row.get("name", row.get("who")) == "ann" for told in seen.commits for row in told)
        assert seen.commits or seen.lost_times
        app.sql("DROP TABLE made")


@pytest.mark.parametrize("seed", range(1))
def test_writes_of_others_between_our_own(shop: Shop | MariaShop, seed: int) -> None:
    """After each drain the view is the SELECT, and the told changes make the table."""
    choice = random.Random(seed)
    with App(_direct=True) as app:
        create(app, with_options(shop))
        app.sql(f"CREATE TABLE sums AS {VIEW}")
        seen = Seen(app)
        for _ in range(6):
            for _ in range(choice.randint(1, 5)):
                run = choice.choice([app.sql, shop.run])
                key, who, amount = choice.randint(1, 6), choice.choice("abc"), choice.randint(1, 99)
                there = rows(app, f"SELECT 1 FROM orders WHERE id = {key}")
                if not there:
                    run(f"INSERT INTO orders VALUES ({key}, '{who}', {amount}, NULL)")
                elif choice.random() < 0.7:
                    run(f"UPDATE orders SET who = '{who}', amount = {amount} WHERE id = {key}")
                else:
                    run(f"DELETE FROM orders WHERE id = {key}")
            check_equal(app, seen)


def test_it_follows_by_itself(shop: Shop | MariaShop) -> None:
    with App() as app:
        create(app, with_options(shop))
        app.sql(f"CREATE TABLE sums AS {VIEW}")
        shop.run("INSERT INTO orders VALUES (1, 'ann', 1.50, NULL)")
        deadline = time.monotonic() + 20
        while not rows(app, "SELECT * FROM sums") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert rows(app, "SELECT who, n FROM sums") == [("ann", 1)]


def named(app: App, key: int) -> list[tuple[Any, ...]]:
    return rows(app, f"SELECT who FROM orders WHERE id = {key}")


def test_a_cache_gives_up_what_others_have_changed(shop: Shop | MariaShop) -> None:
    url = shop.server.url("shop") if isinstance(shop, Shop) else shop.url
    with App(_direct=True) as app:
        create(app, f"'extension' = 'cache', 'cache.over' = '{url}', 'cdc' = 'true'")
        app.sql("INSERT INTO orders VALUES (1, 'ann', 1, NULL), (2, 'bob', 2, NULL)")
        app.drain()
        for key, who in ((1, "ann"), (2, "bob")):
            assert named(app, key) == [(who,)]
        assert app.table("orders").get_stats()["cached_rows"] == 2
        shop.run("UPDATE orders SET who = 'anna' WHERE id = 1")
        assert named(app, 1) == [("ann",)]
        app.drain()
        assert named(app, 1) == [("anna",)]
        gc.collect()  # a query that was forgotten may still hold its snapshot, and TRUNCATE waits for it
        shop.run("TRUNCATE TABLE orders")
        app.drain()
        assert named(app, 2) == []


def test_a_restart_goes_on_where_it_was(shop: Shop | MariaShop, tmp_path: Path) -> None:
    text = f"""CREATE TABLE orders (id INT PRIMARY KEY, who STRING, amount DECIMAL(10, 2), note STRING)
        WITH ({with_options(shop)}); CREATE TABLE sums AS {VIEW};"""
    with App(text, state=tmp_path / "state") as app:
        shop.run("INSERT INTO orders VALUES (1, 'ann', 1.50, NULL)")
        check_equal(app)
    shop.run("INSERT INTO orders VALUES (2, 'bob', 1.50, NULL)")
    with App(text, state=tmp_path / "state") as app:
        check_equal(app)
        position = app._runtime.store.position("log:orders")
        shop.run("DELETE FROM orders WHERE id = 1")
        check_equal(app)
        assert app._runtime.store.position("log:orders") != position
        assert shop.slots() in (1, None)
        app.sql("DROP TABLE sums; DROP TABLE orders")
        assert shop.slots() in (0, None) and app._runtime.store.position("log:orders") is None


def test_a_log_that_is_gone(servers: Servers, tmp_path: Path) -> None:
    """All rows count as changed, and it goes on at the end of the log."""
    shop, state = Shop(servers.own_postgresql), tmp_path / "state"
    with App(state=state, _direct=True) as app:
        create(app, with_options(shop))
        app.sql(f"CREATE TABLE sums AS {VIEW}")
    shop.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = 'shop'")
    with App(state=state, _direct=True) as app:
        seen = Seen(app)
        shop.run("INSERT INTO orders VALUES (1, 'ann', 1.50, NULL)")
        check_equal(app)
        shop.run("INSERT INTO orders VALUES (2, 'bob', 1.50, NULL)")
        check_equal(app)
        assert seen.lost_times == 1 and seen.count == 1
        app.sql("DROP TABLE sums; DROP TABLE orders")
    shop.end()


def test_values_are_those_of_the_table(shop: Shop | MariaShop) -> None:
    with App(_direct=True) as app:
        app.sql(
            "CREATE TABLE kinds (id BIGINT PRIMARY KEY, flag BOOLEAN, tiny TINYINT, amount DECIMAL(20, 4),"
            " ratio DOUBLE, name STRING, bytes BINARY, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ,"
            f" tags ARRAY<STRING>, place STRUCT<x: INT, y: STRING>) WITH ({with_options(shop)})"
        )
        seen = Seen(app, "kinds")
        app.sql(
            "INSERT INTO kinds VALUES (1, TRUE, -7, 12345.6789, 0.1, 'naïve ''text''', X'00FF27', DATE '2024-02-29',"
            " TIMESTAMP '2024-02-29 12:34:56.789', TIMESTAMP_NTZ '1999-12-31 23:59:59', ARRAY('a', NULL),"
            " named_struct('x', 1, 'y', 'z'))"
        )
        app.sql("INSERT INTO kinds (id) VALUES (2)")
        app.drain()
        assert list(seen.rows.values()) == app.table("kinds").backend.scan().sort_by("id").to_pylist()


def test_rows_without_a_key(shop: Shop | MariaShop) -> None:
    with App(_direct=True) as app:
        app.sql(f"CREATE TABLE papers (what STRING) WITH ({with_options(shop)})")
        app.sql("CREATE TABLE counts AS SELECT what, COUNT(*) AS n FROM papers GROUP BY what")
        app.sql("INSERT INTO papers VALUES ('a'), ('a'), ('b')")
        app.drain()
        assert rows(app, "SELECT * FROM counts ORDER BY what") == [("a", 2), ("b", 1)]
        shop.run("DELETE FROM papers WHERE what = 'b'; UPDATE papers SET what = 'c'")
        app.drain()
        assert rows(app, "SELECT * FROM counts ORDER BY what") == [("c", 2)]


def test_columns_may_change(shop: Shop | MariaShop) -> None:
    with App(_direct=True) as app:
        app.sql(f"CREATE TABLE made (id INT PRIMARY KEY, who STRING) WITH ({with_options(shop)})")
        seen = Seen(app, "made")
        app.sql("ALTER TABLE made ADD COLUMN age INT")
        app.drain()
        shop.run("INSERT INTO made (id, who, age) VALUES (1, 'ann', 41)")
        app.drain()
        assert seen.rows == {1: {"id": 1, "who": "ann", "age": 41}}
        with pytest.raises(Error, match="follows the log"):
            app.sql("ALTER TABLE made RENAME TO other")


def test_what_cannot_be_followed_is_not_created(servers: Servers) -> None:
    shop = Shop(servers.own_postgresql)
    shop.run("CREATE TABLE plain (id int UNIQUE, who text)")
    with App(_direct=True) as app:
        with pytest.raises(Error, match="the log does not say"):
            app.sql(f"CREATE TABLE plain (id INT PRIMARY KEY, who STRING) WITH ({with_options(shop)})")
        assert shop.slots() == 0
        with pytest.raises(Error, match="is not known"):
            app.table("plain")
        with pytest.raises(Error, match="cdc"):
            app.sql("CREATE TABLE r (id INT PRIMARY KEY) WITH ('extension' = 'sqlite', 'cdc' = 'true')")
    shop.end()


# kills


def work(text: str, state: str, end: str) -> None:
    say("start")
    with App(text, state=state) as app:
        say("ready")
        number = 0
        deadline = time.monotonic() + 60
        while not end and time.monotonic() < deadline:
            number += 1
            app.sql(f"UPDATE orders SET amount = amount + 1, note = '{number}' WHERE id = {number % 20}")
            say("written")
        app.drain(timeout=100)
        found = rows(app, "SELECT who, n, s FROM sums ORDER BY who")
        print(json.dumps([[str(v) for v in row] for row in found]), flush=True)


def check_kills(shop: Shop | MariaShop, state: Path, kills: int) -> None:
    text = f"""CREATE TABLE orders (id INT PRIMARY KEY, who STRING, amount DECIMAL(10, 2), note STRING)
        WITH ({with_options(shop)}); CREATE TABLE sums AS {VIEW};"""
    shop.fill()
    choice = random.Random(kills)
    for kill in range(kills):
        with running(sys.executable, "-m", __name__, text, str(state), "") as process:
            shop.run(f"UPDATE orders SET who = 'k{kill}' WHERE id = {kill % 9 + 1}")
            kill_after(process, "written", choice.randint(1, 9), choice.uniform(0, 0.1))
        shop.run(f"INSERT INTO orders VALUES ({100 + kill}, 'new', {kill}, NULL)")
    found = run_to_the_end(sys.executable, "-m", __name__, text, str(state), "end").splitlines()[-1]
    there = shop.run("SELECT who, count(*), sum(amount) FROM orders GROUP BY who ORDER BY who")
    assert json.loads(found) == [[str(v) for v in row] for row in there]
    assert shop.slots() in (1, None)


def test_kills(shop: Shop | MariaShop, tmp_path: Path) -> None:
    check_kills(shop, tmp_path / "state", 2)


@pytest.mark.chaos
def test_many_kills(shop: Shop | MariaShop, tmp_path: Path) -> None:
    check_kills(shop, tmp_path / "state", 30)


if __name__ == "__main__":
    work(*sys.argv[1:])
