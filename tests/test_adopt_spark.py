"""``millpond adopt`` on jobs that were written by hand, as Spark leaves them: appends and upserts, files and Kafka.

This file is also the program that runs the jobs, and is killed in the last one, between its MERGE and the end of the
batch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from millpond import App
from tests.servers import Kafka, Servers
from tests.test_adopt import adopt, rows_at
from tests.test_kafka import new_topic, uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "id BIGINT, k STRING"
FILES = 12
"""More than Spark lists apart: after ten it lists all of them together."""


def rows_of(number: int) -> list[dict[str, Any]]:
    """Rows that come together: one key comes again each time."""
    return [{"id": 0, "k": f"of {number}"}, *({"id": 10 * number + i, "k": "x"} for i in range(1, 4))]


def write_file(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    scratch = folder / f".{number}"
    scratch.write_text("".join(json.dumps(row) + "\n" for row in rows_of(number)))
    scratch.rename(folder / f"part {number}.json")


# the jobs


def work(folder: Path, brokers: str, topic: str) -> None:
    from millpond.engine.session import get_session

    spark = get_session("local[1]", formats={"delta", "kafka"})
    for few in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        spark.conf.set(few, "1")
    one, several = (
        spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", most).json(str(folder / "in"))
        for most in (1, 6)
    )
    messages = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers)
    messages = messages.option("subscribe", topic).option("startingOffsets", "earliest").load()
    rows = messages.selectExpr(f"from_json(CAST(value AS STRING), '{COLUMNS}') AS v").select("v.*")
    append(one, folder, "appended files")
    append(rows, folder, "appended messages")
    upsert(spark, several, folder, "upserted files", lambda batch: None)
    upsert(spark, rows, folder, "upserted messages", lambda batch: None)
    print("ready", flush=True)
    sys.stdin.readline()
    upsert(spark, rows, folder, "upserted messages", lambda batch: os.kill(os.getpid(), signal.SIGKILL))


def append(rows: DataFrame, folder: Path, name: str) -> None:
    job = rows.writeStream.format("delta").option("checkpointLocation", str(folder / name / "job"))
    job.trigger(availableNow=True).start(str(folder / name / "lake")).awaitTermination(300)


def upsert(
    spark: SparkSession, rows: DataFrame, folder: Path, name: str, after: Callable[[int], None]
) -> None:
    place = folder / name / "lake"
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{place}` ({COLUMNS}) USING delta")

    def merge(found: DataFrame, batch: int) -> None:
        last = found.selectExpr("id", "k", "row_number() OVER (PARTITION BY id ORDER BY k DESC) AS n")
        last.where("n = 1").drop("n").createOrReplaceTempView("last")
        found.sparkSession.sql(f"""MERGE INTO delta.`{place}` t USING last s ON t.id = s.id
            WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""")
        after(batch)

    job = rows.writeStream.foreachBatch(merge).option("checkpointLocation", str(folder / name / "job"))
    job.trigger(availableNow=True).start().awaitTermination(300)


# the apps


def go_on(folder: Path, source: str, name: str) -> Path:
    """Writes the app that goes on for a job, and takes the job over."""
    home = folder / name
    text = f"CREATE STREAM s ({COLUMNS}) WITH ('connector' = '{source}');"
    if name == "upserted files":
        text += f"""CREATE TABLE t (id BIGINT PRIMARY KEY, k STRING)
            WITH ('extension' = 'delta', 'path' = '{home / "lake"}');
            INSERT INTO t SELECT * FROM s;"""
    else:
        key = " WITH ('key' = 'id')" if name.startswith("upserted") else ""
        text += f"INSERT INTO 'delta://{home / 'lake'}' SELECT * FROM s{key};"
    app = home / "app.sql"
    app.write_text(text)
    named = ("--checkpoint", home / "job", "--table", home / "lake", app, "--state", home / "state")
    version = DeltaTable(home / "lake").version()
    assert adopt(*named, "--dry-run").exit_code == 0 and DeltaTable(home / "lake").version() == version
    done = adopt(*named)
    assert done.exit_code == 0, done.output
    assert adopt(*named).exit_code == 1
    return app


def run(app: Path) -> None:
    for _ in range(2):
        with App(app, state=app.parent / "state", engine="process") as running:
            running.drain(120)


def last(folder: Path, name: str) -> int:
    return max(int(f.name) for f in (folder / name).iterdir() if f.name.isdecimal())


@pytest.mark.slow
def test_jobs_written_by_hand(tmp_path: Path, servers: Servers) -> None:
    kafka: Kafka = servers.kafka
    topic = new_topic(kafka, 2)

    def send(number: int) -> None:
        kafka.produce(topic, [(str(row["id"]), json.dumps(row)) for row in rows_of(number)])

    for number in range(FILES):
        write_file(tmp_path / "in", number)
        send(number)
    command = [sys.executable, "-m", "tests.test_adopt_spark", str(tmp_path), kafka.brokers, topic]
    with open(tmp_path / "log", "w") as log:
        jobs = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert jobs.stdout is not None and jobs.stdin is not None
            said = [line.strip() for line in iter(jobs.stdout.readline, "ready\n") if line]
            assert jobs.poll() is None, (said, (tmp_path / "log").read_text())
            send(FILES)
            jobs.stdin.write("\n")
            jobs.stdin.flush()
            assert jobs.wait(300) == -signal.SIGKILL, (tmp_path / "log").read_text()
        finally:
            jobs.kill()
    killed = tmp_path / "upserted messages"
    assert last(killed / "job", "offsets") == last(killed / "job", "commits") + 1
    assert (0, f"of {FILES}") in rows_at(killed / "lake")
    # As a kill leaves it after the commit of the table: the batch is there, and is not finished.
    finished = tmp_path / "appended files" / "job" / "commits"
    (finished / str(last(finished.parent, "commits"))).unlink()

    apps = {
        name: go_on(tmp_path, uri(kafka, topic) if "messages" in name else f"file://{tmp_path}/in", name)
        for name in ("appended files", "appended messages", "upserted files", "upserted messages")
    }
    write_file(tmp_path / "in", FILES)
    write_file(tmp_path / "in", FILES + 1)
    send(FILES + 1)
    for app in apps.values():
        run(app)
    every = [(row["id"], row["k"]) for number in range(FILES + 2) for row in rows_of(number)]
    for name, app in apps.items():
        expected = sorted(every if name.startswith("appended") else dict(every).items())
        assert rows_at(app.parent / "lake") == expected, name


if __name__ == "__main__":
    work(Path(sys.argv[1]), *sys.argv[2:])
