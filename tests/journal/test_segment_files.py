"""Rows of streams in Parquet files: what they keep, what damage does, and how Spark is shown them."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import StateCorrupt, StateUnwritable
from millpond.journal import Journal, roll, segment_files, writer
from millpond.journal.pinned_files import pin
from millpond.journal.segments import parts, read_part
from millpond.journal.state import FORMAT, StateDirectory

MANY = 60_000
TYPES = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.decimal128(5, 2),
    pa.decimal128(38, 10),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.list_(pa.int64()),
    pa.list_(pa.struct([("a", pa.string()), ("b", pa.list_(pa.float64()))])),
    pa.map_(pa.string(), pa.decimal128(10, 3)),
    pa.struct([("x", pa.int8()), ("y", pa.struct([("z", pa.timestamp("us", "UTC"))]))]),
]


def value(dtype: pa.DataType, n: int) -> object:
    """Returns a value of the type, made from a number; NULL for some."""
    t = pa.types
    if n % 5 == 4:
        return None
    if t.is_boolean(dtype):
        return n % 2 == 0
    if t.is_integer(dtype):
        return n % 100 - 50
    if t.is_floating(dtype):
        return [float("nan"), -0.0, float("inf"), n / 4][n % 4]
    if t.is_string(dtype):
        return ["", "é", "x" * (n % 7)][n % 3]
    if t.is_binary(dtype):
        return bytes([n % 256]) * (n % 3)
    if t.is_decimal(dtype):
        return Decimal(n % 999) / 100
    if t.is_list(dtype):
        return [value(dtype.value_type, n + i) for i in range(n % 3)]
    if t.is_map(dtype):
        return [(f"k{i}", value(dtype.item_type, n + i)) for i in range(n % 3)]
    if t.is_struct(dtype):
        return {f.name: value(f.type, n + i) for i, f in enumerate(dtype)}
    return [-719_162, -171_000, n - 1000][n % 3] * (
        1 if t.is_date(dtype) else 86_400_000_000
    )  # 0001, 1501, 1970


def column(dtype: pa.DataType, rows: int, seed: int) -> pa.Array:
    some = pa.array([value(dtype, seed + i) for i in range(97)], dtype)
    return some.take(pa.array([i % 97 for i in range(rows)]))


def files_of(path: Path) -> list[Path]:
    return sorted((path / "data").glob("*.parquet"))


def rows_of(path: Path, start: int, end: int) -> pa.Table:
    return pa.Table.from_batches([b for part in parts(path, "s", start, end) for b in read_part(part)])


def numbers(start: int, count: int) -> pa.Table:
    return pa.table({"v": pa.array(range(start, start + count), pa.int64()), "s": ["abcdefghij"] * count})


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(TYPES), min_size=1, max_size=5), st.integers(0, 50), st.data())
def test_files_keep_every_value(
    tmp_path_factory: pytest.TempPathFactory, types: list[pa.DataType], seed: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("state")
    fields = [pa.field("n", pa.int64()), *(pa.field(f"c{i}", t) for i, t in enumerate(types))]
    arrays = [pa.array(range(MANY)), *(column(t, MANY, seed + i) for i, t in enumerate(types))]
    sent = pa.table([*arrays, pa.array(["0123456789"] * MANY)], schema=pa.schema([*fields, ("s", "string")]))
    with_journal = Journal(path, durable=False)
    with_journal.commit(sent={"s": sent})
    assert files_of(path)
    start = data.draw(st.integers(0, MANY - 1))
    found = rows_of(path, start, MANY).drop_columns(["_seq"])
    assert found.schema == sent.schema and found["n"] == sent["n"].slice(start)
    some = pa.array([*range(min(200, found.num_rows)), *range(max(0, found.num_rows - 200), found.num_rows)])
    expected = sent.slice(start).take(some)
    assert str(found.take(some).to_pylist()) == str(expected.to_pylist()), "NaN is not equal to itself"
    with_journal.close()


def test_damage_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte of a file that is changed, cut or missing is noticed."""
    monkeypatch.setattr(segment_files, "_KEPT_BYTES", 0)
    journal = Journal(tmp_path, durable=False)
    journal.commit(sent={"s": numbers(0, MANY)})
    (file,) = files_of(tmp_path)
    right, expected = file.read_bytes(), rows_of(tmp_path, 0, MANY)
    size = len(right)
    places = [0, 5, 40, *range(100, size, size // 40), *range(size - 1200, size, 7), size - 1]
    for place in places:
        damaged = bytearray(right)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        if place < 4:  # the name of the format at the beginning: nobody needs it
            assert rows_of(tmp_path, 0, MANY) == expected
            continue
        with pytest.raises(StateCorrupt, match=r"stream .s., row 0: "):
            rows_of(tmp_path, 0, MANY)
    for cut in (0, 4, 8, size // 2, size - 1):
        file.write_bytes(right[:cut])
        with pytest.raises(StateCorrupt):
            rows_of(tmp_path, 0, MANY)
    file.unlink()
    with pytest.raises(StateCorrupt, match="is missing"):
        rows_of(tmp_path, 0, MANY)
    with pytest.raises(StateCorrupt, match="is missing"):
        pin(tmp_path, "s", 0, MANY, numbers(0, 1).schema)


def test_pinned_files_and_the_rest_are_the_range(tmp_path: Path) -> None:
    """Large sends, small ones, and small ones that were rolled; trimmed at the beginning."""
    journal, end = Journal(tmp_path, durable=False), 0
    for count in (10, 700_000, 5, 80_000, *[3_000] * 200, 90_000, 7):
        journal.commit(sent={"s": numbers(end, count)})
        end += count
    journal.trim_stream("s", 200_000)
    columns = numbers(0, 1).schema
    for start, stop in (
        (0, end),
        (131_082, end),
        (300_000, 720_000),
        (700_015, 700_016),
        (790_000, 1_400_000),
        (end, end),
    ):
        pinned = pin(tmp_path, "s", start, stop, columns)
        there = [n for a, b in pinned.rest for n in range(a, b)]
        for place in pinned.folder.glob("*/*.parquet") if pinned.folder is not None else ():
            name, first = place.parent.name.split("=")
            values = pq.read_table(place, columns=["v"], partitioning=None)["v"].to_pylist()
            assert name == "first" and values[0] == int(first), "the number of its first row"
            within = [v for v in values if start <= v < stop]
            assert pinned.bounds is not None or within == values
            within = [v for v in within if pinned.bounds is None or pinned.bounds[0] <= v < pinned.bounds[1]]
            there += within
        assert sorted(there) == list(range(max(start, 131_082), stop)), "what is trimmed does not come back"
        folder = pinned.folder
        pinned.close()
        assert folder is None or not folder.exists()
    rolled = pin(tmp_path, "s", 790_000, 1_300_000, columns)
    assert rolled.folder is not None, "what was rolled is in files"


def test_many_runs_share_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each send is a run of its own, as those that are a minute apart."""
    monkeypatch.setattr(roll, "_RUN_SECONDS", 0.0)
    journal, end = Journal(tmp_path, durable=False), 0
    while not files_of(tmp_path):
        journal.commit(sent={"s": numbers(end, 400)})
        end += 400
    (file,) = files_of(tmp_path)
    assert end > 131_072 and pq.read_metadata(file).num_row_groups <= end // 131_072 + 1
    assert rows_of(tmp_path, 150, end)["v"].to_pylist() == list(range(150, end))
    pinned = pin(tmp_path, "s", 0, end, numbers(0, 1).schema)
    assert pinned.folder is not None and [f.name for f in pinned.folder.iterdir()] == ["first=0"]


def test_small_runs_between_large_sends_share_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROLL_BYTES", 100_000)
    journal, end = Journal(tmp_path, durable=False), 0
    for count in [1_000, MANY] * 8:
        journal.commit(sent={"s": numbers(end, count)})
        end += count
    assert len(files_of(tmp_path)) == 8 and len(list((tmp_path / "data").glob("*.arrow"))) <= 2
    assert rows_of(tmp_path, 0, end)["v"].to_pylist() == list(range(end))


def test_files_of_a_send_that_fails_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        if len(files_of(tmp_path)) == 2:
            raise OSError(28, "No space left on device")

    journal = Journal(tmp_path, durable=True)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StateUnwritable, match="No space left"):
        journal.commit(sent={"s": numbers(0, 2_000_000)})
    assert not files_of(tmp_path)


def test_a_link_keeps_rows_that_are_trimmed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, durable=False)
    journal.commit(sent={"s": numbers(0, MANY)})
    pinned = pin(tmp_path, "s", 0, MANY, numbers(0, 1).schema)
    journal.drop_stream("s")
    assert not files_of(tmp_path) and pinned.folder is not None
    (file,) = pinned.folder.glob("first=0/*.parquet")
    assert pq.read_table(file, partitioning=None).num_rows == MANY
    journal.close()
    Journal(tmp_path, durable=False).close()
    assert not file.exists(), "a start removes what a killed app has left"


def test_what_cannot_be_linked_is_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    Journal(tmp_path, durable=False).commit(sent={"s": numbers(0, MANY)})
    monkeypatch.setattr(os, "link", refuse)
    pinned = pin(tmp_path, "s", 0, MANY, numbers(0, 1).schema)
    assert (pinned.folder, pinned.rest) == (None, [(0, MANY)])
    assert not list((tmp_path / "pinned").iterdir())


@pytest.mark.parametrize(
    ("columns", "fits"),
    [
        ([("v", "int64"), ("s", "string"), ("new", "date32")], True),
        ([("V", "int64")], True),
        ([("v", "int32"), ("s", "string")], False),
    ],
)
def test_columns_that_have_changed(tmp_path: Path, columns: list[tuple[str, str]], fits: bool) -> None:
    Journal(tmp_path, durable=False).commit(sent={"s": numbers(0, MANY)})
    declared = pa.schema([(n, pa.type_for_alias(t)) for n, t in columns])
    assert (pin(tmp_path, "s", 0, MANY, declared).folder is not None) == fits


def test_an_earlier_format_becomes_the_newer_one(tmp_path: Path) -> None:
    StateDirectory(tmp_path / "s").close()
    (tmp_path / "s" / "format").write_text("millpond 1\n")
    StateDirectory(tmp_path / "s", read_only=True).close()
    assert (tmp_path / "s" / "format").read_text() == "millpond 1\n"
    StateDirectory(tmp_path / "s").close()
    assert (tmp_path / "s" / "format").read_text() == FORMAT
