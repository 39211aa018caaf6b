"""Tables that follow the changes that a database logs, and what is made of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millpond import App, Error
from millpond.errors import ConnectionLost
from tests.postgres_tables import without_slots
from tests.servers import MariaDb, Postgres, Servers


class Shop:
    """A table of orders in a database of its own."""

    def __init__(self, server: Postgres):
        self.server = server
        server.execute("DROP DATABASE IF EXISTS shop WITH (FORCE)")
        server.execute("CREATE DATABASE shop")
        self.run("CREATE TABLE orders (id int PRIMARY KEY, who text, amount numeric(10, 2), note text)")

    def run(self, sql: str) -> list[tuple[object, ...]]:
        return self.server.execute(sql, self.server.url("shop"))

    def fill(self) -> None:
        self.run("INSERT INTO orders SELECT i, 'p' || i % 3, i, NULL FROM generate_series(1, 9) i")

    def slots(self) -> int:
        return len(self.run("SELECT 1 FROM pg_replication_slots WHERE database = 'shop'"))

    def end(self) -> None:
        for (name,) in self.run(
            "SELECT slot_name FROM pg_replication_slots WHERE database = 'shop' AND NOT active"
        ):
            self.run(f"SELECT pg_drop_replication_slot('{name}')")
        self.server.execute("DROP DATABASE shop WITH (FORCE)")

    def uri(self, more: str = "", table: str = "orders") -> str:
        return f"{self.server.url('shop')}?table={table}&cdc=true{more}"


class MariaShop:
    """The same in MariaDB."""

    def __init__(self, server: MariaDb):
        self.server = server
        server.execute("DROP DATABASE IF EXISTS shop")
        self.url = server.new_database("shop")
        self.run("CREATE TABLE orders (id int PRIMARY KEY, who text, amount numeric(10, 2), note text)")

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for statement in sql.split(";"):
            found = self.server.execute(statement, "shop")
        return found

    def fill(self) -> None:
        values = ", ".join(f"({i}, 'p{i % 3}', {i}, NULL)" for i in range(1, 10))
        self.run(f"INSERT INTO orders VALUES {values}")

    def slots(self) -> int | None:
        """It keeps nothing for those who follow it."""
        return None

    def end(self) -> None:
        self.server.execute("DROP DATABASE shop")

    def uri(self, more: str = "", table: str = "orders") -> str:
        return f"{self.url}?table={table}&cdc=true{more}"


@pytest.fixture(params=["postgresql", "mariadb"])
def shop(servers: Servers, request: pytest.FixtureRequest) -> Iterator[Shop | MariaShop]:
    shop = Shop(servers.own_postgresql) if request.param == "postgresql" else MariaShop(servers.mariadb)
    yield shop
    shop.end()


in_postgresql = pytest.mark.parametrize("shop", ["postgresql"], indirect=True)
"""Of what only PostgreSQL has."""


@pytest.fixture
def app(shop: Shop) -> Iterator[App]:
    with App(_direct=True) as app:
        yield app


def rows(app: App, query: str = "SELECT id, who FROM t ORDER BY id") -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in app.sql(query).to_arrow().to_pylist()]


def copy(app: App, shop: Shop, more: str = "") -> None:
    app.sql(f"CREATE TABLE t AS SELECT * FROM '{shop.uri(more)}'")


def test_a_copy_follows_what_is_done(app: App, shop: Shop) -> None:
    shop.run("INSERT INTO orders (id, who, amount) VALUES (1, 'ann', 1.50), (2, 'bob', 2)")
    copy(app, shop)
    assert rows(app) == [(1, "ann"), (2, "bob")]
    assert app.table("t").schema.key == ("id",)
    shop.run(
        "INSERT INTO orders (id, who, amount) VALUES (3, 'cid', 3); UPDATE orders SET who = 'anna' WHERE id = 1"
    )
    shop.run("UPDATE orders SET id = 20 WHERE id = 2; DELETE FROM orders WHERE id = 3")
    app.drain()
    assert rows(app) == [(1, "anna"), (20, "bob")]
    assert app.table("t").health_check().status == "healthy"
    if shop.slots() is not None:
        assert app.table("t").get_stats()["log_bytes"] >= 0
    shop.run("TRUNCATE orders; INSERT INTO orders (id, who) VALUES (5, 'eve')")
    app.drain()
    assert rows(app) == [(5, "eve")]


def test_it_follows_by_itself_and_soon(shop: Shop) -> None:
    with App() as app:
        copy(app, shop)
        shop.run("INSERT INTO orders (id, who) VALUES (1, 'ann')")
        deadline = time.monotonic() + 20
        while not rows(app) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert rows(app) == [(1, "ann")]


def test_some_columns_under_other_names(app: App, shop: Shop) -> None:
    shop.run("INSERT INTO orders (id, who, amount) VALUES (1, 'ann', 1.50)")
    app.sql(f"CREATE TABLE t AS SELECT who AS name, id AS number FROM '{shop.uri()}'")
    shop.run("INSERT INTO orders (id, who, amount) VALUES (2, 'bob', 1.50)")
    app.drain()
    assert rows(app, "SELECT number, name FROM t ORDER BY 1") == [(1, "ann"), (2, "bob")]
    assert app.table("t").schema.key == ("number",)


@in_postgresql
def test_values_that_the_log_does_not_have(app: App, shop: Shop) -> None:
    """A long text that an update does not touch is not in the log."""
    shop.run("ALTER TABLE orders ALTER COLUMN note SET STORAGE EXTERNAL")
    shop.run("INSERT INTO orders SELECT i, 'w' || i, i, repeat(i::text, 9000) FROM generate_series(1, 3) i")
    copy(app, shop)
    shop.run("UPDATE orders SET who = 'x' WHERE id = 1; UPDATE orders SET id = 22 WHERE id = 2")
    shop.run(
        "BEGIN; UPDATE orders SET id = 33 WHERE id = 3; UPDATE orders SET who = 'y' WHERE id = 33;"
        "INSERT INTO orders VALUES (4, 'd', 1, repeat('4', 9000)); UPDATE orders SET who = 'z' WHERE id = 4; COMMIT"
    )
    app.drain()
    found = rows(app, "SELECT id, who, length(note), left(note, 1) FROM t ORDER BY id")
    assert found == [(1, "x", 9000, "1"), (4, "z", 9000, "4"), (22, "w2", 9000, "2"), (33, "y", 9000, "3")]


@in_postgresql
def test_a_table_without_a_key(app: App, shop: Shop) -> None:
    shop.run("CREATE TABLE log (what text, n int); ALTER TABLE log REPLICA IDENTITY FULL")
    shop.run("INSERT INTO log VALUES ('a', 1), ('a', 1), (NULL, 2)")
    app.sql(f"CREATE TABLE t AS SELECT * FROM '{shop.uri(table='log')}'")
    shop.run("INSERT INTO log VALUES ('b', 3); UPDATE log SET n = 9 WHERE n = 2")
    shop.run("DELETE FROM log WHERE ctid = (SELECT min(ctid) FROM log WHERE what = 'a')")
    app.drain()
    assert rows(app, "SELECT what, n FROM t ORDER BY n") == [("a", 1), ("b", 3), (None, 9)]


def test_live_tables_over_a_copy_follow_updates_and_deletes(app: App, shop: Shop) -> None:
    shop.fill()
    copy(app, shop)
    app.sql("CREATE TABLE sums AS SELECT who, count(*) AS n, sum(amount) AS total FROM t GROUP BY who")
    shop.run("DELETE FROM orders WHERE id = 3; UPDATE orders SET who = 'p9' WHERE id IN (1, 4)")
    app.drain()
    wanted = shop.run("SELECT who, count(*), sum(amount) FROM orders GROUP BY who ORDER BY who")
    assert rows(app, "SELECT * FROM sums ORDER BY who") == wanted


def test_an_aggregate_over_the_table_itself(app: App, shop: Shop) -> None:
    """Whatever is more than a copy is made of a copy that nobody sees."""
    shop.fill()
    app.sql(f"CREATE TABLE t AS SELECT who, sum(amount) AS s FROM '{shop.uri()}' WHERE id <> 5 GROUP BY who")
    app.sql(f"CREATE TABLE few AS SELECT id FROM '{shop.uri()}' WHERE amount > 7")
    assert shop.slots() in (1, None)
    shop.run("UPDATE orders SET amount = 100 WHERE id = 5; DELETE FROM orders WHERE id = 8")
    shop.run("UPDATE orders SET amount = 1 WHERE id = 9")
    app.drain()
    wanted = shop.run("SELECT who, sum(amount) FROM orders WHERE id <> 5 GROUP BY who ORDER BY who")
    assert rows(app, "SELECT * FROM t ORDER BY who") == wanted
    assert rows(app, "SELECT id FROM few") == [(5,)]
    app.sql("DROP TABLE few")
    assert shop.slots() in (1, None)
    app.sql("DROP TABLE t")
    assert shop.slots() in (0, None)


def test_a_stream_meets_rows_that_change(app: App, shop: Shop) -> None:
    shop.run("INSERT INTO orders (id, who, amount) VALUES (1, 'ann', 1)")
    app.sql("CREATE STREAM s (id INT)")
    app.sql(f"CREATE TABLE t AS SELECT s.id, o.who FROM s LEFT JOIN '{shop.uri()}' o ON s.id = o.id")
    app.send("s", [{"id": 1}])
    app.drain()
    shop.run("UPDATE orders SET who = 'anna'; INSERT INTO orders (id, who) VALUES (2, 'bob')")
    app.drain()
    app.send("s", [{"id": 1}, {"id": 2}])
    app.drain()
    assert sorted(rows(app, "SELECT id, who FROM t")) == [(1, "ann"), (1, "anna"), (2, "bob")]


def test_what_explain_says(app: App, shop: Shop) -> None:
    lines = app.sql(f"EXPLAIN CREATE TABLE t AS SELECT * FROM '{shop.uri()}'").to_arrow()["plan"].to_pylist()
    assert "follows its sources: by the change log of the database, one transaction at a time" in lines
    query = f"SELECT who, count(*) AS n FROM '{shop.uri()}' GROUP BY who"
    lines = app.sql(f"EXPLAIN CREATE TABLE t AS {query}").to_arrow()["plan"].to_pylist()
    assert any(
        line.startswith("follows its inputs: by changes")
        and line.endswith("a change recomputes the rows with the same who")
        for line in lines
    )
    assert shop.slots() in (0, None)


def test_a_question_makes_no_slot(app: App, shop: Shop) -> None:
    shop.run("INSERT INTO orders (id, who, amount) VALUES (1, 'ann', 1)")
    assert rows(app, f"SELECT id, who FROM '{shop.uri()}'") == [(1, "ann")]
    assert shop.slots() in (0, None)


def test_a_restart_goes_on_where_it_was(tmp_path: Path, shop: Shop) -> None:
    shop.run("INSERT INTO orders (id, who, amount) VALUES (1, 'ann', 1), (2, 'bob', 2)")
    with App(state=tmp_path / "s", _direct=True) as app:
        copy(app, shop)
        app.sql("CREATE TABLE n AS SELECT count(*) AS n, sum(amount) AS s FROM t")
    assert shop.slots() in (1, None)
    shop.run("DELETE FROM orders WHERE id = 1; INSERT INTO orders (id, who, amount) VALUES (3, 'cid', 3)")
    with App(state=tmp_path / "s", _direct=True) as app:
        app.drain()
        assert rows(app) == [(2, "bob"), (3, "cid")]
        assert rows(app, "SELECT n, CAST(s AS INT) FROM n") == [(2, 5)]
        app.sql("DROP TABLE n")
        app.sql("DROP TABLE t")
    assert shop.slots() in (0, None)


@in_postgresql
def test_an_app_that_keeps_nothing_leaves_nothing(shop: Shop) -> None:
    with App() as app:
        copy(app, shop)
        assert shop.slots() in (1, None)
    assert shop.slots() in (0, None)


def test_columns_that_come_and_go(app: App, shop: Shop) -> None:
    shop.run("INSERT INTO orders (id, who, amount) VALUES (1, 'ann', 1)")
    copy(app, shop)
    shop.run("ALTER TABLE orders ADD COLUMN town text")
    shop.run("INSERT INTO orders VALUES (2, 'bob', 2, NULL, 'Ulm')")
    app.drain()
    assert rows(app, "SELECT id, town FROM t ORDER BY id") == [(1, None), (2, "Ulm")]
    shop.run("ALTER TABLE orders DROP COLUMN amount; INSERT INTO orders VALUES (3, 'cid', NULL, 'Bonn')")
    app.drain()
    assert rows(app, "SELECT id, amount, town FROM t WHERE id = 3") == [(3, None, "Bonn")]


def test_without_a_load_only_changes_come(app: App, shop: Shop) -> None:
    shop.run("INSERT INTO orders (id, who, amount) VALUES (1, 'ann', 1)")
    copy(app, shop, "&initial.load=none")
    shop.run("INSERT INTO orders (id, who, amount) VALUES (2, 'bob', 1)")
    app.drain()
    assert rows(app) == [(2, "bob")]


@in_postgresql
def test_a_place_that_the_log_does_not_have(app: App, shop: Shop) -> None:
    shop.run("INSERT INTO orders (id, who) VALUES (1, 'ann')")
    copy(app, shop, "&initial.load=none&cdc.start=0/1500000")
    app.drain()
    health = app.table("t").health_check()
    assert rows(app) == [] and health.status == "stale" and "0/1500000" in health.reason


def test_what_cannot_be_captured(app: App, shop: Shop) -> None:
    for more, said in (
        ("&where=id>1", '"cdc" and "where"'),
        ("&limit=3", "not of a query"),
        ("&cdc.start=earliest", "initial.load"),
    ):
        with pytest.raises(Error) as caught:
            copy(app, shop, more)
        assert said in str(caught.value)
    assert shop.slots() in (0, None)


@in_postgresql
def test_a_lost_slot_leaves_the_table_and_says_so(app: App, shop: Shop) -> None:
    shop.run("INSERT INTO orders (id, who, amount) VALUES (1, 'ann', 1)")
    copy(app, shop)
    app.drain()
    assert isinstance(shop.server, Postgres)
    without_slots(shop.server)
    with pytest.raises(Error, match="slot"):
        while True:  # first it may notice that its connection is gone
            with suppress(ConnectionLost):
                app.drain()
    assert rows(app) == [(1, "ann")]
    health = app.table("t").health_check()
    assert health.status == "stale" and "slot" in health.reason


@in_postgresql
def test_a_login_that_may_not_follow_changes_polls_or_reads_once(app: App, shop: Shop) -> None:
    shop.run("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN; GRANT SELECT ON orders TO guest")
    shop.run("INSERT INTO orders (id, who, amount) VALUES (1, 'ann', 1)")
    uri = f"{shop.server.url('shop', user='guest')}?table=orders&cdc=true"
    app.sql(f"CREATE TABLE t AS SELECT * FROM '{uri}'")
    health = app.table("t").health_check()
    assert rows(app) == [(1, "ann")] and health.status == "stale" and "REPLICATION" in health.reason
    app.sql(f"CREATE TABLE u AS SELECT * FROM '{uri}&incremental.column=id&poll.interval=10ms'")
    shop.run("INSERT INTO orders (id, who, amount) VALUES (2, 'bob', 1)")
    app.sql("DROP TABLE t")
    app.drain()
    assert rows(app, "SELECT id, who FROM u ORDER BY id") == [(1, "ann"), (2, "bob")]
    shop.run("DROP OWNED BY guest; DROP ROLE guest")


@in_postgresql
def test_more_transactions_than_are_taken_at_once(
    app: App, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.connectors.cdc.source.CHANGES", 10)
    copy(app, shop)
    with psycopg.connect(shop.server.url("shop"), autocommit=True) as connection:
        for i in range(100):
            connection.execute("INSERT INTO orders (id, who) VALUES (%s, %s)", (i, f"p{i}"))
        connection.execute("UPDATE orders SET amount = 1")
    app.drain()
    assert rows(app, "SELECT count(*), CAST(sum(amount) AS INT) FROM t") == [(100, 100)]


def test_a_stream_of_changes(app: App, shop: Shop) -> None:
    shop.run("INSERT INTO orders (id, who, amount) VALUES (1, 'ann', 1.50)")
    with pytest.raises(Error, match="gives envelopes"):
        app.sql(f"CREATE STREAM c WITH ('connector' = '{shop.uri()}')")
    app.sql(f"CREATE STREAM c WITH ('connector' = '{shop.uri('&cdc.format=debezium')}')")
    app.sql(
        "CREATE TABLE t AS SELECT op, before.id AS old, after.id AS id, after.who AS who, after.amount AS amount,"
        " source.table AS origin FROM c"
    )
    shop.run(
        "INSERT INTO orders (id, who, amount) VALUES (2, 'bob', 2); UPDATE orders SET who = 'bert' WHERE id = 2"
    )
    shop.run("UPDATE orders SET id = 3 WHERE id = 2; DELETE FROM orders WHERE id = 3; TRUNCATE orders")
    app.drain()
    assert rows(app, "SELECT op, old, id, who, CAST(amount AS DOUBLE), origin FROM t") == [
        ("r", None, 1, "ann", 1.5, "orders"),
        ("c", None, 2, "bob", 2.0, "orders"),
        ("u", None, 2, "bert", 2.0, "orders"),
        ("d", 2, None, None, None, "orders"),
        ("u", None, 3, "bert", 2.0, "orders"),
        ("d", 3, None, None, None, "orders"),
        ("t", None, None, None, None, "orders"),
    ]
    app.sql("DROP STREAM c CASCADE")
    assert shop.slots() in (0, None)


def test_a_stream_of_changes_goes_on_after_a_restart(tmp_path: Path, shop: Shop) -> None:
    with App(state=tmp_path / "s", _direct=True) as app:
        app.sql(f"CREATE STREAM c WITH ('connector' = '{shop.uri('&cdc.format=debezium')}')")
        app.sql("CREATE TABLE t AS SELECT after.id AS id, count(*) AS n FROM c GROUP BY after.id")
        shop.run("INSERT INTO orders (id, who, amount) VALUES (1, 'ann', 1)")
        app.drain()
    shop.run(
        "INSERT INTO orders (id, who, amount) VALUES (2, 'bob', 2); UPDATE orders SET who = 'x' WHERE id = 1"
    )
    with App(state=tmp_path / "s", _direct=True) as app:
        app.drain()
        assert rows(app, "SELECT id, n FROM t ORDER BY id") == [(1, 2), (2, 1)]
        app.sql("DROP STREAM c CASCADE")
    assert shop.slots() in (0, None)


def test_what_is_dropped_while_it_cannot_be_followed_leaves_nothing(tmp_path: Path, shop: Shop) -> None:
    with App(state=tmp_path / "s", _direct=True) as app:
        copy(app, shop)
    shop.run("DROP TABLE orders")
    with App(state=tmp_path / "s", _direct=True) as app:
        assert app.table("t").health_check().status == "stale"
        app.sql("DROP TABLE t")
    assert shop.slots() in (0, None)


@in_postgresql
def test_names_that_differ_in_case_are_other_tables(app: App, shop: Shop) -> None:
    shop.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    shop.run('CREATE TABLE "T" (id int PRIMARY KEY); INSERT INTO "T" VALUES (2)')
    app.sql(f"CREATE TABLE a AS SELECT sum(id) AS s FROM '{shop.uri(table='t')}'")
    app.sql(f"CREATE TABLE b AS SELECT sum(id) AS s FROM '{shop.uri(table='T')}'")
    assert rows(app, "SELECT s FROM a UNION ALL SELECT s FROM b") == [(1,), (2,)]


@in_postgresql
def test_what_could_not_be_loaded_is_loaded_when_it_can(app: App, shop: Shop) -> None:
    shop.run("INSERT INTO orders VALUES (1, 'ann', 'NaN')")
    query = f"CREATE TABLE n AS SELECT count(*) AS n FROM '{shop.uri()}'"
    with pytest.raises(Error):
        app.sql(query)
    with pytest.raises(Error):
        app.sql(f"CREATE STREAM c WITH ('connector' = '{shop.uri('&cdc.format=debezium')}')")
    assert shop.slots() == 0
    shop.run("UPDATE orders SET amount = 1")
    app.sql(query)
    app.sql(f"CREATE STREAM c WITH ('connector' = '{shop.uri('&cdc.format=debezium')}')")
    assert rows(app, "SELECT n FROM n") == [(1,)]


def test_a_copy_that_others_are_made_of_gets_no_new_columns_but_later_ones_have_them(
    app: App, shop: Shop
) -> None:
    shop.run("INSERT INTO orders (id, who) VALUES (1, 'ann')")
    app.sql(f"CREATE TABLE a AS SELECT count(*) AS n FROM '{shop.uri()}'")
    copy(app, shop)
    shop.run("ALTER TABLE orders ADD COLUMN town text")
    shop.run("INSERT INTO orders (id, who, town) VALUES (2, 'bob', 'Ulm')")
    app.drain()
    app.sql(f"CREATE TABLE b AS SELECT town, count(*) AS n FROM '{shop.uri()}' GROUP BY town")
    assert rows(app, "SELECT n FROM a") == [(2,)]
    assert sorted(rows(app, "SELECT town, n FROM b"), key=str) == [("Ulm", 1), (None, 1)]
    assert rows(app, f"SELECT town FROM '{shop.uri()}' WHERE id = 2") == [("Ulm",)]


@in_postgresql
def test_no_password_is_shown(app: App, shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.run("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN; GRANT SELECT ON orders TO guest")
    uri = shop.server.url("shop", user="guest").replace("guest@", "guest:geheim@")
    app.sql(f"CREATE TABLE n AS SELECT count(*) AS n FROM '{uri}?table=orders&cdc=true&password=geheim'")
    health = app.table("n").health_check()
    assert health.status == "stale" and "REPLICATION" in health.reason
    told = [
        caplog.text,
        str(health),
        str(app.sql("SHOW TABLES").rows()),
        str(dict(app.table("n").get_stats())),
    ]
    assert not any("geheim" in text for text in told)
    app.sql("DROP TABLE n")
    shop.run("DROP OWNED BY guest; DROP ROLE guest")
