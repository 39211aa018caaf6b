"""max_memory: a table that has less memory than rows answers as any other, and says clearly when it is full."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond import App, Table
from millpond.errors import InvalidOption, StateUnwritable, TableFull

COLUMNS = (
    "id BIGINT PRIMARY KEY, name STRING, tier STRING, x DOUBLE, price DECIMAL(12, 2), tags ARRAY<STRING>,"
    " pad STRING"
)
ROWS = 150_000


def rows(start: int, end: int) -> pa.Table:
    ids = range(start, end)
    return pa.table(
        {
            "id": ids,
            "name": [f"name {i}" for i in ids],
            "tier": [("GOLD", "SILVER", None)[i % 3] for i in ids],
            "x": [i * 0.5 if i % 7 else None for i in ids],
            "price": pa.array([i for i in ids], pa.int64())
            .cast(pa.decimal128(19, 0))
            .cast(pa.decimal128(22, 2)),
            "pad": [f"{i:>300}" for i in ids],
            "tags": [[str(i)] if i % 5 == 0 else None for i in ids],
        }
    )


def limited(**options: str) -> Table:
    return Table(COLUMNS, name="t", options={"max_memory": "64MB", **options})


def in_order(table: Any) -> pa.Table:
    return table.to_arrow().sort_by("id").combine_chunks()


def bytes_of(table: Table) -> tuple[int, int]:
    stats = table.get_stats()
    return stats.bytes, stats.spilled_bytes


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_table_that_spills_answers_as_any_other(compression: str) -> None:
    table, other = limited(compression=compression), Table(COLUMNS, name="t")
    for start in range(0, ROWS, 25_000):
        part = rows(start, start + 25_000)
        for t in (table, other):
            t.bulk_insert(part)
    used, spilled = bytes_of(table)
    assert used <= 64 << 20 and spilled > 0 and bytes_of(other)[1] == 0

    def same() -> None:
        assert in_order(table).equals(in_order(other))
        for key in (1, 70_000, ROWS - 1, ROWS):
            assert table.get_record(key) == other.get_record(key)
            assert table.contains(key) == other.contains(key)
        for condition in ("name = 'name 777'", "tier IS NULL AND x < 100", "id IN (3, 70001, 149999)"):
            assert table.find(condition) == other.find(condition)
        assert table.find(name="name 5") == other.find(name="name 5")
        for value in ("SUM(price)", "COUNT(DISTINCT tier)", "MAX(name)"):
            assert table.sql_scalar(value) == other.sql_scalar(value)

    same()
    if compression != "lz4":
        return
    view, before = table.snapshot(), other.clone()
    for t in (table, other):
        for key in range(0, ROWS, 5000):
            t.update({"id": key}, {"x": -1.0, "tier": None})
            t.delete(id=key + 1)
            t.insert({"id": ROWS + key, "name": "new"})
        t.update("id % 2 = 0", "tier = upper(name)")
    same()
    assert in_order(view).equals(in_order(before))
    for t in (table, other):
        t.update("id % 2 = 0", "tier = 'again'")  # more dead rows than living ones: the table is compacted
        t.delete("id % 4 = 0")
    same()
    assert (
        bytes_of(table)[0] <= 64 + 40 << 20
    )  # one block that is being filled, and the copy of one that was read


def test_a_full_table_changes_nothing() -> None:
    table = Table(
        "id BIGINT PRIMARY KEY, name STRING", name="t", options={"max_memory": "2MB", "on.full": "error"}
    )
    table.bulk_insert([{"id": i, "name": "x" * 100} for i in range(2000)])
    with pytest.raises(TableFull, match='table "t" is full: the write would take'):
        table.bulk_insert([{"id": i, "name": "y" * 100} for i in range(1000, 20_000)])
    with pytest.raises(TableFull):
        for i in range(2000, 100_000):
            table.insert({"id": i, "name": f"{i}" * 20})
    count = len(table)
    assert 2000 < count < 20_000
    assert all(r["name"][0] == "x" for r in table.find("id < 2000"))
    assert table.delete("id > 100") == count - 101
    table.bulk_insert([{"id": i, "name": "z" * 50} for i in range(200, 1200)])
    assert len(table) == 1101


def test_changes_of_a_full_table_do_not_pile_up() -> None:
    """Versions that nobody needs are let go before a write is refused."""
    table = Table("id INT PRIMARY KEY, n INT", name="t", options={"max_memory": "3MB", "on.full": "error"})
    table.bulk_insert([{"id": i, "n": 0} for i in range(5000)])
    for n in range(1, 40):
        assert table.update("true", {"n": n}) == 5000
    assert table.sql_scalar("SUM(n)") == 39 * 5000


def test_keys_and_indexes_stay_in_memory() -> None:
    table = Table("id BIGINT PRIMARY KEY, n INT", name="t", options={"max_memory": "4MB"})
    table.bulk_insert(pa.table({"id": range(10_000), "n": pa.array([1] * 10_000, pa.int32())}))
    with pytest.raises(TableFull, match="keys and indexes alone"):
        for start in range(10_000, 300_000, 10_000):
            ids = range(start, start + 10_000)
            table.bulk_insert(pa.table({"id": ids, "n": pa.array([1] * 10_000, pa.int32())}))
    count = len(table)
    assert count % 10_000 == 0 and table.sql_scalar("SUM(n)") == count
    with pytest.raises(TableFull):
        for i in range(300_000, 400_000):
            table.insert({"id": i, "n": 1})
    assert table.sql_scalar("SUM(n)") == len(table)


def test_an_index_that_does_not_fit_is_not_kept() -> None:
    table = Table("id BIGINT PRIMARY KEY, name STRING, kind INT", name="t", options={"max_memory": "12MB"})
    ids = range(40_000)
    names = [f"a rather long name of number {i}" for i in ids]
    table.bulk_insert(
        pa.table({"id": ids, "name": names, "kind": pa.array([i % 3 for i in ids], pa.int32())})
    )
    limit = table._backend._limit  # type: ignore[attr-defined]
    assert table.find(kind=1)[0]["id"] == 1
    assert table.get_stats()["indexes"] == [["kind"]]
    limit.most = bytes_of(table)[0] + 1_000_000
    for i in (0, 777, 39_999):
        assert [r["id"] for r in table.find(name=names[i])] == [i]
        assert [r["id"] for r in table.find_rows_for_join("name", [names[i]])] == [i]
        assert [r["id"] for r in table.find(f"name = '{names[i]}' AND kind = {i % 3}")] == [i]
    assert table.get_stats()["indexes"] == [["kind"]]
    with pytest.raises(TableFull, match="no room for an index on name"):
        table._backend.create_index(["name"])
    limit.most = 100_000_000
    assert table.find(name=names[5])[0]["id"] == 5
    assert table.get_stats()["indexes"] == [["kind"], ["name"]]


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """Writes of this process to files fail beyond a size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full() -> None:
    table = limited(compression="none")
    done = 0
    with small_files(100_000), pytest.raises(TableFull, match="cannot be spilled to"):
        for done in range(0, ROWS, 20_000):
            table.bulk_insert(rows(done, done + 20_000))
    shelf = table._backend._limit.shelf  # type: ignore[attr-defined]
    assert [p.name for p in shelf.path.iterdir()] == ["lock"]
    assert len(table) == done > 0
    assert table.sql_scalar("SUM(id)") == done * (done - 1) // 2
    table.bulk_insert(rows(done, done + 20_000))
    assert len(table) == done + 20_000 and bytes_of(table)[1] > 0


