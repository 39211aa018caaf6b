"""Captured tables of one database: a transaction there is one commit here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millpond import App, faults
from tests.servers import Servers
from tests.test_captured import MariaShop, Shop

TOTAL = "SELECT SUM(v) AS v FROM (SELECT v FROM one UNION ALL SELECT v FROM two) t"


class Accounts:
    """Two tables, and transactions that move amounts from one to the other."""

    def __init__(self, shop: Shop | MariaShop):
        self.shop = shop
        for name in ("one", "two"):
            shop.run(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)")
            shop.run(f"INSERT INTO {name} VALUES (1, 500), (2, 500)")

    def tables(self) -> list[str]:
        return [f"CREATE TABLE {n} AS SELECT * FROM '{self.shop.uri(table=n)}';" for n in ("one", "two")]

    def text(self) -> str:
        return f"{' '.join(self.tables())} CREATE MATERIALIZED VIEW total AS {TOTAL};"

    def move(self, amount: int, key: int = 1) -> None:
        done = [
            f"UPDATE one SET v = v - {amount} WHERE id = {key}",
            f"UPDATE two SET v = v + {amount} WHERE id = {key}",
        ]
        if isinstance(self.shop, Shop):
            self.shop.run("; ".join(done))
            return
        connection = self.shop.server.connect("shop")
        connection.autocommit(False)
        with connection, connection.cursor() as cursor:
            for statement in done:
                cursor.execute(statement)
            connection.commit()

    def there(self, name: str) -> list[Any]:
        return [tuple(row) for row in self.shop.run(f"SELECT id, v FROM {name} ORDER BY id")]


@pytest.fixture(params=["postgresql", "mariadb"])
def accounts(servers: Servers, request: pytest.FixtureRequest) -> Iterator[Accounts]:
    shop = Shop(servers.postgresql) if request.param == "postgresql" else MariaShop(servers.mariadb)
    yield Accounts(shop)
    shop.end()


def here(app: App, name: str) -> list[Any]:
    return [tuple(row.values()) for row in app.sql(f"SELECT id, v FROM {name} ORDER BY id").rows()]


@contextmanager
def watched(app: App) -> Iterator[list[int]]:
    """Lists the totals that a reader sees after each commit of what was captured."""
    seen: list[int] = []

    def reached(point: str) -> None:
        if point == "capture: applied":
            seen.append(app.sql(TOTAL).rows()[0]["v"])

    faults.on_reach(reached)
    try:
        yield seen
    finally:
        faults.on_reach(None)


def check_equal(app: App, accounts: Accounts) -> None:
    app.drain(timeout=60)
    for name in ("one", "two"):
        assert here(app, name) == accounts.there(name)


def test_a_transaction_over_two_tables_is_one_commit(accounts: Accounts, tmp_path: Path) -> None:
    with App(accounts.text(), state=tmp_path) as app:
        with watched(app) as seen:
            for amount in range(1, 6):
                accounts.move(amount, 1 + amount % 2)
            check_equal(app, accounts)
        assert set(seen) == {2000} and app.sql("SELECT v FROM total").rows() == [{"v": 2000}]
    accounts.move(50)
    with App(accounts.text(), state=tmp_path) as app:
        assert app.sql(TOTAL).rows() == [{"v": 2000}]  # both came to one place before anyone could read them
        with watched(app) as seen:
            accounts.move(7)
            check_equal(app, accounts)
        assert set(seen) == {2000}


def test_a_table_that_comes_later_joins_the_others(accounts: Accounts) -> None:
    one, two = accounts.tables()
    with App(one) as app:
        accounts.move(1)
        app.sql(two)
        assert app.sql(TOTAL).rows() == [{"v": 2000}]
        with watched(app) as seen:
            accounts.move(2)
            check_equal(app, accounts)
            app.sql("DROP TABLE one")
        assert set(seen) == {2000}
        accounts.move(3)
        app.drain(timeout=60)
        assert here(app, "two") == accounts.there("two")


def test_a_table_that_cannot_go_on_does_not_stop_the_others(accounts: Accounts) -> None:
    with App(" ".join(accounts.tables())) as app:
        accounts.move(1)
        check_equal(app, accounts)
        accounts.shop.run("ALTER TABLE two DROP COLUMN v")
        accounts.shop.run("ALTER TABLE two ADD COLUMN v text")
        accounts.shop.run("UPDATE two SET v = 'x'")
        accounts.shop.run("UPDATE one SET v = 7 WHERE id = 1")
        until = time.monotonic() + 60
        while here(app, "one") != accounts.there("one"):
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_full_table_does_not_stop_the_others(accounts: Accounts) -> None:
    one, two = accounts.tables()
    full = two.removesuffix(";") + " WITH ('max_memory' = '1MB', 'on.full' = 'error');"
    with App(one + full) as app:
        accounts.move(1)
        check_equal(app, accounts)
        for first in range(10, 40_010, 10_000):
            rows = ", ".join(f"({i}, {i})" for i in range(first, first + 10_000))
            accounts.shop.run(f"INSERT INTO two VALUES {rows}")
        accounts.shop.run("UPDATE one SET v = 7 WHERE id = 1")
        until = time.monotonic() + 60
        while here(app, "one") != accounts.there("one"):
            assert time.monotonic() < until
            time.sleep(0.05)
        assert app.table("two").health_check().status == "stale"
