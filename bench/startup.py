"""The first second of an app, and what idle streams cost. Each app runs in a process of its own.

Times are those since the process was started, Python's imports included. The peer of the start is a bare PySpark that
starts and counts a range; that of 30 streams is an app with one. Times, cores and bytes: the smaller the better.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure

STREAMS = 30
RESTORED = 1_000_000

_BARE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.range(1000).count() == 1000
tell(spark=since())
spark.stop()
"""
_FIRST = """
from millpond import App
import pyarrow as pa
with App('''
    CREATE STREAM s (k STRING, v BIGINT);
    CREATE TABLE t (PRIMARY KEY (k)) AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;
''', state=STATE) as app:
    app.send("s", [{"k": "a", "v": 1}])
    while not len(app.table("t")):
        time.sleep(0.002)
    row = since()
    app.send("s", pa.table({"k": ["b"] * 50_000, "v": range(50_000)}))
    app.drain(300)
    by = app.sql("SHOW QUERIES").rows()[0]
    assert by["spark_rows"] == 50_000 and by["process_rows"] == 1, by
    tell(row=row, spark=since())
"""
_LOAD = """
from millpond import App
import pyarrow as pa
with App('''
    CREATE STREAM s (id BIGINT, v BIGINT);
    CREATE TABLE t (id BIGINT, name STRING, PRIMARY KEY (id));
    CREATE TABLE joined AS SELECT s.id, t.name FROM s JOIN t ON s.id = t.id;
''', state=STATE) as app:
    ids = range(ROWS)
    app.table("t").bulk_insert(pa.table({"id": ids, "name": [f"n{i}" for i in ids]}))
"""
_RESTORED = """
from millpond import App
with App(state=STATE) as app:
    assert app.table("t").get_record(ROWS // 2)["name"] == f"n{ROWS // 2}"
    tell(answer=since())
"""
_MANY = """
from millpond import App
from millpond.engine.session import get_session
get_session()
opened = time.time()
sql = "".join(
    f"CREATE STREAM s{i} (k STRING); CREATE TABLE t{i} (PRIMARY KEY (k)) AS"
    f" SELECT k, COUNT(*) AS n FROM s{i} GROUP BY k;"
    for i in range(STREAMS)
)
with App(sql, state=STATE) as app:
    opened = time.time() - opened
    time.sleep(10)
    before, at = cpu(), time.time()
    time.sleep(10)
    idle = (cpu() - before) / (time.time() - at)
    took = []
    for n in range(1, 62):
        began = time.perf_counter()
        app.send("s0", [{"k": "a"}])
        while n > 1 and app.table("t0").get_record("a")["n"] < n or not len(app.table("t0")):
            time.sleep(0.0005)
        took.append(time.perf_counter() - began)
    tell(opened=opened, idle=idle, memory=memory(), latency=sorted(took[1:])[30])
"""
_HEAD = """
import json, os, sys, time
BEGAN, STATE, ROWS, STREAMS = float(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def since():
    return time.time() - BEGAN

def tell(**found):
    print(json.dumps(found), flush=True)

def family():
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents[int(pid)] = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        except OSError:
            pass
    found = {os.getpid()}
    while more := {p for p, stat in parents.items() if int(stat[1]) in found} - found:
        found |= more
    return [parents[p] for p in found]

def cpu():
    return sum(int(s[11]) + int(s[12]) for s in family()) / os.sysconf("SC_CLK_TCK")

def memory():
    return sum(int(s[21]) for s in family()) * os.sysconf("SC_PAGE_SIZE")
"""


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        bare = _run(_BARE, folder)["spark"]
        _run(_FIRST, Path(folder, "warm"))  # makes the archive of Spark's classes, beside it
        time.sleep(20)
        first = _run(_FIRST, Path(folder, "first"))
        _run(_LOAD, Path(folder, "large"))
        answer = _run(_RESTORED, Path(folder, "large"))["answer"]
        many, one = (_run(_MANY, Path(folder, f"{n}"), streams=n) for n in (STREAMS, 1))
    name = "bare PySpark, until it has counted"
    yield _milliseconds("X8", "first row in its table", first["row"], bare, name)
    yield _milliseconds("X8", f"first answer from {RESTORED:,} restored rows", answer, bare, name)
    yield _milliseconds("X8", "first batch evaluated by Spark", first["spark"], bare, name)
    name = "one stream"
    yield _milliseconds("X9", f"{STREAMS} streams: open, Spark is up", many["opened"], one["opened"], name)
    idle, alone = many["idle"] * 1000, max(one["idle"] * 1000, 0.1)
    yield Figure("X9", f"{STREAMS} streams: thousandths of a core, idle", idle, alone, name, "‰", "core")
    memory, alone = (found["memory"] / 2**20 for found in (many, one))
    yield Figure("X9", f"{STREAMS} streams: memory of all processes", memory, alone, name, "MB", "app")
    yield _milliseconds(
        "X9", f"{STREAMS} streams: one row, to visible", many["latency"], one["latency"], name
    )


def _milliseconds(id: str, what: str, ours: float, peer: float, name: str) -> Figure:
    return Figure(id, what, ours * 1000, peer * 1000, name, unit="ms", per="app")


def _run(program: str, state: Path | str, streams: int = STREAMS) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _HEAD + program, f"{time.time()}", str(state), str(RESTORED), str(streams)],
        capture_output=True,
        text=True,
        env=os.environ | {"MILLPOND_MASTER": "local[2]"},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    return found
