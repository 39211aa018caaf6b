"""A memory table that is compacted piece by piece while it is changed and read: always equal to a dict."""

from __future__ import annotations

import random
import threading
from collections import deque
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millpond.changes import ROW, Changes
from millpond.tables._storage import RowStorage
from millpond.tables.memory import MemoryTable
from millpond.types import Column, Schema

COLUMNS = (Column("k", pa.int64()), Column("t", pa.string()), Column("x", pa.int64()))
KEYED = Schema(COLUMNS, ("k",))
KEYS = st.integers(0, 12)
TEXTS = st.sampled_from(["a", "b", "c", None])
Rows = dict[int, tuple[str | None, int]]


def small(schema: Schema, *, piece: int, kept: int = 2) -> MemoryTable:
    """A table that is compacted early, in pieces of so many slots."""
    with mock.patch.object(RowStorage, "kept_commits", kept):
        table = MemoryTable(schema)
    for name, value in (("idle_dead", 0), ("piece", piece), ("kept_commits", kept)):
        setattr(table.storage, name, value)
    return table


def changes(rows: list[tuple[int, str | None, int]], deleted: list[bool] | None = None) -> Changes:
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    table = pa.table(dict(zip("ktx", map(list, columns), strict=True)), KEYED.arrow())
    return Changes(table, None if deleted is None else pa.array(deleted, pa.bool_()))


def rows_of(view: Any) -> Rows:
    found = view.scan().to_pylist()
    assert len({r["k"] for r in found}) == len(found) == len(view)
    return {r["k"]: (r["t"], r["x"]) for r in found}


def check_view(view: Any, model: Rows) -> None:
    """All ways to read a snapshot agree with the model."""
    assert rows_of(view) == model
    keys = pa.table({"k": pa.array(range(13), pa.int64())})
    assert {r["k"]: (r["t"], r["x"]) for r in view.get(["k"], keys).to_pylist()} == model
    for text in ("a", "b", "nobody"):
        expected = sorted(k for k, (t, _) in model.items() if t == text)
        found = view.get(["t"], pa.table({"t": [text]})).to_pylist()
        assert sorted(r["k"] for r in found) == expected
        some = view.find(("t",), [text])
        assert sorted(r["k"] for r in some.records()) == expected
    for key in range(13):
        assert len(view.slots_of_key(key)) == (key in model)


