"""Rows of a table in Delta that were looked up by key are cached, up to a size, and never those of another version."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from millpond import App
from millpond.connectors.delta.row_cache import RowCache
from millpond.connectors.delta.table import DeltaTable as LakeTable
from millpond.tables.bounded_rows import BoundedRows
from millpond.types import Column, Schema


def create(at: Path, more: str = "") -> str:
    return f"""CREATE TABLE t (id INT PRIMARY KEY, name STRING)
               WITH ('extension' = 'delta', 'path' = '{at}', 'flush.interval' = '1h'{more})"""


def flush(app: App) -> None:
    app._runtime.compactor.flusher.flush("t")


def lake_table(app: App) -> LakeTable:
    found = app._runtime.store.table("t")
    assert isinstance(found, LakeTable)
    return found


def hits(app: App) -> int:
    return int(lake_table(app).stats()["hits"])


def cache_a_row_that_another_changes(app: App, at: Path) -> None:
    app.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    flush(app)
    assert app.table("t").get_record(1) == {"id": 1, "name": "a"}
    DeltaTable(str(at)).update({"name": "'other'"}, predicate="id = 1")


def test_a_row_is_read_from_its_file_once(tmp_path: Path) -> None:
    with App(create(tmp_path / "lake"), state=tmp_path / "state") as app:
        app.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        flush(app)
        table = app.table("t")
        assert [table.get_record(1) for _ in range(3)] == [{"id": 1, "name": "a"}] * 3
        assert hits(app) == 2
        app.sql("UPDATE t SET name = 'c' WHERE id = 1")
        assert table.get_record(1) == {"id": 1, "name": "c"}
        flush(app)
        assert table.get_record(1) == {"id": 1, "name": "c"}
        app.sql("OPTIMIZE t")
        seen = hits(app)
        assert table.find_rows_for_join("id", [1, 2, 3]) == [{"id": 1, "name": "c"}, {"id": 2, "name": "b"}]
        assert hits(app) == seen + 1
        app.sql("DELETE FROM t WHERE id = 1")
        assert table.get_record(1) is None
        flush(app)
        assert table.get_record(1) is None and table.get_record(2) == {"id": 2, "name": "b"}


def test_what_others_change_is_read_again(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    with App(create(at), state=tmp_path / "state") as app:
        cache_a_row_that_another_changes(app, at)
        app.sql("INSERT INTO t VALUES (3, 'c')")
        flush(app)
        assert app.table("t").get_record(1) == {"id": 1, "name": "other"}


def test_a_compaction_of_nothing_keeps_no_rows_that_others_changed(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    with App(create(at), state=tmp_path / "state") as app:
        cache_a_row_that_another_changes(app, at)
        (done,) = app.sql("OPTIMIZE t").rows()
        assert done["files_removed"] == 0
        assert app.table("t").get_record(1) == {"id": 1, "name": "other"}
        app.sql("UPDATE t SET name = name || '!' WHERE id = 1")
        flush(app)
    assert sorted(DeltaTable(str(at)).to_pyarrow_table()["name"].to_pylist()) == ["b", "other!"]


def test_a_reader_beside_the_move_to_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has the new version gets no row of the old one, while the cache is emptied."""
    schema = Schema((Column("id", pa.int32()), Column("name", pa.string())), ("id",))
    cache, keys = RowCache(schema, 1 << 20, "old"), pa.table({"id": pa.array([1], pa.int32())})
    row = pa.table({"id": pa.array([1], pa.int32()), "name": ["a"]})
    cache.add("old", ["id"], row)
    assert cache.get("old", ["id"], keys)[0] == row
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(cache.get("new", ["id"], keys)[0]))
    emptied = BoundedRows.emptied

    def slowly(rows: BoundedRows, schema: Schema) -> BoundedRows:
        reader.start()
        reader.join(0.2)
        return emptied(rows, schema)

    monkeypatch.setattr(BoundedRows, "emptied", slowly)
    cache.moved("new", None)
    reader.join()
    assert found == [None] or found[0].num_rows == 0


def test_no_size_is_no_cache(tmp_path: Path) -> None:
    with App(create(tmp_path / "lake", ", 'cache.size' = '0'")) as app:
        app.sql("INSERT INTO t VALUES (1, 'a')")
        flush(app)
        assert [app.table("t").get_record(1) for _ in range(2)] == [{"id": 1, "name": "a"}] * 2
        assert hits(app) == 0


def test_the_cache_has_a_size() -> None:
    schema = Schema((Column("id", pa.int64()), Column("name", pa.string())), ("id",))
    version = object()
    cache = RowCache(schema, 100_000)
    cache.moved(version, None)
    for start in range(0, 10_000, 1_000):
        ids = list(range(start, start + 1_000))
        cache.add(version, ["id"], pa.table({"id": ids, "name": ["x" * 20] * 1_000}))
        assert cache.stats()["cached_bytes"] <= 100_000
    found, rest = cache.get(version, ["id"], pa.table({"id": [9_999, 0]}))
    assert found is not None and found["id"].to_pylist() == [9_999] and rest["id"].to_pylist() == [0]
    assert cache.find(object(), ["id"], [9_999]) is None
    assert cache.get(object(), ["id"], pa.table({"id": [9_999]}))[0] is None


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_changes_flushes_and_lookups(tmp_path: Path, seed: int) -> None:
    """Lookups by key are equal to a dict, and those of snapshots to what the dict was when they were taken."""
    chance, at = random.Random(seed), tmp_path / "lake"
    write_deltalake(str(at), pa.table({"id": pa.array(range(40), pa.int32()), "name": ["old"] * 40}))
    expected = dict.fromkeys(range(40), "old")
    held: list[tuple[Any, dict[int, str]]] = []
    with App(create(at, ", 'cache.size' = '5kB'")) as app:
        table = app.table("t")
        for step in range(60):
            key = chance.randrange(50)
            match chance.randrange(6):
                case 0:
                    app.sql(f"INSERT INTO t VALUES ({key}, 'n{step}')")
                    expected[key] = f"n{step}"
                case 1:
                    app.sql(f"DELETE FROM t WHERE id = {key}")
                    expected.pop(key, None)
                case 2 if step % 4 == 0:
                    flush(app)
                case 3:
                    held.append((lake_table(app).snapshot(), dict(expected)))
            keys = chance.sample(range(50), 5)
            snapshot, then = chance.choice(held) if held else (lake_table(app).snapshot(), expected)
            found = snapshot.get(["id"], pa.table({"id": pa.array(keys, pa.int32())}))
            assert dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == {
                k: then[k] for k in keys if k in then
            }
            record = table.get_record(key)
            assert (record and record["name"]) == expected.get(key)
