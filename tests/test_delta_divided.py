"""Batches that tasks have written to tables in Delta, and what the app commits of them: without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
import pytest
from deltalake import DeltaTable

from millpond import App
from millpond.changes import Position
from millpond.connectors.delta.row_numbers import OF_A_TASK, RowNumbers
from millpond.connectors.delta.table import DeltaTable as LakeTable
from millpond.connectors.divided_table import Written
from millpond.errors import ConnectionLost, InvalidRecord
from millpond.store.divided_commits import DividedCommits


def create(at: Path, key: str = "") -> str:
    return f"""CREATE TABLE t (id BIGINT{key}, name STRING)
               WITH ('extension' = 'delta', 'path' = '{at}', 'flush.interval' = '1h')"""


def divided(app: App) -> tuple[DividedCommits, LakeTable]:
    runtime = app._runtime
    commits = DividedCommits(runtime.store, runtime.state.identity, runtime.compactor.flusher)
    table: Any = runtime.store.backend("t")
    return commits, table


def rows(*ids: int, name: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [name] * len(ids)})


def appended(table: LakeTable, *batches: pa.Table) -> Written:
    """Writes each of the batches as a task."""
    writer = table.task_writer(local=True)
    assert writer is not None
    files = [writer.of_task(number).write(batch) for number, batch in enumerate(batches)]
    return Written(pa.concat_tables(files), sum(b.num_rows for b in batches))


def at(batch: int) -> Position:
    return Position("q", "", batch, {"s": {"at": batch}})


def here(app: App) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in app.sql("SELECT id, name FROM t ORDER BY id").rows()]


def test_batches_beside_rows_that_are_not_flushed(tmp_path: Path) -> None:
    with App(create(tmp_path / "lake"), state=tmp_path / "state") as app:
        commits, table = divided(app)
        app.sql("INSERT INTO t VALUES (1, 'one')")
        written = appended(table, rows(10, 11), rows(12))
        app.sql("INSERT INTO t VALUES (2, 'two')")
        assert commits.commit("t", table, written, at(1)) == 3
        assert commits.commit("t", table, written, at(1)) == 3  # it was applied before
        app.sql("UPDATE t SET name = 'changed' WHERE id IN (2, 11)")
        expected = [(1, "one"), (2, "changed"), (10, "a"), (11, "changed"), (12, "a")]
        assert here(app) == expected
        assert app._runtime.store.position("q") == at(1)
    found = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().sort_by("id")
    assert len(set(found["_row"].to_pylist())) == 5
    assert list(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == expected
    with App(state=tmp_path / "state") as app:
        assert here(app) == expected


@pytest.mark.parametrize("key", ["", " PRIMARY KEY"], ids=["appended", "merged"])
def test_an_answer_that_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """The Delta table has the batch, and nobody is told: its position follows with the error, or with the next try."""
    with App(create(tmp_path / "lake", key), state=tmp_path / "state") as app:
        commits, table = divided(app)
        base: Any = table._base
        publish, published = base.publish, base.published

        def lost(*args: Any) -> None:
            publish(*args)
            raise ConnectionLost("the store does not answer")

        def away(*_: Any) -> None:
            raise ConnectionLost("the store is away")

        for batch, reachable in enumerate((True, False)):
            written = merged(table, rows(batch)) if key else appended(table, rows(batch))
            monkeypatch.setattr(base, "publish", lost)
            monkeypatch.setattr(base, "published", published if reachable else away)
            with pytest.raises(ConnectionLost):
                commits.commit("t", table, written, at(batch))
            assert app._runtime.store.position("q") == (at(0) if reachable or batch else None)
            monkeypatch.undo()
            commits.settle("t")
            assert app._runtime.store.position("q") == at(batch)
            assert here(app) == [(n, "a") for n in range(batch + 1)]


def merged(table: LakeTable, batch: pa.Table) -> Written:
    """Writes a batch anew with all files that may have one of its keys, as tasks do."""
    merging = table.merging(local=True)
    assert merging is not None
    ids = batch["id"].to_pylist()
    files = merging.files(min(ids), max(ids))
    old = [pa.parquet.read_table(path) for path in files.values()]
    kept = [t.filter(pa.compute.invert(pa.compute.is_in(t["id"], batch["id"].combine_chunks()))) for t in old]
    fitting = merging.fitting(batch)
    written = merging.writer.write(pa.concat_tables([*(t.cast(fitting.schema) for t in kept), fitting]))
    return Written(written, batch.num_rows, merging.removed(list(files)), merging.version)


def test_merges(tmp_path: Path) -> None:
    with App(create(tmp_path / "lake", " PRIMARY KEY"), state=tmp_path / "state") as app:
        commits, table = divided(app)
        commits.commit("t", table, merged(table, rows(1, 2, 3)), at(1))
        commits.commit("t", table, merged(table, rows(10, 11)), at(2))
        merging = table.merging(local=True)
        assert merging is not None
        assert [len(merging.files(*ends)) for ends in ((1, 2), (4, 9), (3, 10), (12, 13))] == [1, 0, 2, 0]
        written = merged(table, rows(2, 3, 4, name="b"))
        assert len(written.removed) == 1
        app.sql("UPDATE t SET name = 'c' WHERE id = 10")
        assert commits.commit("t", table, written, at(3)) is None  # it does not have the change
        app._runtime.compactor.flusher.flush("t")
        assert commits.commit("t", table, written, at(3)) is None
        assert commits.commit("t", table, merged(table, rows(2, 3, 4, name="b")), at(3)) == 3
        expected = [(1, "a"), (2, "b"), (3, "b"), (4, "b"), (10, "c"), (11, "a")]
        assert here(app) == expected
        assert app.table("t").get_record(4) == {"id": 4, "name": "b"}
        with pytest.raises(InvalidRecord, match="primary key"):
            merging.fitting(pa.table({"id": pa.nulls(1, pa.int64()), "name": ["x"]}))
    found = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().sort_by("id")
    assert list(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == expected


def test_another_program_that_changes_the_table(tmp_path: Path) -> None:
    """A merge with a version that is not the newest is refused, and may be tried again."""
    with App(create(tmp_path / "lake", " PRIMARY KEY"), state=tmp_path / "state") as app:
        commits, table = divided(app)
        commits.commit("t", table, merged(table, rows(1, 2)), at(1))
        written = merged(table, rows(2, name="b"))
        DeltaTable(str(tmp_path / "lake")).delete("id = 1")
        with pytest.raises(ConnectionLost, match="changed by others"):
            commits.commit("t", table, written, at(2))
        assert commits.commit("t", table, merged(table, rows(2, name="b")), at(2)) == 1
        assert here(app) == [(2, "b")]


@pytest.mark.parametrize("more", ["'partition.by' = 'name'", "'on.conflict' = 'error'"])
def test_what_only_the_driver_writes(tmp_path: Path, more: str) -> None:
    key = " PRIMARY KEY" if "conflict" in more else ""
    text = create(tmp_path / "lake", key).replace("'1h'", f"'1h', {more}")
    with App(f"{text}; CREATE STREAM s (id BIGINT, name STRING)", state=tmp_path / "state") as app:
        _, table = divided(app)
        if not key:
            assert table.task_writer(local=True) is None and table.merging(local=True) is None
        said = [r["plan"] for r in app.sql("EXPLAIN INSERT INTO t SELECT id, name FROM s").rows()]
        assert any("large batches too" in line for line in said)
        assert not any("its executors" in line for line in said)


def test_executors_on_other_machines(tmp_path: Path) -> None:
    """They do not see a folder of this one."""
    for name, key in (("a", ""), ("b", " PRIMARY KEY")):
        with App(create(tmp_path / name, key), state=tmp_path / f"state-{name}") as app:
            _, table = divided(app)
            assert table.task_writer(local=False) is None and table.merging(local=False) is None


def test_numbers_of_rows() -> None:
    numbers = RowNumbers(5)
    first = numbers.reserve()
    assert first == 5 and numbers.so_far == 5
    numbers.used(first + OF_A_TASK + 3)
    assert numbers.next == numbers.so_far == first + OF_A_TASK + 3
    first, second = numbers.reserve(), numbers.reserve()
    numbers.used(first + 1)  # the numbers behind it are reserved for another batch
    assert numbers.next > second
    taken = numbers.take(2, -1)
    numbers.used(second + 1)
    assert numbers.next == numbers.so_far == taken + 2
