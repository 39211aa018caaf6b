"""SIGKILL while a batch of a block that Spark has evaluated is committed: each row takes effect once, everywhere.

This file is also the program that is killed.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from millpond import App
from millpond.testing.faults import killing
from tests.test_kill import run_to_the_end, running

pytestmark = pytest.mark.slow

SQL = """
CREATE STREAM e (id INT, n INT);
CREATE STREAM out (id INT, n INT, total INT);
CREATE TABLE sums (id INT PRIMARY KEY, n INT, total INT);
CREATE TABLE seen (id INT PRIMARY KEY, events BIGINT);
CREATE TABLE log (id INT, n INT, total INT);
INSERT INTO sums VALUES (0, 0, 0), (1, 0, 0), (2, 0, 0);
BEGIN;
UPDATE sums SET n = sums.n + 1, total = sums.total + e.n FROM e WHERE sums.id = e.id
  RETURNING sums.id, sums.n, sums.total INTO out;
INSERT INTO seen SELECT id, COUNT(*) AS events FROM e GROUP BY id;
INSERT INTO log SELECT e.id, e.n, s.total FROM e JOIN sums s ON s.id = e.id JOIN seen t ON t.id = e.id;
COMMIT;
CREATE TABLE copied AS SELECT * FROM out;
"""
BATCHES = [[{"id": i * 7 % 5, "n": i} for i in range(first, first + 200)] for first in (0, 200)]


def work(state: str, point: str, visit: str) -> None:
    with App(SQL, state=state, engine="spark", _direct=True) as app:
        for batch in BATCHES:
            if app._runtime.journal.stream_end("e") <= batch[0]["n"]:
                app.send("e", batch)
            with killing(point, visit=int(visit)) if point else nullcontext():
                app.drain(timeout=200)
        found = {name: app.sql(f"SELECT * FROM {name}").rows() for name in ("sums", "seen", "log", "copied")}
        engines = [(q["process_batches"], q["errors"]) for q in app.sql("SHOW QUERIES").rows()]
        print(json.dumps([found, engines]), flush=True)


def check_kills(directory: Path, *points: str) -> None:
    command = (sys.executable, "-m", __name__, str(directory))
    for point in points:
        with running(*command, point, "1") as process:
            _, err = process.communicate(timeout=300)
            assert process.returncode == -9, (point, err)
    found, engines = json.loads(run_to_the_end(*command, "", "0").splitlines()[-1])
    sums = {i: (0, 0) for i in range(3)}
    returned, log = [], []
    for batch in BATCHES:
        for event in batch:
            if (i := event["id"]) in sums:
                sums[i] = (sums[i][0] + 1, sums[i][1] + event["n"])
                returned.append({"id": i, "n": sums[i][0], "total": sums[i][1]})
        log += [{**event, "total": sums[event["id"]][1]} for event in batch if event["id"] in sums]
    assert {r["id"]: (r["n"], r["total"]) for r in found["sums"]} == sums
    assert {r["id"]: r["events"] for r in found["seen"]} == dict.fromkeys(range(5), 80)
    assert found["copied"] == returned
    assert found["log"] == log
    assert all(batches == errors == 0 for batches, errors in engines)


def test_each_row_takes_effect_once(tmp_path: Path) -> None:
    check_kills(tmp_path, "journal: committed")


@pytest.mark.chaos
def test_each_row_takes_effect_once_at_any_step(tmp_path: Path) -> None:
    check_kills(tmp_path, "journal: written", "journal: committed", "commit: journalled")


if __name__ == "__main__":
    work(*sys.argv[1:])
