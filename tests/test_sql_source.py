"""Tables of databases that SQLAlchemy reaches, with SQLite and DuckDB as examples: read once, or polled."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from millpond import App, Error
from millpond.connectors.source import find_source
from millpond.errors import (
    BadData,
    DatabaseMissing,
    InvalidOption,
    NotSupported,
    PackageMissing,
    SourceError,
    TableMissing,
    TimedOut,
)


@pytest.fixture
def app() -> Iterator[App]:
    with App(_direct=True) as app:
        yield app


@pytest.fixture(scope="module")
def asked() -> Iterator[App]:
    """One for all questions that are refused."""
    with App(_direct=True) as app:
        yield app


class Shop:
    """A SQLite database with orders."""

    def __init__(self, folder: Path):
        self.path = folder / "shop.db"
        self.connection = sqlite3.connect(self.path)
        self.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, who TEXT, amount DECIMAL(10, 2), v INTEGER)")

    def run(self, sql: str, *values: Any) -> None:
        with self.connection:
            self.connection.execute(sql, values)

    def put(self, key: int, who: str, v: int, amount: float = 1.5) -> None:
        self.run("INSERT OR REPLACE INTO orders VALUES (?, ?, ?, ?)", key, who, amount, v)

    def uri(self, more: str = "table=orders") -> str:
        return f"sql://sqlite:///{self.path}?{more}"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.connection.close()


def rows(app: App, query: str = "SELECT id, who FROM t ORDER BY id") -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in app.sql(query).to_arrow().to_pylist()]


def follow(app: App, shop: Shop, more: str = "", select: str = "SELECT *") -> None:
    app.sql(f"CREATE TABLE t AS {select} FROM '{shop.uri()}' WITH ('poll.interval' = '10ms'{more})")


BY_V = ", 'incremental.column' = 'v'"


def test_a_table_is_read_once_with_its_types_and_key(app: App, shop: Shop) -> None:
    shop.put(1, "ann", 1, 2.25)
    shop.run("INSERT INTO orders VALUES (2, NULL, NULL, NULL)")
    app.sql(f"CREATE TABLE t AS SELECT * FROM '{shop.uri()}'")
    assert rows(app, "SELECT * FROM t ORDER BY id") == [
        (1, "ann", Decimal("2.25"), 1),
        (2, None, None, None),
    ]
    assert app.table("t").schema.key == ("id",)
    assert app.table("t").health_check().status == "static"
    shop.put(3, "new", 1)
    app.drain()
    assert len(rows(app)) == 2


def test_a_key_that_is_not_selected_or_is_refused_is_no_key(app: App, shop: Shop) -> None:
    app.sql(f"CREATE TABLE a AS SELECT who FROM '{shop.uri()}'")
    app.sql(f"CREATE TABLE b AS SELECT id + 1 AS id FROM '{shop.uri()}'")
    app.sql(f"CREATE TABLE c AS SELECT * FROM '{shop.uri()}' WITH ('primary.key' = '')")
    app.sql(f"CREATE TABLE d AS SELECT id AS n, who FROM '{shop.uri()}' WHERE v > 1")
    app.sql(f"CREATE TABLE e AS SELECT who, count(*) AS n FROM '{shop.uri()}' GROUP BY who")
    assert [app.table(name).schema.key for name in "abcde"] == [(), (), (), ("n",), ("who",)]


def test_rows_with_a_growing_column_are_followed(app: App, shop: Shop) -> None:
    shop.put(1, "ann", 1)
    shop.put(2, "bob", 2)
    follow(app, shop, BY_V)
    shop.put(3, "cid", 3)
    shop.put(1, "anna", 4)
    app.drain()
    assert rows(app) == [(1, "anna"), (2, "bob"), (3, "cid")]
    assert app.table("t").health_check().status == "healthy"


def test_rows_that_share_the_last_value_are_neither_lost_nor_doubled(app: App, shop: Shop) -> None:
    shop.put(1, "ann", 7)
    app.sql(
        f"CREATE TABLE t AS SELECT id, who FROM '{shop.uri()}'"
        " WITH ('poll.interval' = '10ms', 'incremental.column' = 'v', 'primary.key' = '')"
    )
    for key, who in ((2, "bob"), (3, "cid"), (0, "dan")):
        shop.put(key, who, 7)
        app.drain()
        app.drain()
    shop.put(4, "eve", 8)
    shop.put(5, "fay", 7)
    app.drain()
    assert rows(app) == [(0, "dan"), (1, "ann"), (2, "bob"), (3, "cid"), (4, "eve"), (5, "fay")]


def test_equal_rows_at_the_last_value_are_counted(app: App, shop: Shop) -> None:
    shop.run("CREATE TABLE log (v INTEGER, what TEXT)")
    shop.run("INSERT INTO log VALUES (1, 'a'), (1, 'a')")
    app.sql(
        f"CREATE TABLE t AS SELECT * FROM '{shop.uri('table=log')}'"
        " WITH ('poll.interval' = '10ms', 'incremental.column' = 'v')"
    )
    app.drain()
    assert rows(app, "SELECT count(*) FROM t") == [(2,)]
    shop.run("INSERT INTO log VALUES (1, 'a')")
    app.drain()
    assert rows(app, "SELECT count(*) FROM t") == [(3,)]


def test_more_rows_than_are_known_one_by_one_share_a_value(
    app: App, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.connectors.databases.incremental.MANY", 3)
    for key in range(5):
        shop.put(key, "ann", 1)
    follow(app, shop, BY_V)
    shop.put(9, "bob", 1)
    app.drain()
    assert len(rows(app)) == 6
    shop.put(10, "cid", 2)
    app.drain()
    assert len(rows(app)) == 7


def test_more_rows_than_are_known_one_by_one_are_not_doubled(
    app: App, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.connectors.databases.incremental.MANY", 3)
    shop.run("CREATE TABLE log (v INTEGER, what TEXT)")
    shop.run("INSERT INTO log VALUES (1, 'a'), (1, 'b'), (1, 'c'), (1, 'd'), (NULL, 'e')")
    app.sql(
        f"CREATE TABLE t AS SELECT * FROM '{shop.uri('table=log')}'"
        " WITH ('poll.interval' = '10ms', 'incremental.column' = 'v')"
    )
    shop.run("INSERT INTO log VALUES (2, 'f')")
    app.drain()
    assert rows(app, "SELECT count(*) FROM t") == [(6,)]


def test_a_table_that_begins_without_values_is_not_doubled(app: App, shop: Shop) -> None:
    shop.run("CREATE TABLE log (v INTEGER, what TEXT)")
    shop.run("INSERT INTO log VALUES (NULL, 'a')")
    app.sql(
        f"CREATE TABLE t AS SELECT * FROM '{shop.uri('table=log')}'"
        " WITH ('poll.interval' = '10ms', 'incremental.column' = 'v')"
    )
    shop.run("INSERT INTO log VALUES (1, 'b')")
    app.drain()
    assert rows(app, "SELECT what FROM t ORDER BY 1") == [("a",), ("b",)]


def test_rows_without_a_value_are_loaded_and_an_empty_table_begins(app: App, shop: Shop) -> None:
    follow(app, shop, BY_V)
    assert rows(app) == []
    shop.run("INSERT INTO orders (id, who) VALUES (1, 'nobody')")
    app.drain()
    assert rows(app) == []  # it has no value that could be new
    shop.put(2, "bob", 1)
    app.drain()
    assert (2, "bob") in rows(app)


def test_without_a_growing_column_everything_is_compared(app: App, shop: Shop) -> None:
    shop.put(1, "ann", 1)
    shop.put(2, "bob", 1)
    follow(app, shop)
    shop.put(2, "bert", 1)
    shop.run("DELETE FROM orders WHERE id = 1")
    app.drain()
    assert rows(app) == [(2, "bert")]


def test_deleted_rows_are_found_by_a_comparison(app: App, shop: Shop) -> None:
    shop.put(1, "ann", 1)
    shop.put(2, "bob", 2)
    follow(app, shop, BY_V + ", 'compare.interval' = '1ms'")
    shop.run("DELETE FROM orders WHERE id = 2")
    shop.put(3, "cid", 1)  # older than what was seen
    app.drain()
    assert rows(app) == [(1, "ann"), (3, "cid")]


@pytest.mark.parametrize("sign", [">", ">="])
def test_a_query_for_what_is_new(app: App, shop: Shop, sign: str) -> None:
    """Its ? is the last value, and whether it asks for that too makes no difference."""
    shop.put(1, "ann", 1)
    app.sql(
        f"CREATE TABLE t AS SELECT id, who FROM '{shop.uri()}' WITH ('poll.interval' = '10ms', 'primary.key' = '',"
        f" 'incremental.column' = 'v', 'poll.query' = 'SELECT * FROM orders WHERE v {sign} ?')"
    )
    shop.put(2, "bob", 1)
    app.drain()
    shop.put(3, "cid", 2)
    app.drain()
    app.drain()
    assert rows(app) == [(1, "ann"), (2, "bob"), (3, "cid")]


def test_a_query_for_what_is_new_alone(app: App, shop: Shop) -> None:
    shop.put(1, "ann", 1)
    uri = shop.uri('poll.query="SELECT * FROM orders WHERE v > ?"&incremental.column=v&poll.interval=10ms')
    app.sql(f"CREATE TABLE t AS SELECT id, who FROM '{uri}'")
    shop.put(2, "bob", 2)
    app.drain()
    assert rows(app) == [(1, "ann"), (2, "bob")]


def test_where_it_was_survives_a_restart(tmp_path: Path, shop: Shop) -> None:
    shop.put(1, "ann", 1)
    with App(state=tmp_path / "state", _direct=True) as app:
        follow(app, shop, BY_V)
    shop.run("DELETE FROM orders")  # what was seen is not looked at again
    shop.put(2, "bob", 1)
    with App(state=tmp_path / "state", _direct=True) as app:
        app.drain()
        assert rows(app) == [(1, "ann"), (2, "bob")]


def test_columns_come_and_go(app: App, shop: Shop) -> None:
    shop.put(1, "ann", 1)
    follow(app, shop)
    shop.run("ALTER TABLE orders ADD COLUMN town TEXT")
    shop.run("INSERT INTO orders VALUES (2, 'bob', 1, 2, 'Ulm')")
    app.drain()
    assert rows(app, "SELECT id, town FROM t ORDER BY id") == [(1, None), (2, "Ulm")]
    shop.run("ALTER TABLE orders DROP COLUMN amount")
    shop.run("INSERT INTO orders VALUES (3, 'cid', 1, 'Bonn')")
    app.drain()
    assert rows(app, "SELECT id, amount, town FROM t WHERE id = 3") == [(3, None, "Bonn")]


def test_a_lost_table_leaves_what_was_read(app: App, shop: Shop) -> None:
    shop.put(1, "ann", 1)
    follow(app, shop)
    shop.run("ALTER TABLE orders RENAME TO others")
    with pytest.raises(TableMissing):
        app.drain()
    assert rows(app) == [(1, "ann")]
    assert app.table("t").health_check().status == "stale"
    shop.run("ALTER TABLE others RENAME TO orders")
    app.drain()
    assert app.table("t").health_check().status == "healthy"


def test_queries_and_their_values(app: App, shop: Shop) -> None:
    for key in range(5):
        shop.put(key, f"p{key}", key)
    query = "SELECT who, sum(amount) AS total FROM orders WHERE id > ? AND who <> ? GROUP BY who"
    uri = shop.uri(f'query="{query}"')
    app.sql(f"CREATE TABLE t AS SELECT * FROM '{uri}' WITH ('query.params' = '[2, \"p4\"]')")
    assert rows(app, "SELECT who, total FROM t") == [("p3", 1.5)]
    uri = shop.uri('query="SELECT who FROM orders WHERE who = ?"')
    hostile = "x'' OR 1=1 --"
    answer = app.sql(f"CREATE TABLE u AS SELECT * FROM '{uri}' WITH ('query.params' = '{hostile}')")
    assert answer.count == 0


@pytest.mark.parametrize(
    ("more", "error", "said"),
    [
        ('query="DELETE FROM orders"', InvalidOption, "is not one SELECT"),
        ('query="SELECT 1; DROP TABLE orders"', InvalidOption, "is not one SELECT"),
        (
            'query="WITH d AS (DELETE FROM orders RETURNING *) SELECT * FROM d"',
            InvalidOption,
            "not one SELECT",
        ),
        ('query="SELECT * INTO x FROM orders"', InvalidOption, "is not one SELECT"),
        ('query="PRAGMA writable_schema = 1"', InvalidOption, "is not one SELECT"),
        ('table=orders&query="SELECT 1"', InvalidOption, "in two ways"),
        ("", InvalidOption, "no table is named"),
        ("table=ordres", TableMissing, "has no table"),
        ('table=orders"; DROP TABLE orders; --', TableMissing, "has no table"),
        ("table=orders&schema=main; DROP TABLE orders", SourceError, ""),
        ('table=orders&where="1=1; DROP TABLE orders"', InvalidOption, "is not a condition"),
        ('table=orders&where="1=1) UNION SELECT 1,2,3,4 --"', InvalidOption, "is not a condition"),
        ('table=orders&where="1=1 ORDER BY 1"', InvalidOption, "is not a condition"),
        ("table=orders&order.by=id; DROP TABLE orders", InvalidOption, "cannot be"),
        ("table=orders&order.by=nothing", InvalidOption, "cannot be"),
        ("table=orders&limit=1; DROP TABLE orders", InvalidOption, "cannot be"),
        ("table=orders&incremental.column=v", InvalidOption, "is for a table that is polled"),
        ("table=orders&poll.interval=1s&incremental.column=nothing", InvalidOption, "is not in table"),
        ("table=orders&poll.interval=1s&incremental.column=who", InvalidOption, "is a string"),
        ("table=orders&poll.interval=1s&poll.query=SELECT 1", InvalidOption, "whose last value"),
        ("table=orders&cdc=true", Error, "cdc"),
        ('query="SELECT ? FROM orders"&query.params=[[1]]', InvalidOption, "an object or an array"),
        ('query="SELECT ? FROM orders"&query.params=[1,', InvalidOption, "is no JSON array"),
        ('table=orders&where="1=1 /*!50000 OR 1=1 */"', InvalidOption, "a comment that is run"),
        ('table=orders&pool.validation.query="DELETE FROM orders"', InvalidOption, "is not one SELECT"),
        ('table=orders&pool.validation.query="SELECT nothing"', InvalidOption, "fails at"),
        ("table=orders&batch.size=0", InvalidOption, "cannot be"),
        ("table=orders&fetch.size=-5", InvalidOption, "cannot be"),
        ('query="SELECT 1 FROM orders"&query.params=1', InvalidOption, "has 0 ? and 1 values"),
        ("table=orders&query.params=1", InvalidOption, "is for a query"),
    ],
)
def test_what_is_wrong_is_told(asked: App, shop: Shop, more: str, error: type[Error], said: str) -> None:
    shop.put(1, "ann", 1)
    with pytest.raises(error) as caught:
        text = more.replace("'", "''")
        asked.sql(f"SELECT * FROM '{shop.uri(text)}'")
    assert said in str(caught.value)
    assert shop.connection.execute("SELECT count(*) FROM orders").fetchall() == [(1,)]


def test_what_a_query_needs_is_asked_for(app: App, shop: Shop) -> None:
    for key in range(10):
        shop.put(key, f"p{key % 2}", key)
    where = "id > 5 AND who = 'p1' AND amount > 0"
    query = f"SELECT who, sum(amount) AS s FROM '{shop.uri()}' o WHERE {where} GROUP BY who"
    plan = "\n".join(app.sql(f"EXPLAIN {query}").to_arrow()["plan"].to_pylist())
    assert """SELECT "id", "who", "amount" FROM "orders" WHERE ("id" > 5) AND ("who" = 'p1')""" in plan
    assert rows(app, query) == [("p1", Decimal("3.00"))]
    plan = "\n".join(
        app.sql(f"EXPLAIN SELECT who FROM '{shop.uri()}' LIMIT 3").to_arrow()["plan"].to_pylist()
    )
    assert 'SELECT "who" FROM "orders" LIMIT 3' in plan.replace(" OFFSET 0", "")
    assert len(rows(app, f"SELECT who FROM '{shop.uri()}' LIMIT 3")) == 3
    assert rows(app, f"SELECT count(*) FROM '{shop.uri()}'") == [(10,)]

    def sent(query: str) -> str:
        return "\n".join(app.sql(f"EXPLAIN {query}").to_arrow()["plan"].to_pylist()).replace(" OFFSET 0", "")

    # A limit goes along beside a condition that the database looks for just as Spark does.
    asked = f"SELECT who FROM '{shop.uri()}' o"
    for where in ("v > 5", "v > 5 AND id IN (7, 8, 9)", "NOT v <= 5 OR o.who IS NULL", "v BETWEEN 6 AND 9"):
        assert "LIMIT 2" in sent(f"{asked} WHERE {where} LIMIT 2"), where
        assert len(rows(app, f"{asked} WHERE {where} LIMIT 2")) == 2
    for where in (
        "who = 'p1'",
        "v > 5 AND who LIKE 'p%'",
        "v % 2 = 1",
        "amount > 1",
        "v > 5 AND length(who) = 2",
    ):
        assert "LIMIT 2 " not in sent(f"{asked} WHERE {where} LIMIT 2") + " ", where
        assert len(rows(app, f"{asked} WHERE {where} LIMIT 2")) == 2
    assert rows(app, f"SELECT a FROM '{shop.uri()}' AS o(a, b, c, d) WHERE a = 3") == [(3,)]
    assert len(rows(app, f"SELECT * FROM '{shop.uri('table=orders&limit=4&order.by=id DESC')}'")) == 4
    assert rows(
        app, f"SELECT id FROM '{shop.uri('table=orders&limit=2&order.by=id DESC')}' WHERE id < 9"
    ) == [(8,)]
    uri = shop.uri('table=orders&where="id % 4 = 3 -- three"')
    assert rows(app, f"SELECT id FROM '{uri}'") == [(3,), (7,)]


def test_several_readers_read_ranges_of_the_key(app: App, shop: Shop) -> None:
    with shop.connection:
        values = [(i * 7, f"p{i}", 1, 1) for i in range(20_000)]
        shop.connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", values)
    app.sql(
        f"CREATE TABLE t AS SELECT * FROM '{shop.uri()}' WITH ('parallel.readers' = '4', 'fetch.size' = '500')"
    )
    assert rows(app, "SELECT count(*), sum(id), count(DISTINCT who) FROM t") == [
        (20_000, 7 * 199_990_000, 20_000)
    ]


def test_declared_columns(app: App, shop: Shop) -> None:
    shop.put(1, "ann", 1, 2.5)
    app.sql(f"CREATE TABLE t (id INT, who STRING, amount STRING, v INT) AS SELECT * FROM '{shop.uri()}'")
    assert rows(app, "SELECT * FROM t") == [(1, "ann", "2.50", 1)]
    shop.put(2, "bob", 2**40)
    with pytest.raises(Error) as caught:
        app.sql(f"CREATE TABLE u (v INT) AS SELECT v FROM '{shop.uri()}'")
    assert "v" in str(caught.value)


def test_a_value_that_is_not_of_its_type(app: App, shop: Shop) -> None:
    shop.run("CREATE TABLE bad (id INTEGER PRIMARY KEY, at TIMESTAMP)")
    shop.run("INSERT INTO bad VALUES (1, '2024-05-01 10:00:00'), (2, 'yesterday')")
    with pytest.raises(BadData, match='column "at" has the value "yesterday"'):
        app.sql(f"SELECT * FROM '{shop.uri('table=bad')}'")


def test_a_stream_over_a_polled_table(app: App, shop: Shop) -> None:
    shop.put(1, "ann", 1)
    app.sql(
        f"CREATE STREAM s WITH ('connector' = '{shop.uri()}', 'poll.interval' = '10ms', 'incremental.column' = 'v')"
    )
    app.sql("CREATE TABLE t AS SELECT who, count(*) AS n FROM s GROUP BY who")
    app.drain()
    shop.put(2, "ann", 1)
    shop.put(3, "bob", 2)
    app.drain()
    assert rows(app, "SELECT who, n FROM t ORDER BY who") == [("ann", 2), ("bob", 1)]


def test_a_stream_meets_a_polled_table(app: App, shop: Shop) -> None:
    shop.put(1, "ann", 1)
    app.sql("CREATE STREAM s (id INT)")
    app.sql(
        f"CREATE TABLE t AS SELECT s.id, o.who FROM s JOIN '{shop.uri()}' o ON s.id = o.id"
        " WITH ('poll.interval' = '10ms', 'incremental.column' = 'v')"
    )
    shop.put(1, "anna", 2)
    app.drain()
    app.send("s", [{"id": 1}])
    app.drain()
    assert rows(app) == [(1, "anna")]


def test_a_live_table_beside_a_polled_table(app: App, shop: Shop) -> None:
    shop.put(1, "ann", 1)
    app.sql("CREATE TABLE k (id INT PRIMARY KEY, x INT)")
    app.sql("INSERT INTO k VALUES (1, 10), (2, 20)")
    app.sql(
        f"CREATE TABLE t AS SELECT k.id, o.who FROM k JOIN '{shop.uri()}' o ON k.id = o.id"
        " WITH ('poll.interval' = '10ms', 'incremental.column' = 'v')"
    )
    shop.put(1, "anna", 2)
    shop.put(2, "bob", 2)
    app.drain()
    assert rows(app) == [(1, "anna"), (2, "bob")]


def test_passwords_are_not_shown(app: App) -> None:
    uri = "sql://postgresql+psycopg://me:geheim@127.0.0.1:1/db?table=t"
    with pytest.raises(Error) as caught:
        app.sql(f"SELECT * FROM '{uri}' WITH ('retry.timeout' = '0s')")
    assert "geheim" not in str(caught.value) and "geheim" not in repr(caught.value)


def test_what_is_not_there(app: App, tmp_path: Path) -> None:
    with pytest.raises(DatabaseMissing):
        app.sql(f"SELECT * FROM 'sql://sqlite:///{tmp_path}/no/such.db?table=t'")
    with pytest.raises((PackageMissing, NotSupported)):
        app.sql("SELECT * FROM 'sql://nosuchdatabase://host/db?table=t'")
    with pytest.raises(InvalidOption, match="is no URL of SQLAlchemy"):
        app.sql("SELECT * FROM 'sql://nonsense?table=t'")


def test_duckdb(app: App, tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE w (id INTEGER PRIMARY KEY, d DATE, n DECIMAL(12, 3), x DOUBLE, t TIMESTAMP)"
        )
        connection.execute(
            "INSERT INTO w SELECT i, DATE '2024-01-01' + i::INTEGER, i / 8, i / 3, now()::TIMESTAMP"
            " FROM range(1000) r(i)"
        )
    uri = f"sql://duckdb:///{path}?table=w"
    app.sql(f"CREATE TABLE t AS SELECT * FROM '{uri}'")
    assert rows(app, "SELECT count(*), sum(n), max(d) FROM t") == rows(
        app, f"SELECT count(*), sum(n), max(d) FROM '{uri}'"
    )
    assert app.table("t").schema.key == ("id",)


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "clickhouse"])
def test_a_server_that_says_nothing_is_not_waited_for(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as silent:
        uri = f"{kind}://u:p@127.0.0.1:{silent.getsockname()[1]}/d?table=t"
        given = {"connect.timeout": 1.0, "retry.timeout": 0.0}
        with pytest.raises(TimedOut) as raised:
            find_source(uri)(uri, given, None).schema()
        assert "'connect.timeout'" in str(raised.value.hint)
