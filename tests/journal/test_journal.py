"""Commits, positions, restore, catalog: what is written is there again."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.changes import Changes, Position
from millpond.errors import Closed, StateUnwritable
from millpond.journal import Entry, Journal
from millpond.tables.memory import MemoryTable
from millpond.types import Schema


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path, durable=True)


def rows(*ids: int, name: str = "x") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array([name] * len(ids), pa.string())})


def restored(journal: Journal, table: str = "t") -> list[dict[str, object]]:
    memory = MemoryTable(Schema.of(rows().schema, ("id",)))
    for changes in journal.restore(table):
        memory.apply(changes)
    found: list[dict[str, object]] = memory.scan().to_pylist()
    return sorted(found, key=lambda r: repr(r))


def test_commits_are_numbered_and_restored_in_order(tmp_path: Path, journal: Journal) -> None:
    assert journal.last_commit() == 0
    assert journal.commit({"T": Changes(rows(1, 2))}) == 1
    assert journal.commit({"t": Changes(rows(2, 3, name="y"))}) == 2
    assert journal.commit({"t": Changes(rows(1), pa.array([True]))}) == 3
    expected = [{"id": 2, "name": "y"}, {"id": 3, "name": "y"}]
    assert restored(journal) == expected
    journal.close()
    again = Journal(tmp_path, durable=True)
    assert again.last_commit() == 3
    assert restored(again) == expected
    assert again.commit() == 4


def test_one_commit_changes_many_tables_streams_and_a_position(tmp_path: Path, journal: Journal) -> None:
    position = Position("p", "c", 7, {"s": {"seq": 3, "files": ["a"]}})
    number = journal.commit(
        {"t": Changes(rows(1)), "u": Changes(rows(2))}, position, {"s": rows(5, 6)}, ["q1"]
    )
    journal.close()
    again = Journal(tmp_path, durable=True)
    assert number == 1
    assert [r["id"] for r in restored(again, "t")] == [1]
    assert [r["id"] for r in restored(again, "u")] == [2]
    assert again.position("p") == position and again.positions() == {"p": position}
    assert again.stream_end("S") == 2
    assert again.done("q1") and not again.done("q2")


def test_a_repeated_position_writes_nothing(journal: Journal) -> None:
    assert journal.commit({"t": Changes(rows(1))}, Position("p", "c", 0)) == 1
    assert journal.commit({"t": Changes(rows(2))}, Position("p", "c", 0), {"s": rows(1)}) is None
    assert journal.commit({"t": Changes(rows(3))}, Position("p", "new", 0)) == 2
    assert [r["id"] for r in restored(journal)] == [1, 3]
    assert journal.stream_end("s") == 0
    journal.forget("p")
    assert journal.position("p") is None


def test_small_commits_are_restored_together(journal: Journal) -> None:
    for i in range(500):
        journal.commit({"t": Changes(rows(i))})
    assert [len(c) for c in journal.restore("t")] == [500]


def test_large_commits_go_to_files_that_go_with_them(tmp_path: Path, journal: Journal) -> None:
    journal.commit({"t": Changes(rows(*range(200_000)))})
    assert len(list((tmp_path / "data").iterdir())) == 1
    assert sum(len(c) for c in journal.restore("t")) == 200_000
    journal.drop_table("t")
    assert list((tmp_path / "data").iterdir()) == []
    assert list(journal.restore("t")) == []


def compact(journal: Journal, table: str, rows: pa.Table, commit: int) -> None:
    journal.compact(table, journal.snapshot([rows]), commit=commit)


def blobs(path: Path) -> int:
    with closing(sqlite3.connect(path / "journal.db")) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM changes").fetchone()[0])


@pytest.mark.parametrize("swept", [True, False], ids=["swept", "cut off before"])
def test_compaction_keeps_what_came_later(tmp_path: Path, journal: Journal, swept: bool) -> None:
    for i in range(10):
        journal.commit({"t": Changes(rows(i))})
    seen = journal.last_commit()
    snapshot = pa.concat_tables([c.rows for c in journal.restore("t")])
    journal.commit({"t": Changes(rows(3, 77, name="later"))})
    before = journal.weight("t")
    compact(journal, "t", snapshot, seen)
    after = journal.weight("t")
    assert before.snapshot == 0 and after.snapshot > 0 and after.changes < before.changes / 5
    assert blobs(tmp_path) == 12
    if swept:
        while journal.sweep("t"):
            pass
        assert blobs(tmp_path) == 2
    journal.close()
    again = Journal(tmp_path, durable=True)
    assert again.weight("t") == after
    found = restored(again)
    assert len(found) == 11 and {r["id"] for r in found if r["name"] == "later"} == {3, 77}
    # A second one replaces the first.
    compact(again, "t", rows(1), again.last_commit())
    while again.sweep("t"):
        pass
    assert blobs(tmp_path) == 1 and [r["id"] for r in restored(again)] == [1]


def test_an_empty_snapshot_is_an_empty_table(tmp_path: Path, journal: Journal) -> None:
    journal.commit({"t": Changes(rows(1))})
    compact(journal, "t", rows(), journal.last_commit())
    assert list(journal.restore("t")) == []
    journal.close()
    again = Journal(tmp_path, durable=True)
    assert list(again.restore("t")) == []
    again.commit({"t": Changes(rows(2))})
    assert [r["id"] for r in restored(again)] == [2]


def test_files_of_what_does_not_count_go(tmp_path: Path, journal: Journal) -> None:
    for _ in range(3):
        journal.commit({"t": Changes(rows(*range(100_000)))})
    large = journal.snapshot([rows(*range(50_000)), rows(*range(50_000, 100_000))])
    assert len(list((tmp_path / "data").iterdir())) == 4
    journal.compact("t", large, commit=journal.last_commit())
    while journal.sweep("t"):
        pass
    assert {f.name for f in (tmp_path / "data").iterdir()} == large.files
    assert len(restored(journal)) == 100_000
    journal.discard(unused := journal.snapshot([rows(*range(100_000))]))
    assert not unused.files & {f.name for f in (tmp_path / "data").iterdir()}


def test_a_table_is_due_when_its_changes_weigh_more_than_its_rows(tmp_path: Path, journal: Journal) -> None:
    called: list[list[str]] = []
    journal.when_due(lambda: called.append([]))
    journal.compact_after = 200_000
    for i in range(20):
        journal.commit({"t": Changes(rows(i))})
    assert len(called) == 1 and journal.take_due() == ["t"] and journal.take_due() == []
    compact(journal, "t", rows(*range(40_000)), journal.last_commit())
    for i in range(20):
        journal.commit({"t": Changes(rows(i))})
    # The snapshot weighs more.
    assert len(called) == 1 and journal.weight("t").snapshot > journal.weight("t").changes
    for i in range(20):
        journal.commit({"t": Changes(rows(i))}, Position("p", "c", i))
    assert len(called) == 2
    journal.close()
    again = Journal(tmp_path, durable=True)
    again.when_due(lambda: called.append([]))
    assert len(called) == 2
    again.compact_after = 1_000
    compact(again, "t", rows(1), again.last_commit())
    again.commit({"t": Changes(rows(1))})
    assert len(called) == 3


def test_space_goes_back_to_the_disk(tmp_path: Path, journal: Journal) -> None:
    for i in range(40):
        journal.commit({"t": Changes(rows(*range(15_000), name=f"{i} " * 10))})
    journal.close()
    journal = Journal(tmp_path, durable=True)
    full = (tmp_path / "journal.db").stat().st_size
    compact(journal, "t", rows(1), journal.last_commit())
    while journal.sweep("t"):
        pass
    while journal.shrink():
        pass
    journal.close()
    assert (tmp_path / "journal.db").stat().st_size < 0.7 * full
    assert [r["id"] for r in restored(Journal(tmp_path, durable=True))] == [1]


def test_tables_whose_columns_changed_are_restored_piece_by_piece(journal: Journal) -> None:
    journal.commit({"t": Changes(rows(1))})
    journal.commit({"t": Changes(pa.table({"id": [2]}))})
    assert [c.rows.column_names for c in journal.restore("t")] == [["id", "name"], ["id"]]


def test_dictionary_columns_and_nested_types_are_kept(journal: Journal) -> None:
    table = pa.table(
        {
            "d": pa.array(["a", "b", "a"]).dictionary_encode(),
            "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
            "s": [{"x": [1, 2]}, None, {"x": None}],
        }
    )
    journal.commit({"t": Changes(table)})
    (found,) = journal.restore("t")
    assert found.rows.to_pylist() == table.to_pylist()


def test_files_that_no_commit_names_are_removed_at_the_start(tmp_path: Path, journal: Journal) -> None:
    journal.commit({"t": Changes(rows(*range(100_000)))})
    journal.close()
    (tmp_path / "data" / "torn.arrow").write_bytes(b"half a fi")
    again = Journal(tmp_path, durable=True)
    assert len(list((tmp_path / "data").iterdir())) == 1
    assert sum(len(c) for c in again.restore("t")) == 100_000


def test_the_catalog_keeps_its_order(tmp_path: Path, journal: Journal) -> None:
    journal.put_entry(Entry("S", "stream", "CREATE STREAM S (a INT)", {"n": 1}))
    journal.put_entry(Entry("t", "table", "CREATE TABLE t …"))
    journal.put_entry(Entry("s", "stream", "CREATE STREAM s (b INT)"))
    journal.put_entry(Entry("x", "query", ""))
    journal.drop_entry("query", "X")
    journal.close()
    entries = Journal(tmp_path, durable=True).entries()
    assert [(e.name, e.kind, e.text, e.data) for e in entries] == [
        ("s", "stream", "CREATE STREAM s (b INT)", {}),
        ("t", "table", "CREATE TABLE t …", {}),
    ]


def test_without_durability_tables_and_positions_are_only_remembered(tmp_path: Path) -> None:
    journal = Journal(tmp_path, durable=False)
    assert journal.commit({"t": Changes(rows(1))}, Position("p", "c", 0), done=["d"]) == 1
    assert journal.commit({"t": Changes(rows(1))}, Position("p", "c", 0)) is None
    assert journal.commit(sent={"s": rows(1, 2)}, position=Position("p", "c", 1)) == 2
    assert journal.position("p") == Position("p", "c", 1)
    assert journal.done("d") and journal.stream_end("s") == 2
    assert list(journal.restore("t")) == []


def test_many_threads_commit_at_once(tmp_path: Path, journal: Journal) -> None:
    numbers: list[int] = []
    refused: list[int] = []

    def work(me: int) -> None:
        for i in range(50):
            number = journal.commit(
                {"t": Changes(rows(me * 1000 + i))}, Position("p", f"c{me}-{i // 2}", 0), {"s": rows(me)}
            )
            (refused if number is None else numbers).append(number or 0)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert len(numbers) + len(refused) == 400
    assert len(restored(journal)) == len(numbers) == journal.stream_end("s") == journal.last_commit()


def test_a_failed_commit_leaves_nothing_and_the_next_one_works(tmp_path: Path, journal: Journal) -> None:
    journal.commit({"t": Changes(rows(1))})
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(StateUnwritable):
        journal.commit({"t": Changes(rows(*range(100_000)))}, Position("p", "c", 0))
    assert journal.position("p") is None
    (tmp_path / "data").unlink()
    assert journal.commit({"t": Changes(rows(2))}) == 2
    assert [r["id"] for r in restored(journal)] == [1, 2]


def test_a_reader_opens_it_beside_the_writer(tmp_path: Path, journal: Journal) -> None:
    journal.commit({"t": Changes(rows(1))})
    reader = Journal(tmp_path, durable=True, read_only=True)
    assert [r["id"] for r in restored(reader)] == [1]
    with pytest.raises(StateUnwritable, match="reading only"):
        reader.commit({"t": Changes(rows(2))})
    reader.close()
    journal.commit({"t": Changes(rows(2))})
    journal.close()
    assert [r["id"] for r in restored(Journal(tmp_path, durable=True, read_only=True))] == [1, 2]


def test_a_closed_journal_says_so(journal: Journal) -> None:
    journal.close()
    journal.close()
    with pytest.raises(Closed):
        journal.commit({"t": Changes(rows(1))})
