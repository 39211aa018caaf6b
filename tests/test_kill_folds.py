"""SIGKILL while the events of a batch that Spark has folded are committed: each is applied once.

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
CREATE TABLE seen (id INT PRIMARY KEY, events INT);
INSERT INTO sums VALUES (0, 0, 0), (1, 0, 0), (2, 0, 0);
UPDATE sums SET n = sums.n + 1, total = sums.total + e.n FROM e WHERE sums.id = e.id
  RETURNING sums.id, sums.n, sums.total INTO out;
MERGE INTO seen USING e ON seen.id = e.id
  WHEN MATCHED THEN UPDATE SET events = seen.events + 1
  WHEN NOT MATCHED THEN INSERT (id, events) VALUES (e.id, 1);
CREATE TABLE copied AS SELECT * FROM out;
"""
EVENTS = [{"id": i * 7 % 5, "n": i} for i in range(400)]


def work(state: str, point: str, visit: str) -> None:
    with App(SQL, state=state, engine="spark", _direct=True) as app:
        if not app._runtime.journal.stream_end("e"):
            app.send("e", EVENTS)
        with killing(point, visit=int(visit)) if point else nullcontext():
            app.drain(timeout=200)
        found = {name: app.sql(f"SELECT * FROM {name}").rows() for name in ("sums", "seen", "copied")}
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
    returned = []
    for event in EVENTS:
        if (i := event["id"]) in sums:
            sums[i] = (sums[i][0] + 1, sums[i][1] + event["n"])
            returned.append({"id": i, "n": sums[i][0], "total": sums[i][1]})
    assert {r["id"]: (r["n"], r["total"]) for r in found["sums"]} == sums
    assert {r["id"]: r["events"] for r in found["seen"]} == dict.fromkeys(range(5), 80)
    assert found["copied"] == returned
    assert all(batches == errors == 0 for batches, errors in engines)


def test_each_event_is_applied_once(tmp_path: Path) -> None:
    check_kills(tmp_path, "journal: committed")


@pytest.mark.chaos
def test_each_event_is_applied_once_at_any_step(tmp_path: Path) -> None:
    check_kills(tmp_path, "journal: written", "journal: committed", "commit: journalled")


if __name__ == "__main__":
    work(*sys.argv[1:])
