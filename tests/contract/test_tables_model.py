"""Every backend against a dict: random upserts, deletes, lookups, scans and snapshots that are held."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from millpond.changes import ROW, Changes, Position
from millpond.tables import Backend
from millpond.tables.memory import MemoryTable
from millpond.testing.contracts import TablePlace
from millpond.types import Column, Schema
from tests.contract.places import KINDS, SERVED, Places

SCHEMA = Schema((Column("a", pa.int32()), Column("b", pa.string()), Column("v", pa.int64())), ("a", "b"))

Row = tuple[int, str, int | None]
Model = dict[tuple[int, str], Row]

parts = st.tuples(st.integers(0, 4), st.sampled_from(["", "x", "y"]))
records = st.tuples(parts, st.one_of(st.none(), st.integers(0, 3)), st.booleans())


def rows_of(table: pa.Table) -> list[Row]:
    return sorted(zip(*(table[name].to_pylist() for name in ("a", "b", "v")), strict=True), key=repr)


class Machine(RuleBasedStateMachine):
    """A table in a place of its own."""

    kind = "memory"
    places: Places
    schema: Schema
    table: Backend
    held: list[tuple[Any, Any]]

    def __init__(self) -> None:
        super().__init__()
        self.open(self.places.new(self.kind))

    def open(self, place: TablePlace) -> None:
        self.place = place
        self.table = place.open("t", self.schema)
        if isinstance(self.table, MemoryTable):
            self.table.storage.idle_dead = 3
        self.held = []

    def can(self, ability: str) -> bool:
        return ability in self.table.abilities

    @precondition(lambda self: self.can("lasting"))
    @rule()
    def restart(self) -> None:
        self.table.close()
        self.open(self.place)

    def teardown(self) -> None:
        self.held = []
        self.table.close()


class TableMachine(Machine):
    schema = SCHEMA

    def __init__(self) -> None:
        super().__init__()
        self.model: Model = {}
        self.past: list[Model] = [{}]
        self.applied = 0

    @rule(batch=st.lists(records, max_size=6))
    def apply(self, batch: list[tuple[tuple[int, str], int | None, bool]]) -> None:
        before = self.table.version
        old = dict(self.model)
        for key, value, deleted in batch:
            self.model.pop(key, None)
            if not deleted:
                self.model[key] = (*key, value)
        rows = pa.table(
            {
                "a": pa.array([k[0] for k, _, _ in batch], pa.int32()),
                "b": pa.array([k[1] for k, _, _ in batch], pa.string()),
                "v": pa.array([v for _, v, _ in batch], pa.int64()),
            }
        )
        deleted = pa.array([d for _, _, d in batch], pa.bool_())
        position = Position("p", "c", self.applied)
        assert self.table.apply(Changes(rows, deleted), position, commit=len(self.past))
        assert not self.table.apply(Changes(rows), position)
        assert self.table.position("p") == position
        self.applied += 1
        self.past.append(dict(self.model))
        assert self.table.version > before or self.model == old

    @precondition(lambda self: self.can("held"))
    @rule()
    def hold(self) -> None:
        self.held = [*self.held[-3:], (self.table.snapshot(), dict(self.model))]

    @precondition(lambda self: self.can("commits"))
    @rule(back=st.integers(0, 8))
    def hold_an_earlier_commit(self, back: int) -> None:
        commit = max(0, len(self.past) - 1 - back)
        self.held = [*self.held[-3:], (self.table.snapshot(commit=commit), self.past[commit])]

    @rule(wanted=st.lists(parts, max_size=6))
    def get_by_key(self, wanted: list[tuple[int, str]]) -> None:
        keys = pa.table(
            {"b": pa.array([b for _, b in wanted], pa.string()), "a": [float(a) for a, _ in wanted]}
        )
        for view, model in [(self.table, self.model), *self.held]:
            expected = sorted((model[k] for k in set(wanted) if k in model), key=repr)
            assert rows_of(view.get(["b", "a"], keys)) == expected

    @rule(wanted=st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=3))
    def get_by_value(self, wanted: list[int | None]) -> None:
        keys = pa.table({"v": pa.array(wanted, pa.int16())})
        for view, model in [(self.table, self.model), *self.held]:
            expected = sorted((r for r in model.values() if r[2] is not None and r[2] in wanted), key=repr)
            assert rows_of(view.get(["v"], keys)) == expected

    @precondition(lambda self: self.held)
    @rule()
    def let_go(self) -> None:
        self.held.pop(0)

    @invariant()
    def scans_are_right(self) -> None:
        for view, model in [(self.table, self.model), *self.held]:
            assert rows_of(view.scan()) == sorted(model.values(), key=repr)
            assert len(view) == len(model)
            assert view.scan(["v"]).num_rows == len(model)


LOG = Schema((Column("v", pa.int64()),))
Numbered = dict[int, int | None]
values = st.one_of(st.none(), st.integers(0, 3))


class LogMachine(Machine):
    """A table without a key against a dict from row number to value, in the order of the numbers."""

    schema = LOG

    def __init__(self) -> None:
        super().__init__()
        self.model: Numbered = {}
        self.next = 0

    @rule(added=st.lists(values, max_size=5))
    def append(self, added: list[int | None]) -> None:
        self.table.apply(Changes(pa.table({"v": pa.array(added, pa.int64())})))
        for value in added:
            self.model[self.next] = value
            self.next += 1

    @precondition(lambda self: self.next)
    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        known = st.integers(0, self.next - 1)
        batch = data.draw(st.lists(st.tuples(st.one_of(known, st.none()), values, st.booleans()), max_size=6))
        batch = [(n, v, gone and n is not None) for n, v, gone in batch]
        rows = pa.table(
            {
                "v": pa.array([v for _, v, _ in batch], pa.int64()),
                ROW: pa.array([n for n, _, _ in batch], pa.int64()),
            }
        )
        self.table.apply(Changes(rows, pa.array([gone for *_, gone in batch], pa.bool_())))
        for number, value, gone in batch:
            if number is None:
                number, self.next = self.next, self.next + 1
            self.model.pop(number, None) if gone else self.model.__setitem__(number, value)

    @precondition(lambda self: self.can("held"))
    @rule()
    def hold(self) -> None:
        self.held = [*self.held[-3:], (self.table.snapshot(), dict(self.model))]

    @rule()
    def restore(self) -> None:
        """As a journal does: the rows with their numbers, then a delete that names the last number."""
        rows, last = self.table.scan(rows=True), self.next - 1
        held, old = self.held, self.table
        self.open(self.places.new(self.kind))
        if self.can("lasting"):
            old.close()
        else:
            self.held = held
        self.table.apply(Changes(rows))
        if last >= 0 and last not in self.model:
            self.table.apply(
                Changes(pa.table({ROW: pa.array([last], pa.int64())}), pa.array([True], pa.bool_()))
            )

    @rule(wanted=st.lists(values, max_size=3))
    def get_by_value(self, wanted: list[int | None]) -> None:
        keys = pa.table({"v": pa.array(wanted, pa.int16())})
        for view, model in [(self.table, self.model), *self.held]:
            found = view.get(["v"], keys)["v"].to_pylist()
            assert sorted(found) == sorted(v for v in model.values() if v is not None and v in wanted)

    @invariant()
    def scans_are_right(self) -> None:
        for view, model in [(self.table, self.model), *self.held]:
            found = view.scan(rows=True)
            pairs = list(zip(found[ROW].to_pylist(), found["v"].to_pylist(), strict=True))
            assert pairs == sorted(model.items())
            assert view.scan()["v"].to_pylist() == [v for _, v in pairs]
            assert len(view) == len(model)


@pytest.mark.parametrize(
    ("kind", "machine"),
    [
        *((kind, machine) for kind in KINDS for machine in (TableMachine, LogMachine)),
        ("cache over sqlite", TableMachine),
    ],
)
def test_a_table_behaves_as_a_dict(kind: str, machine: type[Machine], places: Places) -> None:
    run(
        kind,
        machine,
        places,
        examples=60 if kind in ("memory", "cache") else 5 if kind in ("delta", "flushed") else 20,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "machine"),
    [
        *((kind, machine) for kind in SERVED for machine in (TableMachine, LogMachine)),
        ("cache over postgresql", TableMachine),
    ],
)
def test_a_table_of_a_server_behaves_as_a_dict(kind: str, machine: type[Machine], places: Places) -> None:
    run(kind, machine, places, examples=5)


@pytest.mark.chaos
@pytest.mark.parametrize("machine", [TableMachine, LogMachine])
@pytest.mark.parametrize("kind", [*KINDS, *SERVED])
def test_a_table_behaves_as_a_dict_for_long(kind: str, machine: type[Machine], places: Places) -> None:
    run(kind, machine, places, examples=300)


def run(kind: str, machine: type[Machine], places: Places, *, examples: int) -> None:
    run_state_machine_as_test(
        type("Machine", (machine,), {"kind": kind, "places": places}),
        settings=settings(max_examples=examples, stateful_step_count=25, deadline=None),
    )
