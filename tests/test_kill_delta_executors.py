"""kill -9 of an app whose executors write batches into Delta tables: at the end these have each row once, here, for
delta-rs and for Spark itself.

This file is also the program that is killed, and the one in which Spark reads.
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

DELTA = "WITH ('extension' = 'delta', 'path' = '{0}/{1}', 'flush.interval' = '50ms', 'optimize.files' = '4')"
BY_SPARK = "WITH ('engine' = 'spark')"
TEXT = f"""
CREATE STREAM events (n BIGINT, k BIGINT) WITH ('batch.max.rows' = '500');
CREATE TABLE log (n BIGINT, k BIGINT) {DELTA.replace("{1}", "log")};
CREATE TABLE newest (k BIGINT PRIMARY KEY, n BIGINT) {DELTA.replace("{1}", "newest")};
CREATE TABLE some (k BIGINT PRIMARY KEY, n BIGINT) {DELTA.replace("{1}", "some")};
INSERT INTO log SELECT n, k FROM events {BY_SPARK};
INSERT INTO newest SELECT k, n FROM events {BY_SPARK};
INSERT INTO some SELECT k, n FROM events WHERE n % 5 <> 0 {BY_SPARK};
DELETE FROM some USING events e WHERE some.k = e.k AND e.n % 5 = 0;
"""
ORACLE = {"log": "SELECT n, k FROM e", "newest": "SELECT k, MAX(n) FROM e GROUP BY k"}
TABLES = {"log": "n, k", "newest": "k, n", "some": "k, n"}
SENT = 500


def event(n: int, count: int) -> dict[str, int]:
    return {"n": n, "k": n * 7 % (count // 4 + 1)}


def work(directory: str, end: int, count: int) -> None:
    say("start")
    with App(TEXT.format(directory), state=f"{directory}/state") as app:
        say("ready")
        for first in range(app._runtime.journal.stream_end("events"), end, SENT):
            app.send("events", [event(n, count) for n in range(first, min(first + SENT, end))])
            say("sent")
        app.drain(timeout=900)
        found = {
            name: [list(row.values()) for row in app.sql(f"SELECT {columns} FROM {name}").rows()]
            for name, columns in TABLES.items()
        }
    print(json.dumps(found), flush=True)


def read(directory: str) -> None:
    """Prints what Spark reads, with its own package for Delta."""
    from millpond.engine.session import get_session

    spark = get_session("local[1]", formats={"delta"})
    for setting in ("spark.databricks.delta.snapshotPartitions", "spark.sql.shuffle.partitions"):
        spark.conf.set(setting, "1")
    found = {
        name: [list(row) for row in spark.sql(f"SELECT {columns} FROM delta.`{directory}/{name}`").collect()]
        for name, columns in TABLES.items()
    }
    print(json.dumps(found), flush=True)


def check_kills(directory: Path, kills: int, count: int, seed: int, *, spark: bool) -> None:
    chance = random.Random(seed)
    command = (sys.executable, "-m", __name__, str(directory))
    for number in range(kills):
        end = count * (number + 1) // (kills + 1)  # each life has rows of its own to send
        with running(*command, str(end), str(count)) as process:
            word = ("sent", "sent", "ready", "start")[number % 4]
            times = chance.randrange(1, 4) if word == "sent" else 1
            kill_after(process, word, times, chance.uniform(0, 15 if word == "sent" else 2))
    found = json.loads(run_to_the_end(*command, str(count), str(count)).splitlines()[-1])
    oracle = duckdb.connect()
    oracle.register("e", pa.Table.from_pylist([event(n, count) for n in range(count)]))
    for table, query in ORACLE.items():
        assert sorted(found[table]) == sorted(map(list, oracle.execute(query).fetchall()))
    by_spark = found
    if spark:
        by_spark = json.loads(run_to_the_end(sys.executable, "-m", __name__, str(directory)).splitlines()[-1])
    for table, rows in found.items():
        there = DeltaTable(str(directory / table)).to_pyarrow_table()
        columns = (there[name].to_pylist() for name in TABLES[table].split(", "))
        assert sorted(map(list, zip(*columns, strict=True))) == sorted(rows) == sorted(by_spark[table])
        commits = (directory / table / "_delta_log").glob("*.json")
        assert any("millpond batches" in commit.read_text() for commit in commits), "executors wrote nothing"


@pytest.mark.slow
@pytest.mark.spark
def test_a_few_kills(tmp_path: Path) -> None:
    check_kills(tmp_path, kills=3, count=2_000, seed=1, spark=False)


@pytest.mark.chaos
def test_many_kills(tmp_path: Path) -> None:
    check_kills(tmp_path, kills=20, count=20_000, seed=2, spark=True)


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 2 else read(sys.argv[1])
