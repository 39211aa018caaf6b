"""kill -9 of an app that captures two tables, between which transactions move amounts: nobody reads a sum that was
never there, and at the end both tables are those of the database.

This file is also the program that is killed.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millpond import App
from tests.postgres_tables import without_slots
from tests.servers import MariaDb, Postgres, Servers
from tests.test_kill import kill_after, run_to_the_end, running, say

ROWS, EACH = 200, 1000
TABLES = ("one", "two")
TEXT = """
CREATE TABLE one AS SELECT * FROM '{0}?table=one&cdc=true';
CREATE TABLE two AS SELECT * FROM '{0}?table=two&cdc=true';
CREATE MATERIALIZED VIEW total AS SELECT SUM(v) AS v FROM (SELECT v FROM one UNION ALL SELECT v FROM two) t;
"""
TOTAL = "SELECT SUM(v) AS v FROM (SELECT v FROM one UNION ALL SELECT v FROM two) t"


def work(url: str, state: str, end: str) -> None:
    say("start")
    with App(TEXT.format(url), state=state) as app:
        say("ready")
        while not end:
            for query in (TOTAL, "SELECT v FROM total"):
                if (seen := app.sql(query).rows()[0]["v"]) != 2 * ROWS * EACH:
                    with open(f"{state}.wrong", "a") as file:
                        file.write(f"{query}: {seen}\n")
            time.sleep(0.002)
        app.drain(timeout=300)
        found = {n: app.sql(f"SELECT id, v FROM {n} ORDER BY id").rows() for n in TABLES}
        print(json.dumps({n: [list(r.values()) for r in rows] for n, rows in found.items()}), flush=True)


class InPostgres:
    def __init__(self, server: Postgres):
        self.server, self.url = server, server.url()
        without_slots(server)
        for name in TABLES:
            server.execute(
                f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} (id int PRIMARY KEY, v bigint);"
                f"INSERT INTO {name} SELECT i, {EACH} FROM generate_series(1, {ROWS}) i"
            )

    def connect(self) -> Any:
        return psycopg.connect(self.url)

    def end(self) -> None:
        without_slots(self.server)


class InMariaDb:
    def __init__(self, server: MariaDb):
        self.server = server
        server.execute("DROP DATABASE IF EXISTS transfers")
        self.url = server.new_database("transfers")
        rows = ", ".join(f"({i}, {EACH})" for i in range(1, ROWS + 1))
        for name in TABLES:
            server.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v bigint)", "transfers")
            server.execute(f"INSERT INTO {name} VALUES {rows}", "transfers")

    def connect(self) -> Any:
        connection = self.server.connect("transfers")
        connection.autocommit(False)
        return connection

    def end(self) -> None:
        self.server.execute("DROP DATABASE transfers")


class Clerk(threading.Thread):
    """Moves amounts until it is told to stop."""

    def __init__(self, world: InPostgres | InMariaDb, seed: int):
        super().__init__(daemon=True)
        self.world, self.chance = world, random.Random(seed)
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                with closing(self.world.connect()) as connection:
                    while not self.stop.wait(self.chance.choice((0, 0, 0.005))):
                        self.move(connection)
            except Exception:  # the database is down: what was not committed is not there
                time.sleep(0.1)

    def move(self, connection: Any) -> None:
        chance = self.chance
        with closing(connection.cursor()) as cursor:
            for name, sign in zip(TABLES if chance.random() < 0.5 else TABLES[::-1], "-+", strict=True):
                at = chance.randint(1, ROWS)
                cursor.execute(f"UPDATE {name} SET v = v {sign} 7 WHERE id = {at}")
        connection.commit()


def check_kills(
    world: InPostgres | InMariaDb, directory: Path, *, kills: int, crashes: int, seed: int
) -> None:
    chance, clerk = random.Random(seed), Clerk(world, seed)
    command = (sys.executable, "-m", __name__, world.url, str(directory / "state"))
    clerk.start()
    for number in range(kills):
        with running(*command, "") as process:
            if number % max(1, kills // max(1, crashes)) == 1:
                world.server.stop()
                world.server.start()
            kill_after(process, "start" if number % 3 == 2 else "ready", 1, chance.uniform(0, 2.0))
    clerk.stop.set()
    clerk.join()
    found = json.loads(run_to_the_end(*command, "end").splitlines()[-1])
    wrong = directory / "state.wrong"
    assert not wrong.exists(), wrong.read_text()
    with closing(world.connect()) as connection, closing(connection.cursor()) as cursor:
        for name in TABLES:
            cursor.execute(f"SELECT id, v FROM {name} ORDER BY id")
            assert found[name] == [list(row) for row in cursor.fetchall()]
    world.end()


@pytest.mark.slow
def test_a_few_kills_beside_postgresql(tmp_path: Path, servers: Servers) -> None:
    check_kills(InPostgres(servers.own_postgresql), tmp_path, kills=3, crashes=1, seed=1)


@pytest.mark.slow
def test_a_few_kills_beside_mariadb(tmp_path: Path, servers: Servers) -> None:
    check_kills(InMariaDb(servers.mariadb), tmp_path, kills=2, crashes=0, seed=1)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(2, 4))
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_many_kills(tmp_path: Path, servers: Servers, kind: str, seed: int) -> None:
    world = InPostgres(servers.own_postgresql) if kind == "postgresql" else InMariaDb(servers.mariadb)
    check_kills(world, tmp_path, kills=50, crashes=10, seed=seed)


if __name__ == "__main__":
    work(*sys.argv[1:])
