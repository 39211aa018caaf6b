"""kill -9 of an app that loads and follows what a web server answers, while that changes: nothing is lost, nothing
doubled.

This file is also the program that is killed.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from millpond import App
from tests.test_kill import kill_after, run_to_the_end, running, say
from tests.webserver import WebServer

BULK = 200_000
"""Rows of the answer that is loaded first: several chunks."""

TEXT = """
CREATE TABLE bag AS SELECT * FROM {0}/bulk.csv WITH ('poll.interval' = '20ms');
CREATE TABLE kept (PRIMARY KEY (id)) WITH ('extension' = 'sqlite') AS
    SELECT * FROM {0}/kept WITH ('poll.interval' = '20ms', 'paging' = 'page', 'paging.size' = '10');
CREATE TABLE sums AS SELECT v, COUNT(*) AS n FROM {0}/kept GROUP BY v
    WITH ('poll.interval' = '20ms', 'paging' = 'page');
"""


def work(url: str, state: str, end: str) -> None:
    say("start")
    with App(TEXT.format(url), state=state) as app:
        say("ready")
        if not end:
            time.sleep(600)
        app.drain(timeout=300)
        found = {
            "bag": app.sql("SELECT COUNT(*) AS n, SUM(id) AS s, COUNT(DISTINCT id) AS d FROM bag").rows(),
            "kept": sorted([r["id"], r["v"]] for r in app.table("kept")),
            "sums": sorted([r["v"], r["n"]] for r in app.table("sums")),
        }
        print(json.dumps(found), flush=True)


class Answers:
    """What the server answers, and what tables over it must have."""

    def __init__(self, web: WebServer, chance: random.Random):
        self.web, self.chance = web, chance
        self.lines = BULK
        self.kept: dict[int, int] = {}
        self.change()

    def change(self) -> None:
        chance = self.chance
        if chance.random() < 0.5:
            self.lines += chance.randint(-3, 3)
        body = "id\n" + "".join(f"{i}\n" for i in range(self.lines))
        self.web.body("/bulk.csv", body.encode(), "text/csv", etag=chance.random() < 0.7)
        for _ in range(chance.randint(1, 20)):
            self.kept[chance.randint(0, 50)] = chance.randint(0, 4)
        self.kept.pop(chance.randint(0, 50), None)
        items = [{"id": i, "v": v} for i, v in self.kept.items()]
        self.web.routes["/kept"] = lambda asked: (
            200,
            {"Content-Type": "application/json"},
            json.dumps(items[int(asked.params["page"]) * 10 - 10 :][:10]).encode(),
        )

    def expected(self) -> dict[str, object]:
        n = self.lines
        return {
            "bag": [{"n": n, "s": n * (n - 1) // 2, "d": n}],
            "kept": sorted([i, v] for i, v in self.kept.items()),
            "sums": sorted([v, n] for v, n in Counter(self.kept.values()).items()),
        }


def check_kills(directory: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    web = WebServer()
    answers = Answers(web, chance)
    command = (sys.executable, "-m", __name__, web.url, str(directory / "state"))
    try:
        for number in range(kills):
            with running(*command, "") as process:
                word = "start" if number % 2 == 0 else "ready"
                for _ in range(chance.randint(0, 2)):
                    answers.change()
                kill_after(process, word, 1, chance.uniform(0, 1.5 if word == "start" else 0.5))
            if chance.random() < 0.7:
                answers.change()
        found = json.loads(run_to_the_end(*command, "end").splitlines()[-1])
        assert found == answers.expected()
    finally:
        web.close()


@pytest.mark.slow
def test_a_few_kills(tmp_path: Path) -> None:
    check_kills(tmp_path, 2, 1)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(3))
def test_many_kills(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, 30, seed)


if __name__ == "__main__":
    work(*sys.argv[1:])
