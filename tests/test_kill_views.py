"""kill -9 while views are kept by changes: after a restart their state is built again, and they equal their queries.

This file is also the program that is killed: it changes tables at random.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from millpond import App
from tests.random_views import TABLES, Views, bag, change

pytestmark = pytest.mark.slow

QUERIES = (
    "SELECT COUNT(*) AS c, SUM(n) AS s, AVG(k) AS m FROM a",
    "SELECT g, COUNT(*) AS c, MIN(n) AS low, COUNT(DISTINCT k) AS d FROM a GROUP BY g",
    "SELECT a.id, b.id AS other, b.g FROM a JOIN b ON a.k = b.k",
    "SELECT b.g, SUM(a.n) AS s FROM a LEFT JOIN b ON a.k = b.k GROUP BY b.g",
    "SELECT DISTINCT k, g FROM log",
    "SELECT g, COUNT(*) AS c FROM v2 GROUP BY g",
)
RANDOM = 10
"""How many random views there are in addition."""


def queries_of(seed: int) -> list[str]:
    """Returns the queries of all views; with a seed above 0 random ones too."""
    random = Random(seed)
    return [*QUERIES, *(Views(random).query() for _ in range(RANDOM if seed else 0))]


def program(queries: list[str]) -> str:
    return TABLES + ";".join(f"CREATE TABLE v{i} AS {query}" for i, query in enumerate(queries))


def work(state: str, seed: int, views: int) -> None:
    random = Random(seed)
    with App(program(queries_of(views)), state=state) as app:
        print("ready", flush=True)
        while True:
            with app.begin_transaction() as tx:
                change(tx, random)
            app.drain()


def kill(state: Path, kills: int, views: int) -> None:
    """Kills the program again and again while it changes tables, then compares the views with their queries."""
    random = Random(7)
    for seed in range(kills):
        command = [sys.executable, "-m", "tests.test_kill_views", str(state), str(seed), str(views)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
            assert killed.stdout is not None and killed.stdout.readline() == "ready\n"
            time.sleep(random.uniform(0.1, 0.8))
            killed.kill()
    queries = queries_of(views)
    with App(program(queries), state=state) as app:
        assert len(app.table("a").all_rows())
        for step in range(4):
            app.drain()
            for i, query in enumerate(queries):
                assert bag(app, f"SELECT * FROM v{i}") == bag(app, query), (step, query)
            change(app, random)
        app.drain()
        assert any(view.by_changes.rounds for view in app._runtime.views)


def test_views_after_a_kill(tmp_path: Path) -> None:
    kill(tmp_path / "s", kills=3, views=0)


@pytest.mark.chaos
@pytest.mark.parametrize("views", range(1, 11))
def test_random_views_after_kills(tmp_path: Path, views: int) -> None:
    kill(tmp_path / "s", kills=5, views=views)


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
