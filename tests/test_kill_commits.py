"""kill -9 while threads commit to three tables at once: what was acknowledged is there whole, nothing is there in part.

This file is also the program that is killed. Its threads move amounts between accounts of two tables and note each
move in a third one, in one transaction; another thread changes single rows by the short way.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from millpond import App
from millpond.errors import Conflict

THREADS = 4
ACCOUNTS = 60
BEGIN = 1_000_000
SQL = f"""
CREATE TABLE here (id INT PRIMARY KEY, amount BIGINT);
CREATE TABLE there (id INT PRIMARY KEY, amount BIGINT);
CREATE TABLE moves (who INT, n INT, amount BIGINT, PRIMARY KEY (who, n)) WITH ('on.conflict' = 'error');
CREATE TABLE counters (id INT PRIMARY KEY, n INT, text STRING);
CREATE TABLE soon (id INT PRIMARY KEY, n INT, text STRING) WITH ('durability' = 'batch');
INSERT INTO here VALUES {", ".join(f"({i}, {BEGIN})" for i in range(ACCOUNTS))};
INSERT INTO there VALUES {", ".join(f"({i}, {BEGIN})" for i in range(ACCOUNTS))};
INSERT INTO counters VALUES (0, 0, '');
INSERT INTO soon VALUES (0, 0, '');
"""


# the program that is killed


def work(state: str, seed: int) -> None:
    with App(SQL, state=state) as app:
        threads = [threading.Thread(target=move, args=(app, who, seed)) for who in range(THREADS)]
        threads += [threading.Thread(target=count, args=(app, name)) for name in ("counters", "soon")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def move(app: App, who: int, seed: int) -> None:
    chance = random.Random(f"{seed} {who}")
    n = sum(r["who"] == who for r in app.table("moves"))
    while True:
        amount, one, two = chance.randrange(100), chance.randrange(ACCOUNTS), chance.randrange(ACCOUNTS)
        try:
            with app.begin_transaction() as tx:
                tx.table("here").update(f"id = {one}", f"amount = amount - {amount}")
                tx.table("moves").insert({"who": who, "n": n, "amount": amount})
                tx.table("there").update(f"id = {two}", f"amount = amount + {amount}")
        except Conflict:
            continue
        say(f"{who} {n}")
        n += 1


def count(app: App, name: str) -> None:
    table = app.table(name)
    n = table.all_rows()[0]["n"]
    while True:
        n += 1
        table.update({"id": 0}, {"n": n, "text": str(n)})
        say(f"{name} {n}")
        time.sleep(0.002)


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


# the killer


def check_kills(tmp_path: Path, kills: int, seed: int) -> dict[str, int]:
    chance = random.Random(seed)
    acknowledged: dict[str, int] = {}
    for number in range(kills):
        command = (sys.executable, "-m", __name__, str(tmp_path / "state"), f"{seed}{number}")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stderr is not None
            heard = []
            moves = chance.randint(1, 12)
            while moves and (line := process.stdout.readline()):
                heard.append(line)
                moves -= line[0].isdigit()
            time.sleep(chance.uniform(0, 0.05))
            os.kill(process.pid, signal.SIGKILL)
            for said in [*heard, *process.stdout]:
                if said.endswith("\n"):
                    who, n = said.split()
                    acknowledged[who] = max(int(n), acknowledged.get(who, -1))
            assert "Error" not in process.stderr.read()
        check_whole(tmp_path / "state", acknowledged)
    return acknowledged


def check_whole(state: Path, acknowledged: dict[str, int]) -> None:
    with App(SQL, state=state) as app:
        moves = app.table("moves").all_rows()
        for who in range(THREADS):
            done = sorted(r["n"] for r in moves if r["who"] == who)
            assert done == list(range(len(done)))
            assert len(done) > acknowledged.get(str(who), -1), "an acknowledged commit is lost"
        moved = sum(r["amount"] for r in moves)
        assert app.table("here").sql_scalar("SUM(amount)") == ACCOUNTS * BEGIN - moved
        assert app.table("there").sql_scalar("SUM(amount)") == ACCOUNTS * BEGIN + moved
        for name in ("counters", "soon"):
            (row,) = app.table(name).all_rows()
            assert row["text"] == str(row["n"] or "")
            assert row["n"] >= acknowledged.get(name, 0), "an acknowledged change is lost"


def moved(acknowledged: dict[str, int]) -> int:
    """The transactions that were acknowledged."""
    return sum(n + 1 for who, n in acknowledged.items() if who.isdigit())


@pytest.mark.slow
def test_five_kills_during_commits(tmp_path: Path) -> None:
    assert moved(check_kills(tmp_path, kills=5, seed=1)) >= 5


@pytest.mark.chaos
def test_two_hundred_kills_during_commits(tmp_path: Path) -> None:
    acknowledged = check_kills(tmp_path, kills=200, seed=2)
    print("acknowledged:", acknowledged)
    assert moved(acknowledged) >= 200


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]))
