"""Files that executors write: the rows that one process writes, no row in the driver, published with the position."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millpond import App
from millpond.connectors.files.manifest import HIDDEN
from millpond.connectors.files.sink import FileSink
from millpond.connectors.sink import TaskWriter
from millpond.engine import spark_stage, stage, task_writes
from millpond.formats.file_writer import WRITTEN
from millpond.types import Column, Schema
from tests.servers import Servers

COUNT = 3_000
NAMED = Schema((Column("id", pa.int64()), Column("k", pa.string())))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two files, so that there are two tasks."""
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(2):
        rows = [
            {"id": i, "k": None if i % 11 == 0 else f"k {i % 3}", "v": i / 8} for i in range(part, COUNT, 2)
        ]
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def written(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.rglob("*")) if p.is_file() and HIDDEN not in p.parts]


@pytest.mark.parametrize("form", WRITTEN)
def test_executors_write_what_the_process_writes(
    form: str, source: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[object] = []
    for module in (spark_stage, stage):
        monkeypatch.setattr(module, "collect", collected.append)
    monkeypatch.setattr(task_writes, "_TASK_ROWS", 500)
    by = "'partition.by' = 'k'," if form in ("csv", "parquet") else ""
    inserts = [
        f"INSERT INTO file://{tmp_path}/{engine} SELECT id, k, v * 2 AS v FROM s WHERE id <> 7 WITH ("
        f"'format' = '{form}', {by} 'engine' = '{engine}', 'query.name' = '{engine}');"
        for engine in ("spark", "process")
    ]
    text = f"CREATE STREAM s WITH ('connector' = 'file://{source}/*.jsonl');" + "".join(inserts)
    with App(text, state=tmp_path / "state") as app:
        app.drain(120)
        found = [
            app.sql(f"SELECT * FROM 'file://{tmp_path}/{e}/**/*.{form}' ORDER BY id").rows()
            for e in ("spark", "process")
        ]
        queries = {q["name"]: q for q in app.sql("SHOW QUERIES").rows()}
    assert found[0] == found[1] and len(found[0]) == COUNT - 1
    assert queries["spark"]["spark_batches"] and queries["spark"]["rows"] == queries["process"]["rows"]
    assert collected == []
    folders = [
        {str(p.parent.relative_to(tmp_path / e)) for p in written(tmp_path / e)} for e in ("spark", "process")
    ]
    assert folders[0] == folders[1]
    assert not [
        p for p in (tmp_path / "spark" / HIDDEN).rglob("*") if p.is_file() and "manifest" not in p.name
    ]


def test_objects(source: Path, spark: SparkSession, servers: Servers, tmp_path: Path) -> None:
    s3 = servers.s3
    s3.client().create_bucket(Bucket="by-tasks")
    options = "".join(f", '{k}' = '{v}'" for k, v in s3.options.items())
    text = f"""
        CREATE STREAM s WITH ('connector' = 'file://{source}/*.jsonl');
        INSERT INTO s3://by-tasks/out SELECT id FROM s WITH ('format' = 'parquet', 'engine' = 'spark'{options});
    """
    with App(text, state=tmp_path / "state") as app:
        app.drain(120)
        query = f"SELECT id FROM 's3://by-tasks/out/*.parquet' WITH ({options[2:]})"
        assert sorted(r["id"] for r in app.sql(query).rows()) == list(range(COUNT))


def test_a_task_that_runs_twice_is_published_once(tmp_path: Path) -> None:
    sink = FileSink(f"file://{tmp_path}/out", {"format": "jsonl"}, NAMED)
    sink.open("q")
    writer = sink.task_writer(local=True)
    assert writer is not None
    rows = pa.table({"id": [1, 2], "k": ["a", None]})
    writer.write(rows)  # its task is lost afterwards
    sink.publish(writer.write(rows), None)
    (file,) = written(tmp_path / "out")
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == [1, 2]
    sink.close()
    assert len(written(tmp_path / "out")) == 1


@pytest.mark.parametrize(
    ("uri", "values", "local"),
    [
        ("file://{}/out", {}, False),
        ("file://{}/out", {"file.interval": 60.0}, True),
        ("file://{}/out.csv", {}, True),
    ],
)
def test_what_only_the_driver_writes(
    uri: str, values: dict[str, object], local: bool, tmp_path: Path
) -> None:
    """Files of this machine, if executors are on others; rows that wait; a single file."""
    sink = FileSink(uri.format(tmp_path), values, NAMED)
    sink.open("q")
    assert sink.task_writer(local=local) is None
    sink.close()


def test_rows_of_a_task_are_in_the_order_of_the_stream() -> None:
    class Kept(TaskWriter):
        schema = Schema((Column("rows", pa.int64()),))
        most = 40  # type: ignore[assignment]
        by = ()  # type: ignore[assignment]

        def __init__(self) -> None:
            self.ids: list[list[int]] = []

        def write(self, rows: pa.Table) -> pa.Table:
            self.ids.append(rows["id"].to_pylist())
            return pa.table({"rows": [rows.num_rows]})

    kept = Kept()
    task = task_writes.Task(kept, Schema((Column("id", pa.int64()),)))
    seqs = [[3, 1, 1], [2, None, 0]]
    batches = [
        pa.record_batch({"id": pa.array([10 * n + i for i in range(3)]), "_seq": pa.array(seq, pa.int64())})
        for n, seq in enumerate(seqs)
    ]
    reports = list(task.run(iter([*batches, batches[0].slice(0, 0)])))
    assert kept.ids == [[1, 2, 0], [12, 10, 11]]
    assert sum(r.column("rows")[0].as_py() for r in reports) == 6
