"""kill -9 of an app that fills tables in Delta and flushes them all the time: at the end they are equal to what DuckDB
computes over the same events, here and when delta-rs reads the Delta tables.

This file is also the program that is killed.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from millpond import App
from tests.test_kill import kill_after, run_to_the_end, running, say

DELTA = "WITH ('extension' = 'delta', 'path' = '{0}/{1}', 'flush.interval' = '{2}', 'optimize.files' = '2')"
TEXT = f"""
CREATE STREAM events (n BIGINT, k BIGINT);
CREATE TABLE last (k BIGINT PRIMARY KEY, n BIGINT) {DELTA.replace("{1}", "last")};
CREATE TABLE log (n BIGINT, k BIGINT) {DELTA.replace("{1}", "log")};
CREATE TABLE sums {DELTA.replace("{1}", "sums")} AS SELECT k, COUNT(*) AS c, SUM(n) AS s FROM events GROUP BY k;
INSERT INTO last SELECT k, n FROM events;
INSERT INTO log SELECT n, k FROM events WHERE n % 3 = 0;
DELETE FROM last USING events e WHERE last.k = e.k AND e.n % 5 = 0;
UPDATE log SET k = log.k + 100 FROM events e WHERE log.n = e.n - 1;
"""
ORACLE = {
    "sums": "SELECT k, COUNT(*), SUM(n)::BIGINT FROM e GROUP BY k",
    "log": "SELECT n, k + CASE WHEN n + 1 < {0} THEN 100 ELSE 0 END FROM e WHERE n % 3 = 0",
}


def event(n: int) -> dict[str, int]:
    return {"n": n, "k": n * 7 % 23}


def work(directory: str, count: int) -> None:
    say("start")
    with App(TEXT.format(directory, None, "10ms"), state=f"{directory}/state") as app:
        say("ready")
        for n in range(app._runtime.journal.stream_end("events"), count):
            app.send("events", event(n))
            say("sent")
        app.drain(timeout=300)
        print(
            json.dumps({t: [list(r.values()) for r in app.table(t)] for t in ("last", "log", "sums")}),
            flush=True,
        )


def check_kills(directory: Path, kills: int, count: int, seed: int) -> None:
    chance = random.Random(seed)
    command = (sys.executable, "-m", __name__, str(directory), str(count))
    for number in range(kills):
        with running(*command) as process:
            word = ("sent", "ready", "start")[number % 3]
            kill_after(
                process, word, chance.randrange(1, 20) if word == "sent" else 1, chance.uniform(0, 0.5)
            )
    found = json.loads(run_to_the_end(*command).splitlines()[-1])
    oracle = duckdb.connect()
    oracle.register("e", pa.Table.from_pylist([event(n) for n in range(count)]))
    for table, query in ORACLE.items():
        expected = sorted(map(list, oracle.execute(query.format(count)).fetchall()))
        assert sorted(found[table]) == expected
    for table, rows in found.items():
        there = DeltaTable(str(directory / table)).to_pyarrow_table()
        names = [n for n in there.column_names if n != "_row"]
        assert sorted(map(list, zip(*(there[n].to_pylist() for n in names), strict=True))) == sorted(rows)


@pytest.mark.slow
def test_a_few_kills(tmp_path: Path) -> None:
    check_kills(tmp_path, kills=3, count=60, seed=1)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(2, 5))
def test_many_kills(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, kills=20, count=400, seed=seed)


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]))
