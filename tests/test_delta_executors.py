"""Batches that executors write to tables in Delta: the rows that one process writes, none in the driver, each once."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from millpond import App, faults
from millpond.engine import spark_merge, spark_stage, stage, task_writes
from millpond.errors import QueryFailed, StateForeign
from millpond.testing.crash import crash
from millpond.testing.faults import failing
from tests.servers import Servers

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


def more(folder: Path, name: object, numbers: Iterable[int]) -> None:
    rows = [
        {
            "id": i,
            "k": None if i % 11 == 0 else f"{name} {i % 3}",
            "v": f"{i + at}.25",
            "day": f"2024-02-{1 + i % 28:02}",
        }
        for at, i in enumerate(numbers)
    ]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


COLUMNS = "id BIGINT, k STRING, v DECIMAL(12, 2), day DATE"


def table(at: Path, columns: str = COLUMNS) -> str:
    return f"""CREATE TABLE t ({columns})
               WITH ('extension' = 'delta', 'path' = '{at}', 'flush.interval' = '1h');"""


KEYED = COLUMNS.replace("id BIGINT", "id BIGINT PRIMARY KEY")


def program(source: Path, at: Path, engine: str = "spark", columns: str = COLUMNS) -> str:
    return f"""CREATE STREAM s ({COLUMNS}) WITH ('connector' = 'file://{source}/*.jsonl', 'format' = 'jsonl');
        {table(at, columns)}
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
    collect = spark_merge.collect

    def few(frame: Any) -> Any:
        found = collect(frame)
        assert found.num_rows < 10, "rows came to the driver"
        return found

    monkeypatch.setattr(spark_merge, "collect", few)
    monkeypatch.setattr(task_writes, "_TASK_ROWS", 500)


@pytest.mark.usefixtures("no_rows_come", "spark")
def test_executors_write_what_the_process_writes(source: Path, tmp_path: Path) -> None:
    with App(program(source, tmp_path / "a"), state=tmp_path / "state") as app:
        app.drain(400)
        found = here(app)
        assert app._runtime.store.backend("t").stats()["pending_rows"] == 0
        assert there(tmp_path / "a") == found
        app.sql("INSERT INTO t VALUES (-1, 'by hand', 0, NULL)")
        app.sql("UPDATE t SET k = 'changed' WHERE id = 5")
        app.sql("DELETE FROM t WHERE id >= 10")
    with App(program(source, tmp_path / "b", "process"), state=tmp_path / "other") as app:
        app.drain(400)
        assert here(app) == found and len(found) == COUNT - 1
    left = there(tmp_path / "a")
    assert [r[0] for r in left] == [-1, *(n for n in range(10) if n != 7)]
    assert dict((r[0], r[1]) for r in left)[5] == "changed"


@pytest.mark.usefixtures("no_rows_come", "spark")
def test_executors_merge_what_the_process_merges(source: Path, tmp_path: Path) -> None:
    """Of a key the last row of the stream counts, within a batch and after earlier ones and changes by statements."""
    found = {}
    for engine in ("spark", "process"):
        lake, folder = tmp_path / f"lake-{engine}", tmp_path / f"in-{engine}"
        shutil.copytree(source, folder)
        with App(program(folder, lake, engine, KEYED), state=tmp_path / engine) as app:
            app.drain(400)
            if engine == "spark":
                assert there(lake) == here(app) and len(there(lake)) == COUNT - 1
            app.sql("INSERT INTO t VALUES (-1, 'by hand', 0, NULL), (100, 'by hand', 0, NULL)")
            app.sql("UPDATE t SET k = 'changed' WHERE id IN (5, 200, 2500)")
            app.sql("DELETE FROM t WHERE id IN (10, 201)")
            more(
                folder, "later", [*range(100, 300), *range(COUNT, COUNT + 50), *range(COUNT + 20)[::-1]][:260]
            )
            app.drain(400)
            if engine == "spark":
                assert app._runtime.store.backend("t").stats()["pending_rows"] == 0
            found[engine] = here(app)
            assert app.table("t").find(id=250) and not app.table("t").find(id=10)
            queries = app.sql("SHOW QUERIES").rows()
            assert bool(queries[0]["spark_batches"]) == (engine == "spark")
        assert there(lake) == found[engine]
    assert found["spark"] == found["process"]
    assert dict((r[0], r[1]) for r in found["spark"])[5] == "changed"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("columns", [COLUMNS, KEYED], ids=["appended", "merged"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "alive"])
