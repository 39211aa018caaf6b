"""kill -9 of an app that loads and follows files, while these grow, are written anew and rotated: nothing is lost,
nothing doubled.

This file is also the program that is killed.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

import pytest

from millpond import App
from tests.test_kill import kill_after, run_to_the_end, running, say

BULK = 400_000
"""Rows of the file that is loaded first: several chunks."""

TEXT = """
CREATE TABLE bulk AS SELECT * FROM 'file://{0}/bulk.csv' WITH ('watch.debounce' = '50ms');
CREATE TABLE log AS SELECT * FROM 'file://{0}/app.log*' WITH ('format' = 'jsonl', 'watch.debounce' = '50ms');
CREATE TABLE kept (PRIMARY KEY (id)) WITH ('extension' = 'sqlite') AS
    SELECT * FROM 'file://{0}/kept.csv' WITH ('watch.debounce' = '50ms');
CREATE TABLE sums AS SELECT g, COUNT(*) AS n, SUM(id) AS s FROM 'file://{0}/parts/*.csv' GROUP BY g
    WITH ('watch.debounce' = '50ms', 'on.remove' = 'delete');
CREATE TABLE view AS SELECT COUNT(*) AS n, SUM(id) AS s FROM kept;
"""


def work(directory: str, end: str) -> None:
    say("start")
    with App(TEXT.format(directory), state=f"{directory}/state") as app:
        say("ready")
        if not end:
            time.sleep(600)
        app.drain(timeout=300)
        found = {
            "bulk": app.sql("SELECT COUNT(*) AS n, SUM(id) AS s, COUNT(DISTINCT id) AS d FROM bulk").rows(),
            "log": sorted(r["n"] for r in app.table("log")),
            "kept": sorted([r["id"], r["v"]] for r in app.table("kept")),
            "sums": sorted([r["g"], r["n"], r["s"]] for r in app.table("sums")),
            "view": app.table("view").all_rows(),
        }
        print(json.dumps(found), flush=True)


class Files:
    """Files that live, and what tables over them must have."""

    def __init__(self, directory: Path, chance: random.Random):
        self.directory, self.chance = directory, chance
        (directory / "parts").mkdir()
        self.lines = BULK
        (directory / "bulk.csv").write_text("id\n" + "".join(f"{i}\n" for i in range(BULK)))
        self.log = 0
        self.rotated = 0
        self.kept: dict[int, int] = {}
        self.parts: dict[str, list[int]] = {}
        for _ in range(3):
            self.change()

    def change(self) -> None:
        """Something happens to each of them."""
        chance = self.chance
        with (self.directory / "bulk.csv").open("a") as file:
            for _ in range(chance.randint(0, 3)):
                file.write(f"{self.lines}\n")
                self.lines += 1
        log = self.directory / "app.log"
        if chance.random() < 0.3 and log.exists():
            self.rotated += 1
            log.rename(self.directory / f"app.log.{self.rotated}")
        with log.open("a") as file:
            for _ in range(chance.randint(1, 5)):
                file.write(json.dumps({"n": self.log}) + "\n")
                self.log += 1
        for _ in range(chance.randint(1, 20)):
            self.kept[chance.randint(0, 50)] = chance.randint(0, 9)
        self.kept.pop(chance.randint(0, 50), None)
        lines = "".join(f"{i},{v}\n" for i, v in self.kept.items())
        (self.directory / "next").write_text("id,v\n" + lines)
        (self.directory / "next").rename(self.directory / "kept.csv")
        name = chance.choice("abcd")
        path = self.directory / "parts" / f"{name}.csv"
        if name in self.parts and len(self.parts) > 1 and chance.random() < 0.3:
            path.unlink()
            del self.parts[name]
        else:
            self.parts[name] = [chance.randint(0, 99) for _ in range(chance.randint(1, 5))]
            path.write_text("g,id\n" + "".join(f"{i % 3},{i}\n" for i in self.parts[name]))

    def expected(self) -> dict[str, object]:
        ids = [i for part in self.parts.values() for i in part]
        groups = {g: [i for i in ids if i % 3 == g] for g in range(3)}
        n = self.lines
        return {
            "bulk": [{"n": n, "s": n * (n - 1) // 2, "d": n}],
            "log": list(range(self.log)),
            "kept": sorted([i, v] for i, v in self.kept.items()),
            "sums": [[g, len(found), sum(found)] for g, found in groups.items() if found],
            "view": [{"n": len(self.kept), "s": sum(self.kept) if self.kept else None}],
        }


def check_kills(directory: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    files = Files(directory, chance)
    command = (sys.executable, "-m", __name__, str(directory))
    for number in range(kills):
        with running(*command, "") as process:
            word = "start" if number % 2 == 0 else "ready"
            for _ in range(chance.randint(0, 3)):
                files.change()
            kill_after(process, word, 1, chance.uniform(0, 1.5 if word == "start" else 0.5))
        files.change()
    found = json.loads(run_to_the_end(*command, "end").splitlines()[-1])
    assert found == files.expected()


@pytest.mark.slow
def test_kills_while_files_are_followed(tmp_path: Path) -> None:
    check_kills(tmp_path, kills=3, seed=1)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_kills_while_files_are_followed(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, kills=50, seed=seed)


if __name__ == "__main__":
    work(*sys.argv[1:])
