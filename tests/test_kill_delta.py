"""kill -9 of an app that follows Delta tables while they are changed: at the end each table here is the one there, with
a key and without one, where a change that is applied twice would show.

This file is also the program that is killed.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from pathlib import Path

import pytest

from millpond import App
from tests.test_delta_source import FEED, content, operations, rows, shown, write
from tests.test_kill import kill_after, run_to_the_end, running, say

TEXT = """
CREATE TABLE keyed AS SELECT * FROM delta://{0} WITH ('cdc' = 'true', 'key' = 'id', 'poll.interval' = '20ms');
CREATE TABLE plain AS SELECT id, n, part FROM delta://{0} WITH ('cdc' = 'true', 'primary.key' = '');
CREATE TABLE sums AS SELECT n, COUNT(*) AS c, SUM(id) AS s FROM keyed GROUP BY n;
"""
SUMS = "SELECT n, COUNT(*) AS c, SUM(id) AS s FROM keyed GROUP BY n"


def work(place: str, state: str, end: str) -> None:
    say("start")
    with App(TEXT.format(place), state=state) as app:
        say("ready")
        if not end:
            time.sleep(600)
        app.drain(timeout=300)
        found = {name: shown(app, name) for name in ("keyed", "plain", "sums")}
        again = sorted(str(r) for r in app.sql(SUMS).rows())
        print(json.dumps({**found, "again": again}), flush=True)


def check_kills(directory: Path, kills: int, rounds: int, seed: int) -> None:
    chance, at = random.Random(seed), directory / "lake"
    write(at, rows(0, 40), partition_by=["part"], configuration=FEED if seed % 2 else None)

    def change() -> None:
        for number in range(rounds):
            for _ in operations(at, chance, fresh=1000 * (number + 1)):
                time.sleep(0.05)

    clerk = threading.Thread(target=change, daemon=True)
    command = (sys.executable, "-m", __name__, str(at), str(directory / "state"))
    moment = random.Random(seed)
    clerk.start()
    for number in range(kills):
        with running(*command, "") as process:
            kill_after(process, ("ready", "start")[number % 2], 1, moment.uniform(0, 1.0))
    clerk.join(timeout=300)
    found = json.loads(run_to_the_end(*command, "end").splitlines()[-1])
    assert found["keyed"] == found["plain"] == content(at)
    assert found["sums"] == found["again"]


@pytest.mark.slow
def test_a_few_kills(tmp_path: Path) -> None:
    check_kills(tmp_path, kills=3, rounds=2, seed=1)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_kills(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, kills=15, rounds=20, seed=seed)


if __name__ == "__main__":
    work(*sys.argv[1:])
