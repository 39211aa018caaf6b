"""OPTIMIZE and VACUUM of tables in Delta, as statements and by the app itself: the rows stay, for all who read them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError

from millpond import App
from millpond.connectors.delta import care
from millpond.connectors.delta.table import DeltaTable as LakeTable
from millpond.errors import ConnectionLost, SourceChanged, SourceError
from millpond.testing.crash import crash

LATE = "'flush.interval' = '1h'"


def log(at: Path, more: str = LATE) -> str:
    return f"CREATE TABLE l (n INT) WITH ('extension' = 'delta', 'path' = '{at}', {more})"


def flush(app: App, name: str = "l") -> None:
    app._runtime.compactor.flusher.flush(name)


def fill(app: App, count: int) -> None:
    for n in range(count):
        app.sql(f"INSERT INTO l VALUES ({n})")
        flush(app)


def numbers(app: App, sql: str = "SELECT n FROM l") -> list[int]:
    return sorted(r["n"] for r in app.sql(sql).rows())


def there(at: Path) -> tuple[list[int], int]:
    """The rows that deltalake reads, and the number of files."""
    table = DeltaTable(str(at))
    return sorted(table.to_pyarrow_table()["n"].to_pylist()), len(table.file_uris())


def lake_table(app: App) -> LakeTable:
    found = app._runtime.store.table("l")
    assert isinstance(found, LakeTable)
    return found


def test_optimize_writes_small_files_together(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    with App(log(at), state=tmp_path / "state") as app:
        fill(app, 5)
        app.sql("INSERT INTO l VALUES (5)")
        assert there(at) == ([0, 1, 2, 3, 4], 5)
        (done,) = app.sql("OPTIMIZE l").rows()
        assert (done["files_removed"], done["files_added"]) == (5, 1)
        assert done["version"] == DeltaTable(str(at)).version()
        assert there(at) == ([0, 1, 2, 3, 4], 1)
        assert numbers(app) == [0, 1, 2, 3, 4, 5]
        assert app.sql("DESCRIBE HISTORY l").rows()[0]["operation"] == "OPTIMIZE"
        (done,) = app.sql("OPTIMIZE TABLE l").rows()
        assert (done["files_removed"], done["files_added"]) == (0, 0)
        flush(app)
        crash(app)
    with App(state=tmp_path / "state") as app:
        assert numbers(app) == [0, 1, 2, 3, 4, 5]
    assert there(at)[0] == [0, 1, 2, 3, 4, 5]


def test_vacuum_leaves_what_somebody_reads(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    with App(log(at), state=tmp_path / "state") as app:
        fill(app, 3)
        held, earlier = lake_table(app).snapshot(), lake_table(app).snapshot().at(2)
        app.sql("OPTIMIZE l")
        app.sql("VACUUM l")  # 7 days
        assert numbers(app, "SELECT n FROM l VERSION AS OF 1") == [0]
        app.sql("DELETE FROM l WHERE n = 1")
        flush(app)
        assert len(list(at.glob("*.parquet"))) == 5
        assert app.sql("VACUUM l RETAIN 0 HOURS").rows()[0]["files_unused"] == 1
        assert len(list(at.glob("*.parquet"))) == 4  # without what OPTIMIZE wrote; the others are held
        assert sorted(held.scan()["n"].to_pylist()) == [0, 1, 2]
        assert sorted(earlier.scan()["n"].to_pylist()) == [0, 1]
        assert numbers(app) == [0, 2]
        del held, earlier
        app.sql("VACUUM l RETAIN 0 HOURS")
        assert len(list(at.glob("*.parquet"))) == 1
        with pytest.raises(SourceChanged, match="does not have a file of version 3 any more"):
            app.sql("SELECT n FROM l VERSION AS OF 3")
        assert numbers(app) == [0, 2]
    assert there(at)[0] == [0, 2]


def test_the_app_compacts_when_there_are_many_files(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    with App(log(at, "'flush.interval' = '1ms', 'optimize.files' = '3'"), state=tmp_path / "state") as app:
        end, n = time.monotonic() + 60, 0
        while not any(c["operation"] == "OPTIMIZE" for c in DeltaTable(str(at)).history()):
            assert time.monotonic() < end
            app.sql(f"INSERT INTO l VALUES ({n})")
            n += 1
            time.sleep(0.01)
        assert numbers(app) == list(range(n))
    assert there(at)[0] == list(range(n))


@pytest.mark.parametrize("files, due", [(0, False), (3, True), (4, False)])
def test_when_care_is_due(tmp_path: Path, files: int, due: bool) -> None:
    at = tmp_path / "lake"
    with App(log(at, f"{LATE}, 'optimize.files' = '{files}'")) as app:
        fill(app, 4)
        lake_table(app).care()
        assert there(at) == ([0, 1, 2, 3], 1 if due else 4)


def test_files_of_several_partitions_stay_apart(tmp_path: Path) -> None:
    at = str(tmp_path / "lake")
    for n in range(3):
        rows = pa.table({"n": [n, n], "part": ["a", "b"]})
        write_deltalake(at, rows, mode="append", partition_by=["part"])
    assert care.spare_files(pa.table(DeltaTable(at).get_add_actions(flatten=True))) == 4
    care.optimize(DeltaTable(at), at)
    assert care.spare_files(pa.table(DeltaTable(at).get_add_actions(flatten=True))) == 0


def test_vacuum_is_due_after_a_while(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    at = tmp_path / "lake"
    monkeypatch.setattr(care, "_FIRST", 0.0)
    with App(log(at, f"{LATE}, 'vacuum.retention' = '0s'")) as app:
        fill(app, 2)
        app.sql("OPTIMIZE l")
        lake_table(app).care()
        assert app.sql("DESCRIBE HISTORY l").rows()[0]["operation"] == "VACUUM END"
        with pytest.raises(SourceChanged):
            app.sql("SELECT n FROM l VERSION AS OF 2")
        lake_table(app).care()  # tomorrow
        operations = [r["operation"] for r in app.sql("DESCRIBE HISTORY l").rows()]
        assert operations.count("VACUUM END") == 1


class Contested:
    """A Delta table that others commit to, some times in a row, while it is optimized."""

    def __init__(self, at: str, times: int):
        self._table, self._times = DeltaTable(at), times
        self.tries = 0

    @property
    def optimize(self) -> Contested:
        return self

    def compact(self, target_size: int, writer_properties: WriterProperties) -> dict[str, Any]:
        self.tries += 1
        if self.tries <= self._times:
            raise CommitFailedError("a concurrent transaction deleted the same data")
        return self._table.optimize.compact(target_size=target_size, writer_properties=writer_properties)

    def version(self) -> int:
        return self._table.version()

    def update_incremental(self) -> None:
        self._table.update_incremental()


def test_other_writers_come_first(tmp_path: Path) -> None:
    at = str(tmp_path / "lake")
    for n in range(2):
        write_deltalake(at, pa.table({"n": [n]}), mode="append")
    with pytest.raises(ConnectionLost, match="others change the same files: a concurrent transaction"):
        care.optimize(Contested(at, 5), at)  # type: ignore[arg-type]
    assert there(Path(at)) == ([0, 1], 2)
    assert care.optimize(Contested(at, 4), at)["files_added"].to_pylist() == [1]  # type: ignore[arg-type]
    assert there(Path(at)) == ([0, 1], 1)


def test_a_panic_of_the_library_leaves_the_thread_alive(tmp_path: Path) -> None:
    """Rust's panic is no Exception: the thread that flushes must survive it."""
    at = tmp_path / "lake"
    with App(log(at, f"{LATE}, 'vacuum.retention' = '300000000000000h'"), state=tmp_path / "state") as app:
        fill(app, 1)
        with pytest.raises(SourceError, match="delta-rs has failed"):
            lake_table(app).vacuum(None)
        fill(app, 2)
        assert there(at)[0] == [0, 0, 1]