def test_a_fault_at_each_step(source: Path, tmp_path: Path, step: str, killed: bool, columns: str) -> None:
    """Killed, or going on after an error: no row is lost, and none is there twice."""
    state, lake, text = (
        tmp_path / "state",
        tmp_path / "lake",
        program(source, tmp_path / "lake", columns=columns),
    )
    app = App(text, state=state)
    with failing(step), pytest.raises(QueryFailed, match=step):
        app.drain(400)
    if killed:
        crash(app)
        app = App(text, state=state)
    else:
        app.sql("START QUERY fill")
    with app:
        app.drain(400)
        more(source, "later", range(COUNT, COUNT + 100))
        app.drain(400)
        found = here(app)
        assert [r[0] for r in found] == [n for n in range(COUNT + 100) if n != 7]
        assert there(lake) == found


@pytest.mark.usefixtures("spark")
def test_a_table_that_something_follows_gets_its_rows_through_the_driver(
    source: Path, tmp_path: Path
) -> None:
    view = "CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS n FROM t GROUP BY k;"
    text = program(source, tmp_path / "lake", columns=KEYED).replace("INSERT INTO", f"{view} INSERT INTO")
    with App(text, state=tmp_path / "state") as app:
        app.drain(400)
        assert app._runtime.store.backend("t").stats()["pending_rows"] == COUNT - 1
        found = app.sql("SELECT SUM(n) AS n FROM v").rows()
        assert found == [{"n": COUNT - 1}]
        app.sql("DROP MATERIALIZED VIEW v")
        more(source, "later", range(COUNT, COUNT + 300))
        app.drain(400)
        assert app._runtime.store.backend("t").stats()["pending_rows"] == 0
        found = app.sql("SELECT COUNT(*) AS n FROM t").rows()
        assert found == [{"n": COUNT + 299}]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("columns", [COLUMNS, KEYED], ids=["appended", "merged"])
def test_rows_that_the_table_refuses_are_error_records(source: Path, tmp_path: Path, columns: str) -> None:
    columns = columns.replace("k STRING", "k STRING NOT NULL")
    text = program(source, tmp_path / "lake", columns=columns)
    text = text.replace("id <> 7", "id <> 7 AND (k IS NOT NULL OR id = 1100)")
    with App(text, state=tmp_path / "state") as app:
        app.drain(300)
        assert [r[0] for r in here(app)] == [n for n in range(COUNT) if n % 11 and n != 7]
        assert [r["row"] for r in app.sql("SELECT CAST(row AS STRING) AS row FROM `fill$errors`").rows()]


@pytest.mark.usefixtures("spark")
def test_a_commit_while_executors_merge(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is merged again, with what the commit has changed below it."""
    lake = tmp_path / "lake"
    merge, left = spark_merge.merge_in_tasks, [2]
    with App(program(source, lake, columns=KEYED), state=tmp_path / "state") as app:

        def disturbed(*args: Any) -> Any:
            found = merge(*args)
            if left[0]:
                left[0] -= 1
                app.sql("INSERT INTO t VALUES (5, 'meanwhile', 0, NULL), (-1, 'meanwhile', 0, NULL)")
            return found

        monkeypatch.setattr(stage, "merge_in_tasks", disturbed)
        app.drain(400)
        rows = here(app)
        assert left == [0] and [r[0] for r in rows] == [n for n in range(-1, COUNT) if n != 7]
        assert rows[0][1] == "meanwhile" and rows[6][1] != "meanwhile"
    assert there(lake) == rows


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("older", ["state", "lake"])
def test_a_copy_from_before_is_refused(source: Path, tmp_path: Path, older: str) -> None:
    text = program(source, tmp_path / "lake")
    with App(text, state=tmp_path / "state") as app:
        app.drain(400)
    shutil.copytree(tmp_path / older, tmp_path / "copy")
    more(source, "later", range(COUNT, COUNT + 100))
    with App(text, state=tmp_path / "state") as app:
        app.drain(400)
    shutil.rmtree(tmp_path / older)
    (tmp_path / "copy").rename(tmp_path / older)
    with pytest.raises(StateForeign, match="older than the"):
        App(text, state=tmp_path / "state")


@pytest.mark.usefixtures("spark")
def test_objects(source: Path, tmp_path: Path, servers: Servers) -> None:
    """Executors append to a table in an object store; with a key the driver writes."""
    s3, name = servers.s3, f"b{uuid.uuid4().hex[:10]}"
    s3.client().create_bucket(Bucket=name)
    storage = {
        "AWS_ENDPOINT_URL": s3.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    options = ", ".join(f"'storage.{k}' = '{v}'" for k, v in storage.items())
    for columns, waiting in ((COLUMNS, 0), (KEYED, COUNT - 1)):
        place = f"s3://{name}/{waiting}"
        text = program(source, Path("PLACE"), columns=columns).replace("PLACE'", f"{place}', {options}")
        with App(text, state=tmp_path / str(waiting)) as app:
            app.drain(400)
            assert app._runtime.store.backend("t").stats()["pending_rows"] == waiting
            assert len(here(app)) == COUNT - 1
        assert DeltaTable(place, storage_options=storage).to_pyarrow_table().num_rows == COUNT - 1