class InPieces(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = small(KEYED, piece=8, kept=5)
        self.model: Rows = {}
        self.commit = 0
        self.past: deque[tuple[int, Rows]] = deque([(0, {})], maxlen=5)
        self.held: list[tuple[Any, Rows]] = []

    def committed(self) -> None:
        self.past.append((self.commit, dict(self.model)))

    @rule(rows=st.lists(st.tuples(KEYS, TEXTS, st.integers(0, 99)), max_size=8), data=st.data())
    def change(self, rows: list[tuple[int, str | None, int]], data: st.DataObject) -> None:
        deleted = data.draw(st.none() | st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
        self.commit += 1
        before = self.table.version
        self.table.apply(changes(rows, deleted), commit=self.commit)
        for (k, t, x), gone in zip(rows, deleted or [False] * len(rows), strict=True):
            if gone:
                self.model.pop(k, None)
            else:
                self.model[k] = (t, x)
        if self.table.version != before:
            self.committed()

    @rule(rows=st.lists(st.tuples(KEYS, st.sampled_from("put patch drop".split())), min_size=1, max_size=5))
    def edit(self, rows: list[tuple[int, str]]) -> None:
        for key, what in rows:
            self.commit += 1
            if what == "put":
                made = self.table.edits.put({"k": key, "t": "b", "x": self.commit})
                self.model[key] = ("b", self.commit)
            elif what == "patch":
                made = self.table.edits.patch(key, {"x": self.commit})
                if key in self.model:
                    self.model[key] = (self.model[key][0], self.commit)
            else:
                made = self.table.edits.drop(key)
                self.model.pop(key, None)
            assert made is not None
            if made.key is not None:
                self.table.edits.apply(made, self.commit)
                self.table.storage.compact()
                self.committed()

    @rule()
    def hold(self) -> None:
        self.held = [*self.held[-3:], (self.table.snapshot(), dict(self.model))]

    @rule()
    def fail(self) -> None:
        """A change that fails half way leaves the rows as they were, and ends the compaction."""
        if not self.table.storage.mark.slots:
            return
        with (
            mock.patch(
                "millpond.faults.reach", side_effect=lambda p: 1 / 0 if p == "table: linked" else None
            ),
            pytest.raises(ZeroDivisionError),
        ):
            self.table.apply(changes([(99, "a", 1)]), commit=self.commit)
        self.past.clear()
        self.past.append((self.commit, dict(self.model)))

    @invariant()
    def equal(self) -> None:
        check_view(self.table.snapshot(), self.model)
        for key in range(13):
            slot = self.table.storage.live.newest.get(key, -1)
            assert (slot >= 0) == (key in self.model)
        for commit, model in self.past:
            check_view(self.table.snapshot(commit=commit), model)
        for view, model in self.held:
            check_view(view, model)


TestInPieces = InPieces.TestCase
TestInPieces.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("piece", [2, 50, 100_000])
def test_rows_without_a_key_keep_their_numbers(piece: int) -> None:
    schema = Schema((Column("x", pa.int64()),))
    table, chance = small(schema, piece=piece), random.Random(piece)
    model: dict[int, int] = {}
    past: list[tuple[int, dict[int, int]]] = []
    taken = 0
    for step in range(150):
        some = chance.sample(sorted(model), min(len(model), 6))
        numbers = [*some, *[None] * chance.randrange(4)]
        gone = [n is not None and chance.random() < 0.4 for n in numbers]
        given = pa.table(
            {"x": pa.array([step] * len(numbers), pa.int64()), ROW: pa.array(numbers, pa.int64())}
        )
        table.apply(Changes(given, pa.array(gone, pa.bool_())), commit=step + 1)
        for number, is_gone in zip(numbers, gone, strict=True):
            if number is None:
                number, taken = taken, taken + 1
            if is_gone:
                del model[number]
            else:
                model[number] = step
        found = table.scan(rows=True).to_pylist()
        assert {r[ROW]: r["x"] for r in found} == model
        assert table.next_row == taken
        past = [*past, (step + 1, dict(model))][-2:]
        for commit, then in past:
            of_then = table.snapshot(commit=commit).numbered(sorted(then))
            assert sorted(of_then["x"].to_pylist()) == sorted(then.values())
    assert table.storage.mark.slots < 2 * len(model) + 60, "it was not compacted"


def test_an_index_stays_through_a_compaction() -> None:
    """It is not built again: its map of keys is the same object, also where rows were replaced and deleted."""
    table = small(KEYED, piece=100)
    table.apply(changes([(k, f"t{k % 50}", k) for k in range(3_000)]))
    table.create_index(["t"])
    index = table.storage.generation.others[("t",)]
    found = index.groups.found
    generations = set()
    for step in range(40):
        some = range(step * 50, step * 50 + 400)
        table.apply(changes([(k % 3_000, f"t{k % 50}", -step) for k in some], [k % 7 == 0 for k in some]))
        generations.add(id(table.storage.generation))
        with mock.patch("millpond.tables._index.Groups.build", side_effect=AssertionError("built again")):
            view = table.snapshot()
            got = view.get(["t"], pa.table({"t": ["t3"]}))["k"].to_pylist()
        assert sorted(got) == sorted(r["k"] for r in view.scan().to_pylist() if r["t"] == "t3")
        if step % 4 == 3:
            # What the readers added is sorted in, as it is without a compaction.
            table.storage.generation.others[("t",)].groups.recent.clear()
            table.storage.generation.others[("t",)].groups = type(index.groups).build(
                table.storage.blocks.between(["t"], 0, table.storage.mark.slots)
            )
            found = table.storage.generation.others[("t",)].groups.found
        assert table.storage.generation.others[("t",)].groups.found is found
    assert len(generations) > 2, "it was not compacted"


def test_an_index_forgets_keys_whose_rows_are_gone() -> None:
    table = small(KEYED, piece=1_000)
    table.apply(changes([(k, f"t{k}", k) for k in range(5_000)]))
    table.create_index(["t"])
    table.apply(changes([(k, None, k) for k in range(10, 5_000)], [True] * 4_990))
    for step in range(300):
        table.apply(changes([(k, f"t{k}", step) for k in range(10)]))
    assert table.snapshot().get(["t"], pa.table({"t": ["t3", "t4000"]}))["k"].to_pylist() == [3]
    assert len(table.storage.generation.others[("t",)].groups.found) < 100


def test_readers_beside_a_compaction() -> None:
    """Readers of keys, of an index and of all rows see each commit as a whole."""
    table = small(KEYED, piece=64, kept=4)
    table.apply(changes([(k, "a", 0) for k in range(500)]))
    wrong: list[str] = []
    done = threading.Event()

    def read(chance: random.Random) -> None:
        while not done.is_set():
            view = table.snapshot()
            if len({x for _, x in rows_of(view).values()}) != 1:
                wrong.append("a scan")
            keys = pa.table({"k": pa.array(chance.sample(range(500), 80), pa.int64())})
            if len(set(view.get(["k"], keys)["x"].to_pylist())) != 1:
                wrong.append("keys")
            if view.get(["t"], pa.table({"t": ["a"]})).num_rows != 500:
                wrong.append("an index")

    threads = [threading.Thread(target=read, args=(random.Random(n),)) for n in range(2)]
    for thread in threads:
        thread.start()
    generations = set()
    for step in range(1, 120):
        table.apply(changes([(k, "a", step) for k in range(500)]))
        generations.add(id(table.storage.generation))
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong and len(generations) > 3
