"""Batches that executors write to tables in Delta: the rows that one process writes, no row in the driver, each once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from millpond import App, faults
from millpond.engine import spark_stage, stage, task_writes
from millpond.errors import QueryFailed, StateForeign
from millpond.testing.crash import crash
from millpond.testing.faults import failing

COUNT = 3_000
STEPS = [point for point in faults.POINTS if point.startswith("executors:")]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two files, so that there are two tasks."""
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(2):
        more(folder, part, range(part, COUNT, 2))
    return folder


def more(folder: Path, name: object, numbers: range) -> None:
    rows = [
        {"id": i, "k": None if i % 11 == 0 else f"k {i % 3}", "v": f"{i}.25", "day": f"2024-02-{1 + i % 28:02}"}
        for i in numbers
    ]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


COLUMNS = "id BIGINT, k STRING, v DECIMAL(12, 2), day DATE"


def table(at: Path, name: str = "t", columns: str = COLUMNS) -> str:
    return f"""CREATE TABLE {name} ({columns})
               WITH ('extension' = 'delta', 'path' = '{at}', 'flush.interval' = '1h');"""


def program(source: Path, at: Path, engine: str = "spark") -> str:
    return f"""CREATE STREAM s ({COLUMNS}) WITH ('connector' = 'file://{source}/*.jsonl', 'format' = 'jsonl');
        {table(at)}
        INSERT INTO t SELECT id, k, v * 2 AS v, day FROM s WHERE id <> 7
        WITH ('engine' = '{engine}', 'query.name' = 'fill');"""


def here(app: App) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in app.sql("SELECT * FROM t").rows())


def there(at: Path) -> list[tuple[Any, ...]]:
    rows = DeltaTable(str(at)).to_pyarrow_table().select(["id", "k", "v", "day"])
    return sorted(zip(*(rows[n].to_pylist() for n in rows.column_names), strict=True))


@pytest.fixture
def no_rows_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """No result of a batch may come to the driver."""

    def collected(*_: Any) -> Any:
        raise AssertionError("rows came to the driver")

    for module in (spark_stage, stage):
        monkeypatch.setattr(module, "collect", collected)
    monkeypatch.setattr(task_writes, "_TASK_ROWS", 500)


@pytest.mark.usefixtures("no_rows_come", "spark")
def test_executors_write_what_the_process_writes(source: Path, tmp_path: Path) -> None:
    with App(program(source, tmp_path / "a"), state=tmp_path / "state") as app:
        app.drain(120)
        found = here(app)
        assert app._runtime.store.backend("t").stats()["pending_rows"] == 0
        assert there(tmp_path / "a") == found
        app.sql("INSERT INTO t VALUES (-1, 'by hand', 0, NULL)")
        app.sql("UPDATE t SET k = 'changed' WHERE id = 5")
        app.sql("DELETE FROM t WHERE id >= 10")
    with App(program(source, tmp_path / "b", "process"), state=tmp_path / "other") as app:
        app.drain(120)
        assert here(app) == found and len(found) == COUNT - 1
    left = there(tmp_path / "a")
    assert [r[0] for r in left] == [-1, *(n for n in range(10) if n != 7)]
    assert dict((r[0], r[1]) for r in left)[5] == "changed"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("killed", [True, False])
def test_a_fault_at_each_step(source: Path, tmp_path: Path, step: str, killed: bool) -> None:
    """Killed, or going on after an error: no row is lost, and none is there twice."""
    state, lake, text = tmp_path / "state", tmp_path / "lake", program(source, tmp_path / "lake")
    app = App(text, state=state)
    with failing(step), pytest.raises(QueryFailed, match=step):
        app.drain(120)
    if killed:
        crash(app)
        app = App(text, state=state)
    else:
        app.sql("START QUERY fill")
    with app:
        app.drain(120)
        more(source, "later", range(COUNT, COUNT + 100))
        app.drain(120)
        found = here(app)
        assert [r[0] for r in found] == [n for n in range(COUNT + 100) if n != 7]
        assert there(lake) == found
