"""kill -9 of an app that copies a table of a database and follows its changes, while transactions run there and the
database crashes as well: at the end the copy is the table, and what is made of it is what the database makes.

This file is also the program that is killed.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest

from millpond import App
from tests.postgres_tables import without_slots
from tests.servers import MariaDb, Postgres, Servers
from tests.test_kill import kill_after, run_to_the_end, running, say

TEXT = """
CREATE TABLE items AS SELECT * FROM '{0}';
CREATE TABLE sums AS SELECT grp, COUNT(*) AS n, SUM(amount) AS s FROM items GROUP BY grp;
CREATE TABLE direct AS SELECT grp, MAX(id) AS m, COUNT(note) AS n FROM '{0}' WHERE id > 10 GROUP BY grp;
"""
SUMS = "SELECT grp, COUNT(*), SUM(amount) FROM items GROUP BY grp"
DIRECT = "SELECT grp, MAX(id), COUNT(note) FROM items WHERE id > 10 GROUP BY grp"


def work(uri: str, state: str, end: str) -> None:
    say("start")
    with App(TEXT.format(uri), state=state) as app:
        say("ready")
        if not end:
            time.sleep(600)
        app.drain(timeout=300)
        found = {
            "items": app.sql("SELECT id, grp, amount, note FROM items ORDER BY id").rows(),
            "sums": app.sql("SELECT grp, n, s FROM sums ORDER BY grp").rows(),
            "direct": app.sql("SELECT grp, m, n FROM direct ORDER BY grp").rows(),
        }
        print(json.dumps({k: [_texts(r.values()) for r in v] for k, v in found.items()}), flush=True)


def _texts(values: Any) -> list[str | None]:
    return [None if v is None else str(v) for v in values]


class World(Protocol):
    uri: str

    def connect(self) -> Any: ...

    def crash(self) -> None: ...


class InPostgres:
    def __init__(self, server: Postgres):
        self.server = server
        server.execute("DROP TABLE IF EXISTS items")
        server.execute(
            "CREATE TABLE items (id bigint PRIMARY KEY, grp text, amount numeric(12, 2), note text);"
            "ALTER TABLE items ALTER COLUMN note SET STORAGE EXTERNAL"
        )
        self.uri = server.url() + "?table=items&cdc=true"

    def connect(self) -> Any:
        return psycopg.connect(self.server.url())

    def crash(self) -> None:
        self.server.stop()
        self.server.start()

    def leftovers(self) -> int:
        return len(
            self.server.execute("SELECT slot_name FROM pg_replication_slots WHERE database = 'postgres'")
        )

    def end(self) -> None:
        without_slots(self.server)  # the server may not know yet that who has read them is gone


class InMariaDb:
    def __init__(self, server: MariaDb):
        self.server = server
        server.execute("DROP DATABASE IF EXISTS killing")
        self.uri = f"{server.new_database('killing')}?table=items&cdc=true"
        server.execute(
            "CREATE TABLE items (id bigint PRIMARY KEY, grp varchar(9), amount decimal(12, 2), note text)",
            "killing",
        )

    def connect(self) -> Any:
        connection = self.server.connect("killing")
        connection.autocommit(False)
        return connection

    def crash(self) -> None:
        self.server.stop()
        self.server.start()

    def leftovers(self) -> int:
        return 0

    def end(self) -> None:
        self.server.execute("DROP DATABASE killing")


class Clerk(threading.Thread):
    """Random transactions, one after another, until so many rows were touched."""

    def __init__(self, connect: Callable[[], Any], seed: int, rows: int):
        super().__init__(daemon=True)
        self.connect, self.left = connect, rows
        self.chance = random.Random(seed)
        self.error: Exception | None = None

    def run(self) -> None:
        while self.left > 0:
            try:
                with closing(self.connect()) as connection:
                    while self.left > 0:
                        self.transaction(connection)
            except Exception as error:  # the database is down: what was not committed is not there
                self.error = error
                time.sleep(0.1)

    def transaction(self, connection: Any) -> None:
        with closing(connection.cursor()) as cursor:
            for _ in range(self.chance.randint(1, 4)):
                self.change(cursor)
        if self.chance.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()
        time.sleep(self.chance.choice((0, 0, 0.01)))

    def change(self, cursor: Any) -> None:
        chance, kind = self.chance, self.chance.random()
        at = chance.randint(0, 3000)
        size = chance.randint(1, 60)
        if kind < 0.5:
            cursor.execute("SELECT id FROM items WHERE id >= %s AND id < %s", (at, at + size))
            there = {row[0] for row in cursor.fetchall()}
            rows = [
                (i, f"g{i % 7}", f"{i}.{i % 100:02d}", str(i) * chance.choice((1, 1, 2500)))
                for i in range(at, at + size)
                if i not in there
            ]
            cursor.executemany("INSERT INTO items VALUES (%s, %s, %s, %s)", rows)
        elif kind < 0.75:
            cursor.execute(
                "UPDATE items SET grp = %s, amount = amount + 0.01 WHERE id >= %s AND id < %s",
                (chance.choice(("g0", "g9", None)), at, at + size),
            )
        elif kind < 0.85:
            cursor.execute("SELECT id FROM items WHERE id >= %s AND id < %s", (at, at + size))
            for (key,) in cursor.fetchall():
                cursor.execute("DELETE FROM items WHERE id = %s", (key + 100_000,))
                cursor.execute("UPDATE items SET id = id + 100000 WHERE id = %s", (key,))
        elif kind < 0.999:
            cursor.execute("DELETE FROM items WHERE id >= %s AND id < %s", (at, at + size))
        else:
            cursor.execute("DELETE FROM items")
        self.left -= size


def check_kills(world: Any, directory: Path, *, kills: int, crashes: int, rows: int, seed: int) -> None:
    chance = random.Random(seed)
    first = Clerk(world.connect, seed, 4000)
    first.run()
    clerk = Clerk(world.connect, seed + 1, rows)
    command = (sys.executable, "-m", __name__, world.uri, str(directory / "state"))
    clerk.start()
    for number in range(kills):
        with running(*command, "") as process:
            word = "start" if number % 2 == 0 else "ready"
            if number % max(1, kills // max(1, crashes)) == 1:
                world.crash()
            kill_after(process, word, 1, chance.uniform(0, 2.0))
    clerk.join(timeout=600)
    assert not clerk.is_alive(), clerk.error
    found = json.loads(run_to_the_end(*command, "end").splitlines()[-1])
    with closing(world.connect()) as connection, closing(connection.cursor()) as cursor:

        def asked(query: str) -> list[list[str | None]]:
            cursor.execute(query)
            return [_texts(row) for row in cursor.fetchall()]

        assert found["items"] == asked("SELECT id, grp, amount, note FROM items ORDER BY id")
        assert _sorted(found["sums"]) == _sorted(asked(SUMS))
        assert _sorted(found["direct"]) == _sorted(asked(DIRECT))
    assert world.leftovers() <= 2
    world.end()


def _sorted(rows: list[list[str | None]]) -> list[list[str]]:
    return sorted([v or "" for v in row] for row in rows)


@pytest.mark.slow
def test_a_few_kills_beside_postgresql(tmp_path: Path, servers: Servers) -> None:
    check_kills(InPostgres(servers.own_postgresql), tmp_path, kills=3, crashes=1, rows=5_000, seed=1)


@pytest.mark.slow
def test_a_few_kills_beside_mariadb(tmp_path: Path, servers: Servers) -> None:
    check_kills(InMariaDb(servers.mariadb), tmp_path, kills=3, crashes=1, rows=5_000, seed=1)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(2, 5))
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_many_kills(tmp_path: Path, servers: Servers, kind: str, seed: int) -> None:
    world = InPostgres(servers.own_postgresql) if kind == "postgresql" else InMariaDb(servers.mariadb)
    check_kills(world, tmp_path, kills=25, crashes=5, rows=50_000, seed=seed)


if __name__ == "__main__":
    work(*sys.argv[1:])
