"""Batches of many integer keys, which reach the index of keys only when somebody looks for one: always equal to a
dict, whatever reads and changes the table in between.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from millpond import faults
from millpond.alterations import AddedColumn
from millpond.changes import Changes
from millpond.tables._lagging_keys import LaggingKeys
from millpond.tables.memory import MemoryTable, Publication
from millpond.types import Column, Schema

KEYED = Schema((Column("k", pa.int64()), Column("x", pa.int64())), ("k",))
Rows = dict[int, int]


@pytest.fixture(autouse=True)
def _few_are_many() -> Iterator[None]:
    with mock.patch("millpond.tables._integer_keys.MANY", 2):
        yield


def put(table: MemoryTable, rows: Rows, commit: int) -> None:
    keys, values = pa.array(rows.keys(), pa.int64()), pa.array(rows.values(), pa.int64())
    table.apply(Changes(pa.table({"k": keys, "x": values})), commit=commit)


def lags(table: MemoryTable) -> bool:
    return isinstance(table.snapshot().table_version.generation.newest, LaggingKeys)


def read(view: Any) -> Rows:
    keys = pa.table({"k": pa.array(np.arange(-1, 300))})
    found = {r["k"]: r["x"] for r in view.get(["k"], keys).to_pylist()}
    assert found == {r["k"]: r["x"] for r in view.scan().to_pylist()}
    return found


@pytest.mark.parametrize("seed", range(8))
def test_any_changes_give_the_rows_of_a_dict(seed: int) -> None:
    chance = random.Random(seed)
    table, model, commit = MemoryTable(KEYED), dict[int, int](), 0
    table.storage.idle_dead = table.storage.piece = 16  # type: ignore[misc]
    lagged, seen = 0, list[tuple[Any, Rows]]()
    for commit in range(1, 150):
        rows = {chance.randrange(100): commit for _ in range(chance.randint(2, 60))}
        what = chance.randrange(8)
        if what < 4:
            put(table, rows, commit)
            model |= rows
            lagged += lags(table)
        elif what == 4:
            gone = pa.array([True] * len(rows))
            table.apply(Changes(pa.table({"k": list(rows), "x": list(rows)}), gone), commit=commit)
            model = {k: x for k, x in model.items() if k not in rows}
        elif what == 5:
            key = next(iter(rows))
            table.put_record({"k": key, "x": commit})
            model[key] = commit
        elif what == 6:
            publication = Publication()
            table.storage.join(publication)
            before, after = dict(model), model | rows
            put(table, rows, commit)
            assert read(table.snapshot()) == before
            key = next(iter(rows))
            assert bool(table.snapshot().slots_of_key(key)) == (key in before)
            publication.done = True
            table.storage.release()
            model = after
        else:
            key = chance.randrange(100)
            assert bool(table.snapshot().slots_of_key(key)) == (key in model)
            assert table.storage.live.newest.get(key, -1) >= 0 or key not in model
        seen = [*seen[-3:], (table.snapshot(), dict(model))]
        for view, rows_then in seen:
            assert read(view) == rows_then
    assert lagged > 20
    for key in range(-1, 101):
        assert bool(table.snapshot().slots_of_key(key)) == (key in model)
    assert not lags(table)


def test_a_batch_that_fails_half_way_leaves_the_rows() -> None:
    table = MemoryTable(KEYED)
    put(table, {k: 0 for k in range(50)}, 1)
    for number, point in enumerate(("table: appended", "table: linked", "table: pointed"), 2):
        with (
            mock.patch.object(faults, "reach", side_effect=_fails_at(point)),
            pytest.raises(OSError, match="now"),
        ):
            put(table, {k: number for k in range(20, 80)}, number)
        assert read(table.snapshot()) == {k: 0 for k in range(50)}
        assert [k for k in range(90) if table.snapshot().slots_of_key(k)] == list(range(50))
    put(table, {k: 9 for k in range(20, 80)}, 9)
    assert read(table.snapshot()) == {k: 9 if k >= 20 else 0 for k in range(80)}


def _fails_at(point: str) -> Any:
    def reach(name: str) -> None:
        if name == point:
            raise OSError("now")

    return reach


def test_keys_that_are_not_dense_or_occur_twice_are_found() -> None:
    table = MemoryTable(KEYED)
    put(table, {5: 1, 10**15: 2, -3: 3}, 1)
    assert not lags(table)
    table.apply(Changes(pa.table({"k": [7, 8, 7], "x": [1, 2, 3]})), commit=2)
    assert {r["k"]: r["x"] for r in table.snapshot().scan().to_pylist()} == {
        5: 1,
        10**15: 2,
        -3: 3,
        7: 3,
        8: 2,
    }


def test_a_table_that_lags_can_be_altered() -> None:
    table = MemoryTable(KEYED)
    put(table, {k: k for k in range(40)}, 1)
    assert lags(table)
    other = table.alter(AddedColumn(Column("y", pa.int64()), pa.nulls(1, pa.int64())))
    assert not lags(other) and other.snapshot().slots_of_key(39) and not other.snapshot().slots_of_key(40)


def test_readers_of_single_keys_beside_batches_never_see_half_of_one() -> None:
    table = MemoryTable(KEYED)
    put(table, {k: 0 for k in range(64)}, 0)
    wrong, over = list[Any](), threading.Event()

    def look() -> None:
        last = 0
        while not over.is_set():
            view = table.snapshot()
            found = {view.blocks[0].row(s)["x"] for k in (1, 63) for s in view.slots_of_key(k)}
            if len(found) != 1 or min(found) < last:
                wrong.append((found, last))
            last = min(found, default=last)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for commit in range(1, 200):
        put(table, {k: commit for k in range(64)}, commit)
    over.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_measuring_a_table_adds_nothing_to_its_index() -> None:
    table = MemoryTable(KEYED)
    put(table, {k: k for k in range(100)}, 1)
    before = table.stats()["bytes"]
    assert lags(table)
    assert table.snapshot().slots_of_key(7)
    assert not lags(table)
    assert table.stats()["bytes"] > before  # now it has the keys
