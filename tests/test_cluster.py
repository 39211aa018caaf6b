"""An app on a real cluster, whose executors see nothing of the driver's disk: the same results as in one process,
whatever is killed meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.engine.cluster import is_cluster, is_here
from millpond.engine.cluster_check import check_executors, explained
from millpond.errors import EngineError
from millpond.sql.userfunctions import make_function
from tests.cluster import Cluster
from tests.cluster_app import expected
from tests.servers import Servers
from tests.test_kafka import new_topic, uri
from tools.services import s3a

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 24_000
CHUNKS = 4


def test_masters() -> None:
    assert [
        is_cluster(m) for m in ("local", "local[4]", "local-cluster[1,1,1024]", "spark://h:7077", "yarn")
    ] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert [is_here(m) for m in ("local[2]", "spark://localhost:7077", "spark://far:7077", "yarn")] == [
        True,
        True,
        False,
        False,
    ]


class Driver:
    """A life of the program of ``cluster_app``."""

    def __init__(self, cluster: Cluster, env: Mapping[str, str] | None, **settings: Any):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster_app", json.dumps({"master": cluster.url, **settings})],
            env=env or cluster.driver_env,
            stdout=subprocess.PIPE,
            stderr=cluster.log,
            text=True,
            start_new_session=True,
        )

    def words(self) -> Iterator[tuple[str, Any]]:
        """Yields what it prints."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, what = json.loads(line)
            yield word, what

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def check(self) -> None:
        assert self._process.wait() == 0, "see cluster.log"

    def end(self) -> None:
        self.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def driver(cluster: Cluster, env: Mapping[str, str] | None = None, **settings: Any) -> Iterator[Driver]:
    life = Driver(cluster, env, **settings)
    try:
        yield life
    finally:
        life.end()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster") / "new", tmp_path_factory.getbasetemp()) as cluster:
        yield cluster


@pytest.mark.spark
@pytest.mark.slow
def test_an_app_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    """Its first life ships rows with the tasks, an executor is killed, then the driver; in its second life they go
    through a store, and a worker is killed.
    """
    found: dict[str, Any] = {}
    state, settings = str(tmp_path / "state"), {"do": "run", "chunks": CHUNKS, "rows": ROWS}
    store = cluster.shared / "store"
    with driver(cluster, **settings, state=state, store=None) as life:
        for word, what in life.words():
            if (word, what) == ("sent", 1):
                time.sleep(0.3)
                cluster.kill_executor()
            if (word, what) == ("sent", 2):
                time.sleep(0.3)
                life.kill()
    assert (word, what) == ("sent", 2)
    with driver(cluster, **settings, state=state, store=str(store)) as life:
        for word, what in life.words():
            found[word] = what
            if (word, what) == ("sent", 3):
                time.sleep(0.3)
                cluster.kill_worker()
        life.check()
    assert found["results"] == expected(CHUNKS, ROWS)
    assert min(found["stored"]) > 0 and not list(store.iterdir()), "rows, and files of streams"
    assert found["queries"] and all(in_process == 0 for _, in_process, _ in found["queries"])


@pytest.mark.spark
@pytest.mark.slow
def test_executors_of_a_cluster_write_a_topic(cluster: Cluster, servers: Servers, tmp_path: Path) -> None:
    kafka, rows = servers.kafka, 30_000
    target = new_topic(kafka, 3)
    with driver(
        cluster, do="write", state=str(tmp_path / "state"), target=uri(kafka, target), rows=rows
    ) as life:
        said = dict(life.words())
        life.check()
    assert said["written"] == rows
    keys = defaultdict(list)
    for key, value in kafka.consume(target):
        keys[key].append(json.loads(value or b"")["id"])
    assert len(keys) == 51 and sum(map(len, keys.values())) == rows
    assert all(ids == sorted(ids) for key, ids in keys.items() if key is not None)


@pytest.mark.spark
@pytest.mark.slow
def test_files_are_loaded_by_executors_if_they_see_them(cluster: Cluster, tmp_path: Path) -> None:
    folders = [cluster.shared / "files", tmp_path / "files"]
    for folder in folders:
        folder.mkdir()
        (folder / "ids.csv").write_text("id\n" + "".join(f"{i}\n" for i in range(20_000)))
        rows = pa.table({"id": range(20_000)})
        pq.write_table(rows, folder / "ids.parquet", row_group_size=7000)
    settings = {"folders": [str(folder) for folder in folders], "store": str(cluster.shared)}
    with driver(cluster, do="loads", **settings) as life:
        said = list(life.words())
        life.check()
    assert said == [
        ("loaded", [20_000, False]),
        ("parquet", [20_000, 20_000]),
        ("loaded", [20_000, True]),
        ("parquet", [20_000, 0]),
    ]