@pytest.mark.slow
@pytest.mark.parametrize("where", ["state", "path"])
def test_an_app(tmp_path: Path, where: str) -> None:
    place = tmp_path / "elsewhere" if where == "path" else tmp_path / "state" / "spill"
    option = f", 'spill.path' = '{place}'" if where == "path" else ""
    sql = f"CREATE TABLE t ({COLUMNS}) WITH ('max_memory' = '64MB'{option}); CREATE TABLE u (id INT);"

    def check(app: App) -> None:
        table = app.table("t")
        assert table.get_stats().spilled_bytes > 0 and table.get_stats()["max_memory"] == 64 << 20
        assert len(list(place.glob("*/*.arrow"))) > 0
        found = app.sql("SELECT COUNT(*) AS n, SUM(id) AS ids, COUNT(DISTINCT name) AS names FROM t").rows()
        assert found == [{"n": ROWS, "ids": ROWS * (ROWS - 1) // 2, "names": ROWS}]
        described = {r["property"]: r["value"] for r in app.sql("DESCRIBE EXTENDED t").rows()}
        assert int(described["spilled_bytes"]) > 0

    app = App(sql, state=tmp_path / "state")
    for start in range(0, ROWS, 50_000):
        app.table("t").bulk_insert(rows(start, start + 50_000))
    check(app)
    with app.begin_transaction() as tx:
        tx.table("t").update("id = 5", {"x": 0.0})
    app.close()
    assert list(place.iterdir()) == []
    with App(sql, state=tmp_path / "state") as app:
        check(app)
        assert app.table("t").sql_scalar("x", "id = 5") == 0.0
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "millpond-spill-old"
    left.mkdir()
    (left / "x.arrow").write_bytes(b"old")
    one = Table("id INT", options={"max_memory": "1MB", "spill.path": str(tmp_path)})
    two = Table("id INT", options={"max_memory": "1MB", "spill.path": str(tmp_path)})
    kept = {t._backend._limit.shelf.path.name for t in (one, two)}  # type: ignore[attr-defined]
    assert {p.name for p in tmp_path.iterdir()} == kept


def test_wrong_uses(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="max_memory"):
        Table("id INT", options={"max_memory": "much"})
    with pytest.raises(InvalidOption):
        Table("id INT", options={"max_memory": "1MB", "compression": "gzip"})
    (tmp_path / "file").write_text("")
    with pytest.raises(StateUnwritable, match="cannot be spilled to"):
        Table("id INT", options={"max_memory": "1MB", "spill.path": str(tmp_path / "file")})


PROGRAM = """
import gc, sys
from pathlib import Path
import pyarrow as pa
from millpond import Table

def resident(what):
    return next(int(l.split()[1]) for l in Path("/proc/self/status").read_text().splitlines() if l.startswith(what))

def rows(start, count):
    return pa.table({"id": range(start, start + count), "text": [f"{i:>200}" for i in range(start, start + count)]})

options = {"max_memory": sys.argv[1]} if len(sys.argv) > 1 else {}
warm = Table("id BIGINT, text STRING", options=options)
for start in range(0, 80_000, 20_000):
    warm.bulk_insert(rows(start, 20_000))
del warm
gc.collect()
pa.default_memory_pool().release_unused()
before = resident("VmRSS")
table = Table("id BIGINT, text STRING", options=options)
for start in range(0, 1_000_000, 20_000):
    table.bulk_insert(rows(start, 20_000))
assert len(table) == 1_000_000
print((resident("VmRSS") - before) // 1024, table.get_stats().spilled_bytes >> 20)
"""


@pytest.mark.slow
def test_the_process_keeps_to_the_limit() -> None:
    """200 MB of rows in a table that may take 32 MB. Beside the limit a process holds the block that is being filled,
    the copy of one that was read, and what Arrow needs to write one: a few blocks, however large the table is."""

    def grown(*arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
        )
        return [int(word) for word in done.stdout.split()]

    with_limit, spilled = grown("32MB")
    without, none = grown()
    block = 65_536 * 208 >> 20
    assert with_limit < 32 + 5 * block and spilled > 0
    assert without > 200 and none == 0
