"""Embedded streams, read by sequence number from this and from other processes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.journal import Journal
from millpond.journal.segments import Part, parts, read_part, stream_end, stream_start

pytestmark = pytest.mark.slow


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path, durable=False)


def numbers(start: int, count: int) -> pa.Table:
    return pa.table({"v": pa.array(range(start, start + count), pa.int64()), "s": ["abc"] * count})


def read(found: list[Part]) -> list[pa.RecordBatch]:
    return [batch for part in found for batch in read_part(pickle.loads(pickle.dumps(part)))]


def check(path: Path, start: int, end: int) -> list[pa.RecordBatch]:
    """Reads a range of a stream whose values are its sequence numbers."""
    batches = read(parts(path, "s", start, end))
    seqs = [s for b in batches for s in b.column("_seq").to_pylist()]
    assert seqs == list(range(start, end))
    assert [v for b in batches for v in b.column("v").to_pylist()] == seqs
    assert all(b.schema.names == ["v", "s", "_seq"] for b in batches)
    return batches


def test_sequence_numbers_start_at_0_and_go_on(tmp_path: Path, journal: Journal) -> None:
    assert stream_end(tmp_path, "s") == stream_start(tmp_path, "s") == 0
    assert parts(tmp_path, "s", 0, 10) == []
    journal.commit(sent={"S": numbers(0, 3)})
    journal.commit(sent={"s": numbers(3, 2)})
    assert journal.stream_end("s") == stream_end(tmp_path, "s") == 5
    check(tmp_path, 0, 5)
    check(tmp_path, 1, 4)
    assert parts(tmp_path, "s", 5, 5) == []
    journal.close()
    assert Journal(tmp_path, durable=False).stream_end("s") == 5


def test_many_small_sends_are_one_batch(tmp_path: Path, journal: Journal) -> None:
    for i in range(10_000):
        journal.commit(sent={"s": numbers(i, 1)})
    assert len(check(tmp_path, 0, 10_000)) == 1
    assert len(check(tmp_path, 17, 9_999)) == 1


def test_a_small_range_carries_its_bytes(tmp_path: Path, journal: Journal) -> None:
    for i in range(100):
        journal.commit(sent={"s": numbers(i, 1)})
    (part,) = parts(tmp_path, "s", 10, 20)
    assert part.inline is not None and len(part.inline) == 10
    journal.drop_stream("s")
    assert [b.column("v").to_pylist() for b in read([part])] == [list(range(10, 20))]


def test_a_large_range_is_split(tmp_path: Path, journal: Journal) -> None:
    journal.commit(sent={"s": numbers(0, 5)})
    journal.commit(sent={"s": numbers(5, 400_000)})
    found = parts(tmp_path, "s", 0, 400_005)
    assert len(found) == 4 and all(p.inline is None and p.rows <= 131_072 for p in found)
    assert len(check(tmp_path, 0, 400_005)) <= 8
    check(tmp_path, 131_070, 131_080)
    check(tmp_path, 3, 300_000)


def test_rolling_keeps_every_row_and_its_number(tmp_path: Path, journal: Journal) -> None:
    sent = 0
    while not (tmp_path / "data").exists():
        journal.commit(sent={"s": numbers(sent, 5_000), "other": numbers(0, 1)})
        sent += 5_000
    journal.commit(sent={"s": numbers(sent, 3)})
    check(tmp_path, 0, sent + 3)
    check(tmp_path, sent - 1, sent + 2)
    journal.close()
    again = Journal(tmp_path, durable=False)
    assert again.stream_end("s") == sent + 3
    check(tmp_path, 0, sent + 3)


def test_trimming_lets_go_of_whole_segments(tmp_path: Path, journal: Journal) -> None:
    for i in range(10):
        journal.commit(sent={"s": numbers(i * 10, 10)})
    journal.trim_stream("s", 35)
    assert stream_start(tmp_path, "s") == 30 and stream_end(tmp_path, "s") == 100
    check(tmp_path, 30, 100)
    assert [p.start for p in parts(tmp_path, "s", 0, 100)] == [30]
    journal.expire_stream("s", before=2e9)
    assert stream_start(tmp_path, "s") == stream_end(tmp_path, "s") == 100
    journal.commit(sent={"s": numbers(100, 1)})
    check(tmp_path, 100, 101)


def test_a_dropped_stream_begins_again_and_leaves_no_file(tmp_path: Path, journal: Journal) -> None:
    journal.commit(sent={"s": numbers(0, 200_000)})
    assert len(list((tmp_path / "data").iterdir())) == 1
    journal.drop_stream("s")
    assert list((tmp_path / "data").iterdir()) == []
    journal.commit(sent={"s": numbers(0, 1)})
    check(tmp_path, 0, 1)


def test_rows_sent_with_other_columns_come_as_they_were(tmp_path: Path, journal: Journal) -> None:
    journal.commit(sent={"s": numbers(0, 2)})
    journal.commit(sent={"s": pa.table({"v": [2]})})
    batches = read(parts(tmp_path, "s", 0, 3))
    assert [b.schema.names for b in batches] == [["v", "s", "_seq"], ["v", "_seq"]]
    assert [b.column("_seq").to_pylist() for b in batches] == [[0, 1], [2]]


def test_another_process_reads_while_the_writer_goes_on(tmp_path: Path, journal: Journal) -> None:
    reader = """
import sys
from millpond.journal.segments import parts, read_part, stream_end
path, seen = sys.argv[1], 0
while seen < 300:
    end = stream_end(path, "s")
    for part in parts(path, "s", seen, end):
        for batch in read_part(part):
            assert batch.column("_seq").to_pylist() == batch.column("v").to_pylist()
            assert batch.column("_seq")[0].as_py() == seen
            seen += batch.num_rows
print(seen)
"""
    journal.commit(sent={"s": numbers(0, 1)})
    with subprocess.Popen(
        [sys.executable, "-c", reader, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        for i in range(1, 300):
            journal.commit(sent={"s": numbers(i, 1)})
        assert process.stdout is not None
        assert process.stdout.read() == "300\n"
    assert process.returncode == 0
