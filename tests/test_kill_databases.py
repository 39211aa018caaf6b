"""kill -9 of an app whose running statements write into databases of every kind: as if nothing had happened.

This file is also the program that is killed.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from millpond import App
from tests.servers import Servers
from tests.test_kill import kill_after, run_to_the_end, running, say

EVENTS = 60
PLACES = ("sqlite", "postgresql", "mysql", "redis", "mongodb")


def text(postgresql: str, mysql: str, redis: str, mongodb: str) -> str:
    """For each place: rows that are appended, the last of each key, and a live aggregate."""
    options = {
        "sqlite": "'extension' = 'sqlite'",
        "postgresql": f"'extension' = 'postgresql', 'url' = '{postgresql}'",
        "mysql": f"'extension' = 'mysql', 'url' = '{mysql}'",
        "redis": f"'extension' = 'redis', 'url' = '{redis}'",
        "mongodb": f"'extension' = 'mongodb', 'url' = '{mongodb}'",
    }
    parts = ["CREATE STREAM events (n BIGINT, k INT);"]
    for place in PLACES:
        given = f"WITH ({options[place]})"
        parts += [
            f"CREATE TABLE log_{place} (n BIGINT) {given};",
            f"CREATE TABLE last_{place} (k INT PRIMARY KEY, n BIGINT) {given};",
            f"CREATE TABLE sums_{place} {given} AS SELECT k, COUNT(*) AS c, SUM(n) AS s FROM events GROUP BY k;",
            f"INSERT INTO log_{place} SELECT n FROM events;",
            f"INSERT INTO last_{place} SELECT k, n FROM events;",
            f"INSERT INTO log_{place} VALUES (-1);",
        ]
    return "\n".join(parts)


def work(sql: str, state: str) -> None:
    say("start")
    with App(sql, state=state) as app:
        say("ready")
        for n in range(app._runtime.journal.stream_end("events"), EVENTS):
            app.send("events", {"n": n, "k": n % 7})
            say("sent")
        app.drain(timeout=300)
        result = {
            place: {
                "log": sorted(r["n"] for r in app.table(f"log_{place}")),
                "last": sorted([r["k"], r["n"]] for r in app.table(f"last_{place}")),
                "sums": sorted([r["k"], r["c"], r["s"]] for r in app.table(f"sums_{place}")),
            }
            for place in PLACES
        }
        print(json.dumps(result), flush=True)


def check_kills(servers: Servers, tmp_path: Path, kills: int, seed: int) -> None:
    schema = f"kills{seed}_{kills}"
    sql = text(
        servers.postgresql.new_schema(schema),
        servers.mariadb.new_database(schema),
        servers.redis.url(seed % 14 + 1),
        servers.mongodb.url(schema),
    )
    command = (sys.executable, "-m", __name__, sql, str(tmp_path / "state"))
    chance = random.Random(seed)
    for number in range(kills):
        word, most, delay = [("sent", EVENTS // 2, 1.0), ("ready", 1, 2.0), ("start", 1, 2.0)][number % 3]
        with running(*command) as process:
            kill_after(process, word, chance.randint(1, most), chance.uniform(0, delay))
    found = json.loads(run_to_the_end(*command).splitlines()[-1])
    groups = {k: list(range(k, EVENTS, 7)) for k in range(7)}
    expected = {
        "log": [-1, *range(EVENTS)],
        "last": [[k, ns[-1]] for k, ns in groups.items()],
        "sums": [[k, len(ns), sum(ns)] for k, ns in groups.items()],
    }
    assert found == dict.fromkeys(PLACES, expected)


@pytest.mark.slow
@pytest.mark.spark
def test_kills_with_tables_in_databases(servers: Servers, tmp_path: Path) -> None:
    check_kills(servers, tmp_path, kills=2, seed=3)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(4, 8))
def test_many_kills_with_tables_in_databases(servers: Servers, tmp_path: Path, seed: int) -> None:
    check_kills(servers, tmp_path, kills=12, seed=seed)


if __name__ == "__main__":
    work(*sys.argv[1:])