@pytest.mark.spark
@pytest.mark.slow
def test_what_executors_lack_is_told_at_the_start(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    python = cluster.shared / "python without packages"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    with driver(cluster, do="refused", folder=str(tmp_path / "private"), python=str(python)) as life:
        said = list(life.words())
        life.check()
    assert [word for word, _ in said] == ["refused", "refused", "places"]
    (packages, how), (unseen, mount) = [what for _, what in said[:2]]
    assert "lack the Python package pyarrow" in packages and "PYSPARK_PYTHON" in how
    assert f'the store "file://{tmp_path}/private/millpond-' in unseen
    assert "cannot be seen by the executor on host" in unseen and "mounted under the same path" in mount
    process, places = said[2][1]
    for place in places:
        caller, _, package = place.partition(" ")
        assert int(caller) != process and "millpond.zip" in package


@pytest.mark.spark
def test_rows_go_through_an_object_store(cluster: Cluster, servers: Servers, tmp_path: Path) -> None:
    s3 = servers.s3
    s3.client().create_bucket(Bucket="rows")
    settings = {
        "spark.jars": ",".join(str(jar) for jar in sorted(s3a().glob("*.jar"))),
        "spark.hadoop.fs.s3a.endpoint": s3.url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.access.key": "k",
        "spark.hadoop.fs.s3a.secret.key": "s",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        # moto answers "Expect: 100-continue" wrongly; asynchronous uploads always ask for it.
        "spark.hadoop.fs.s3a.connection.expect.continue": "false",
        "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
        "spark.hadoop.fs.s3a.attempts.maximum": "3",
        "spark.hadoop.fs.s3a.retry.limit": "3",
    }
    env = cluster.configured(tmp_path / "conf", settings)
    with driver(
        cluster, env, do="run", chunks=2, rows=ROWS, state=str(tmp_path / "s"), store="s3a://rows/at"
    ) as life:
        found = dict(life.words())
        life.check()
    assert found["results"] == expected(2, ROWS)
    assert min(found["stored"]) > 0
    left = s3.client().list_objects_v2(Bucket="rows").get("Contents", [])
    assert all(file["Size"] == 0 for file in left), "of the folder only its mark is left"


@pytest.mark.spark
@pytest.mark.slow
def test_an_app_in_a_session_of_somebody_else_on_a_cluster(cluster: Cluster) -> None:
    """Its statements with joined streams, too, run on executors that see nothing of the driver's disk."""
    with driver(cluster, do="given") as life:
        found = dict(life.words())
        life.check()
    assert found["results"] == expected(1, 12_000, pairs=True)
    assert len(found["results"]["pairs"]) > 5_000
    assert found["pairs"] == [["table:pairs.p", 0, True], ["table:pairs.l", 0, True]]
    assert found["kept"] == [10, [], 0]


def test_a_function_that_executors_cannot_load(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "only_here.py").write_text("def half(n: int) -> int:\n    return n // 2\n")
    sys.path.append(str(tmp_path))
    from only_here import half  # type: ignore[import-not-found]

    check_executors(spark, None)
    function = make_function(half)
    try:
        with pytest.raises(
            EngineError,
            match=r'function "half" cannot be loaded by executors on host ".*": No module named \'only_here\'',
        ):
            check_executors(spark, None)
    finally:
        function.forget()
        sys.path.remove(str(tmp_path))


def test_what_a_first_job_fails_with() -> None:
    lost = "Lost task 0.3 in stage 0.0 (TID 3) (w2 executor 1): "
    for text, message in (
        (
            'java.io.IOException: Cannot run program "/opt/python": error=2',
            'cannot start Python: "/opt/python"',
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11",
            "have Python 3.12, the driver has 3.11",
        ),
    ):
        assert explained(lost + text, None).message == f'executors on host "w2" {message}'


@pytest.mark.chaos
@pytest.mark.spark
@pytest.mark.parametrize("stored", [False, True])
def test_a_cluster_that_is_killed_again_and_again(tmp_path: Path, stored: bool) -> None:
    """Executors, workers, the driver and the master, eight times each, while 500,000 rows pass."""
    chunks, rows, each = 25, 20_000, 8
    chance = random.Random(17)
    kinds = ["executor", "worker", "driver", "master"] * each
    chance.shuffle(kinds)
    found: dict[str, Any] = {}
    with Cluster(tmp_path / "cluster", tmp_path) as cluster:
        store = str(cluster.shared / "store") if stored else None
        settings = {
            "do": "run",
            "chunks": chunks,
            "rows": rows,
            "state": str(tmp_path / "state"),
            "store": store,
        }
        while "results" not in found:
            with driver(cluster, **settings) as life:
                for word, what in life.words():
                    found[word] = what
                    if word == "results" or not kinds or (word == "sent" and what < chunks - 2 * len(kinds)):
                        continue
                    kind = kinds.pop()
                    time.sleep(chance.uniform(0, 2))
                    if kind == "driver":
                        life.kill()
                    else:
                        {
                            "executor": cluster.kill_executor,
                            "worker": cluster.kill_worker,
                            "master": cluster.kill_master,
                        }[kind]()
                if "results" in found:
                    life.check()
    assert not kinds
    assert found["results"] == expected(chunks, rows)


@pytest.mark.chaos
@pytest.mark.spark
def test_executors_that_the_app_starts(tmp_path: Path) -> None:
    settings = {"do": "run", "master": "local-cluster[2,1,1024]", "chunks": 2, "rows": ROWS, "store": None}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.cluster_app",
            json.dumps(settings | {"state": str(tmp_path / "state")}),
        ],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    assert found["results"] == expected(2, ROWS)
    assert all(in_process == 0 for _, in_process, _ in found["queries"])
