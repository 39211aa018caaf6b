"""max_memory: a table that has less memory than rows answers as any other, and says clearly when it is full."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond import App, Table
from millpond.errors import InvalidOption, StateUnwritable, TableFull
from millpond.records.keys import MISS, NAN
from millpond.tables._coldkeys import ColdKeys
from millpond.tables._shelf import Shelf

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("key", ["id BIGINT", "name STRING", "id INT, name STRING"])
def test_keys_go_to_the_disk_too(key: str) -> None:
    """Far more keys than there is memory for: every answer is that of a table without a limit."""
    columns = {"id BIGINT": ("id",), "name STRING": ("name",), "id INT, name STRING": ("id", "name")}[key]
    declared = (
        "id BIGINT, name STRING, n INT" if key != "id INT, name STRING" else "id INT, name STRING, n INT"
    )
    table = Table(declared, key=columns, name="t", options={"max_memory": "2MB"})
    other = Table(declared, key=columns, name="t")
    numbers = random.Random(7)

    def record(i: int) -> dict[str, Any]:
        return {"id": i, "name": f"a name of {i * 7919 % 1_000_003}", "n": numbers.randrange(100)}

    def key_of(i: int) -> Any:
        made = tuple(record(i)[c] for c in columns)
        return made if len(made) > 1 else made[0]

    def equal(i: int) -> dict[str, Any]:
        return {c: record(i)[c] for c in columns}

    for start in range(0, 60_000, 4_000):
        batch = [record(i if i % 5 else numbers.randrange(start + 1)) for i in range(start, start + 4_000)]
        gone = [key_of(numbers.randrange(start + 4_000)) for _ in range(300)]
        for t in (table, other):
            t.bulk_insert(batch)
            assert t.bulk_delete(gone) >= 0
        for i in [numbers.randrange(start + 8_000) for _ in range(40)]:
            assert table.get_record(key_of(i)) == other.get_record(key_of(i))
            assert table.update(changes={"n": i % 7}, **equal(i)) == other.update(
                changes={"n": i % 7}, **equal(i)
            )
            assert table.delete(**equal(i + 1)) == other.delete(**equal(i + 1))
            for t in (table, other):
                t.insert(record(i + 2) | {"n": 1})
        if start == 20_000:
            view, before = table.snapshot(), other.clone()
    some = [key_of(numbers.randrange(70_000)) for _ in range(3_000)]
    names = columns[0] if len(columns) == 1 else columns

    def same(one: Any, two: Any) -> None:
        assert len(one) == len(two)
        ordered = [(name, "ascending") for name in columns]
        assert one.to_arrow().sort_by(ordered).equals(two.to_arrow().sort_by(ordered))
        found, expected = (t.find_rows_for_join(names, some, arrow=True).sort_by(ordered) for t in (one, two))
        assert found.equals(expected)

    same(table, other)
    same(view, before)
    keys = table._backend.storage.generation.newest  # type: ignore[attr-defined]
    assert keys.spilled_bytes > 0 and keys.nbytes() < 1 << 20
    assert bytes_of(table)[0] < bytes_of(other)[0]
    for t in (table, other):
        t.update("id % 2 = 0", "n = n + 1")
        t.update("id % 3 = 0", "n = n + 1")
        t.delete("n % 2 = 0")  # the table is compacted
    same(table, other)
    same(view, before)


def test_keys_that_cannot_go_to_the_disk() -> None:
    table = Table("id BIGINT PRIMARY KEY, n INT", name="t", options={"max_memory": "1MB"})
    added = 0
    with small_files(20_000), pytest.raises(TableFull, match="cannot be spilled"):
        for added in range(0, 100_000, 1_000):
            table.bulk_insert([{"id": i, "n": 1} for i in range(added, added + 1_000)])
    assert added > 0 and len(table) == table.sql_scalar("SUM(n)") == added
    assert all(table.contains(i) == (i < added) for i in range(0, added + 3_000, 500))
    table.bulk_insert([{"id": i, "n": 1} for i in range(added, 50_000)])
    assert len(table) == 50_000 and all(table.contains(i) for i in range(0, 50_000, 999))


@pytest.mark.parametrize("integers", [True, False])
def test_the_index_of_keys_is_a_dict(integers: bool, tmp_path: Path) -> None:
    numbers = random.Random(3)
    cold, plain = ColdKeys(Shelf(tmp_path, "lz4"), 100_000, integers=integers), dict[Any, int]()
    kinds: list[Callable[[int], Any]] = [
        lambda n: f"k{n}",
        lambda n: (n % 100, f"x{n % 7}", None),
        lambda n: Decimal(n) / 4,
        lambda n: b"b%d" % n,
        lambda n: (None, NAN)[n % 2],
    ]

    def key() -> Any:
        number = numbers.randrange(-20_000, 20_000)
        return number if integers else numbers.choice(kinds)(number)

    for step in range(40):
        changed = {key(): s if s % 5 else -2 - s for s in range(step * 1000, step * 1000 + 1000)}
        cold.update(changed)
        plain.update(changed)
        if not step % 9:
            cold.spill()
        asked = [MISS, *(key() for _ in range(numbers.choice([1, 5, 400])))]
        assert cold.find(asked, -1).tolist() == [plain.get(k, -1) for k in asked]
        assert [cold.get(k, -1) for k in asked[:4]] == [plain.get(k, -1) for k in asked[:4]]
    if integers:
        for same in (float, Decimal):
            assert cold.get(same(7), -1) == plain.get(7, -1)
        assert [cold.get(k, -1) for k in (7.5, 2**70, None, "7")] == [-1] * 4
    else:
        assert cold.get((1.0, "x1", None), -1) == plain.get((1, "x1", None), -1)


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
    limit.most = 4_000_000
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
    sql = f"CREATE TABLE t ({COLUMNS}) WITH ('max_memory' = '32MB'{option}); CREATE TABLE u (id INT);"

    def check(app: App) -> None:
        table = app.table("t")
        assert table.get_stats().spilled_bytes > 0 and table.get_stats()["max_memory"] == 32 << 20
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

key = sys.argv[1] or ()
options = {"max_memory": sys.argv[2]} if len(sys.argv) > 2 else {}
warm = Table("id BIGINT, text STRING", key=key, options=options)
for start in range(0, 80_000, 20_000):
    warm.bulk_insert(rows(start, 20_000))
del warm
gc.collect()
pa.default_memory_pool().release_unused()
before = resident("VmRSS")
table = Table("id BIGINT, text STRING", key=key, options=options)
count = 500_000 if key else 1_000_000
for start in range(0, count, 20_000):
    table.bulk_insert(rows(start, 20_000))
    if start == count // 2 // 20_000 * 20_000:
        half = resident("VmRSS")
assert len(table) == count
if key:
    for i in range(0, count, 50_000):
        found = table.get_record({"id": i, "text": f"{i:>200}"}[key])
        assert found["id"] == i and found["text"].strip() == str(i)
now = resident("VmRSS")
print((now - before) // 1024, (now - half) // 1024, table.get_stats().spilled_bytes >> 20)
"""


@pytest.mark.slow
@pytest.mark.parametrize("key", ["", "id", "text"])
def test_the_process_keeps_to_the_limit(key: str) -> None:
    """100 or 200 MB of rows in a table that may take 32 MB. Beside it a process holds the block that is being filled,
    the copy of one that was read, and what Arrow needs to write one: a few blocks, however large the table is. So it is
    with keys, half a million of which take another 50 to 170 MB without a limit."""

    def grown(*arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, key, *arguments], capture_output=True, text=True, check=True
        )
        return [int(word) for word in done.stdout.split()]

    with_limit, late, spilled = grown("32MB")
    without, late_without, none = grown()
    block = 65_536 * 208 >> 20
    assert spilled > 0 and none == 0 and without > (150 if key else 200)
    if key:
        # Python's own objects of a batch's keys come on top; what counts is that nothing grows with the table.
        assert with_limit < without * 0.8 and late < late_without / 2
    else:
        assert with_limit < 32 + 5 * block
