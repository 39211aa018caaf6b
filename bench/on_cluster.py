"""X4: who works on a cluster: JSON of a topic into a live aggregate, on a standalone master with two executors.

The last of some equal statements is measured, when all processes are warm. Shares are of the CPU time of the driver
and the executors; the broker, the master and the workers' own processes are left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.figure import Figure
from bench.process_tree import cpu_seconds
from tests.cluster import Cluster
from tests.servers import Kafka

ROWS, SHOPS, PARTITIONS, ROUNDS = 3_000_000, 1_000, 2, 4
_PROGRAM = """
import sys
from millpond import App

master, topic, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
sql = f"CREATE STREAM sales (id BIGINT, shop BIGINT, price DOUBLE, note STRING) WITH ('connector' = '{topic}')"
with App(sql, master=master) as app:
    for number in range(int(sys.argv[4])):
        print("ready", flush=True)
        sys.stdin.readline()
        app.sql(f"CREATE TABLE t{number} AS SELECT shop, COUNT(*) AS n, SUM(price) AS total FROM sales GROUP BY shop")
        app.drain(600)
        assert app.sql(f"SELECT SUM(n) AS n FROM t{number}").rows() == [{"n": rows}]
        print("done", flush=True)
    sys.stdin.readline()
"""


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        broker = Kafka(folder / "kafka")
        try:
            with Cluster(folder / "hidden" / "new", folder / "hidden") as cluster:
                yield from _figures(cluster, _filled(broker))
        finally:
            broker.stop()


def _filled(broker: Kafka) -> str:
    """Returns a topic with rows, as many in each partition."""
    topic = "sales"
    broker.create(topic, PARTITIONS)
    random = np.random.default_rng(7)
    shops, prices = random.integers(0, SHOPS, ROWS), random.random(ROWS) * 100
    broker.produce(
        topic,
        (
            (
                None,
                json.dumps({"id": i, "shop": int(s), "price": round(float(p), 4), "note": f"note {i % 100}"}),
                i % PARTITIONS,
            )
            for i, (s, p) in enumerate(zip(shops, prices, strict=True))
        ),
    )
    return f"kafka://{broker.brokers}/{topic}"


def _figures(cluster: Cluster, topic: str) -> Iterator[Figure]:
    command = [sys.executable, "-c", _PROGRAM, cluster.url, topic, str(ROWS), str(ROUNDS)]
    with subprocess.Popen(
        command,
        env=cluster.driver_env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=cluster.log,
        text=True,
    ) as driver:
        assert driver.stdin is not None and driver.stdout is not None
        before, after = [0.0], [0.0]
        for _ in range(ROUNDS):
            assert driver.stdout.readline() == "ready\n", "the driver has failed"
            before = [cpu_seconds(process) for process in (driver.pid, *cluster.executors())]
            driver.stdin.write("go\n")
            driver.stdin.flush()
            assert driver.stdout.readline() == "done\n", "the driver has failed"
            after = [cpu_seconds(process) for process in (driver.pid, *cluster.executors())]
        driver.stdin.write("end\n")
        driver.stdin.flush()
    mine, *theirs = (b - a for a, b in zip(before, after, strict=True))
    what = f"{ROWS:,} messages into {SHOPS:,} groups, two executors"
    peer = "the executors together"
    yield Figure(
        "X4", f"{what}: CPU of the driver", mine * 1000, sum(theirs) * 1000, peer, "ms", f"{ROWS:,} rows"
    )
    peer = "the other one"
    low, high = min(theirs) * 1000, max(theirs) * 1000
    yield Figure("X4", f"{what}: CPU of the busier executor", high, low, peer, "ms", f"{ROWS:,} rows")
