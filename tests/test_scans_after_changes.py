"""A scan after a small change reuses what the reader before has made; readers of earlier rows keep theirs."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millpond.changes import ROW, Changes
from millpond.query.difference import difference
from millpond.query.duck import Duck
from millpond.tables.base import Snapshot
from millpond.tables.memory import MemoryTable
from millpond.types import Column, Schema

COLUMNS = (
    Column("k", pa.int64()),
    Column("n", pa.decimal128(10, 2)),
    Column("t", pa.string()),
    Column("f", pa.float64()),
)


def rows(keys: list[int], random: Random) -> pa.Table:
    texts = [random.choice((None, "a", f"text {k}")) for k in keys]
    numbers = [random.choice((None, Decimal(k) / 4)) for k in keys]
    data = [keys, numbers, texts, [random.random() for _ in keys]]
    return pa.table([pa.array(d, c.type) for d, c in zip(data, COLUMNS, strict=True)], names=list("kntf"))


@pytest.mark.parametrize("seed", range(2))
def test_a_scan_is_what_was_written(seed: int) -> None:
    """More than one block, small and large changes; each reader reads some columns, and reads again later."""
    random = Random(seed)
    table = MemoryTable(Schema(COLUMNS, ("k",)))
    expected: dict[int, dict[str, Any]] = {}
    readers: list[tuple[Snapshot, dict[int, dict[str, Any]]]] = []
    first = rows(list(range(66_500)), random)
    table.apply(Changes(first))
    expected.update({row["k"]: row for row in first.to_pylist()})
    for _ in range(16):
        many = random.choice((1, 3, 20, 20, 500))
        keys = random.sample(range(67_000), many)
        if random.random() < 0.4:
            gone = rows(keys, random)
            table.apply(Changes(gone, pa.array([True] * many)))
            for k in keys:
                expected.pop(k, None)
        else:
            put = rows(keys, random)
            table.apply(Changes(put))
            expected.update({row["k"]: row for row in put.to_pylist()})
        snapshot = table.snapshot()
        names = random.sample(["n", "t", "f"], 2)
        found = snapshot.scan(["k", *names])
        assert len(found) == len(expected)
        sample = found.take(pa.array(random.sample(range(len(found)), 200)))
        for row in sample.to_pylist():
            assert row == {name: expected[row["k"]][name] for name in row}
        readers.append((snapshot, {k: expected[k] for k in random.sample(list(expected), 50)}))
        if len(readers) > 2:
            readers.pop(random.randrange(len(readers)))
    for reader, some in readers:
        every = reader.scan()
        wanted = every.filter(pc.is_in(every["k"], pa.array(list(some))))
        assert {row["k"]: row for row in wanted.to_pylist()} == some


def test_a_scan_after_a_small_change_copies_no_unchanged_rows() -> None:
    random = Random(1)
    table = MemoryTable(Schema(COLUMNS, ("k",)))
    table.apply(Changes(rows(list(range(66_500)), random)))
    reader = table.snapshot()
    before = reader.scan(["n"]).column("n")
    table.apply(Changes(rows([5, 66_000], random)))
    after = table.snapshot().scan(["n"]).column("n")
    there = {chunk.buffers()[1].address for chunk in before.chunks}
    shared = [chunk for chunk in after.chunks if chunk.buffers()[1].address in there]
    assert sum(len(chunk) for chunk in shared) == 66_498


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("changed", [0, 3, 1_500])
@pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(12, 2), pa.bool_(), pa.date32()])
def test_the_difference_of_many_rows(keyed: bool, changed: int, kind: pa.DataType) -> None:
    random = Random(changed)
    value = pa.array([1], pa.int32()).cast(kind)[0].as_py()
    old: list[tuple[Any, ...]] = [
        (n, random.choice(("x", "y", None)), random.choice((value, None))) for n in range(3_000)
    ]
    new = list(old)
    random.shuffle(new)
    for at in random.sample(range(3_000), changed):
        new[at] = (new[at][0], "other", new[at][2])
    if changed:
        new.pop()
        new.append((5_000, "new", None))
    if not keyed:
        old, new = [row[1:] for row in old], [row[1:] for row in new]  # most occur often
        new += new[:changed]
    names = ["k", "t", "f"][0 if keyed else 1 :]
    types = [pa.int64(), pa.string(), kind][0 if keyed else 1 :]

    def made(given: list[tuple[Any, ...]]) -> pa.Table:
        return pa.table([pa.array(c, t) for c, t in zip(zip(*given, strict=True), types, strict=True)], names)

    before = made(old)
    if not keyed:
        before = before.append_column(ROW, pa.array(range(len(old)), pa.int64()))
    found = difference(Duck(), before, made(new), ["k"] if keyed else [])
    gone = [] if found.deleted is None else found.rows.filter(found.deleted).to_pylist()
    put = found.put.select(names).to_pylist()
    if keyed:
        left = {row["k"]: row for row in before.to_pylist()}
        for row in gone:
            del left[row["k"]]
        left.update({row["k"]: row for row in put})
        assert left == {row["k"]: row for row in made(new).to_pylist()}
        assert len(put) + len(gone) <= 2 * changed + 2
    else:
        numbers = {row[ROW] for row in gone}
        rest = [row for n, row in enumerate(made(old).to_pylist()) if n not in numbers]
        assert sorted(map(str, [*rest, *put])) == sorted(map(str, made(new).to_pylist()))
        assert len(put) + len(gone) <= 3 * changed + 2
