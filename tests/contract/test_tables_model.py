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

from millpond.changes import Changes
from millpond.options import read_options
from millpond.tables import backend_names, find_backend
from millpond.types import Column, Schema

SCHEMA = Schema((Column("a", pa.int32()), Column("b", pa.string()), Column("v", pa.int64())), ("a", "b"))

Row = tuple[int, str, int | None]
Model = dict[tuple[int, str], Row]

parts = st.tuples(st.integers(0, 4), st.sampled_from(["", "x", "y"]))
records = st.tuples(parts, st.one_of(st.none(), st.integers(0, 3)), st.booleans())


def rows_of(table: pa.Table) -> list[Row]:
    return sorted(zip(*(table[name].to_pylist() for name in ("a", "b", "v")), strict=True), key=repr)


class TableMachine(RuleBasedStateMachine):
    backend = "memory"

    def __init__(self) -> None:
        super().__init__()
        backend = find_backend(self.backend)
        self.table = backend.open("t", SCHEMA, read_options('table "t"', backend.options, ()))
        if hasattr(self.table, "idle_dead"):
            self.table.idle_dead = 3
        self.model: Model = {}
        self.past: list[Model] = [{}]
        self.held: list[tuple[Any, Model]] = []

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
        assert self.table.apply(Changes(rows, deleted), commit=len(self.past))
        self.past.append(dict(self.model))
        assert self.table.version > before or self.model == old

    @rule()
    def hold(self) -> None:
        self.held = [*self.held[-3:], (self.table.snapshot(), dict(self.model))]

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


@pytest.mark.parametrize("name", sorted(set(backend_names().values())))
def test_a_table_behaves_as_a_dict(name: str) -> None:
    machine = type("Machine", (TableMachine,), {"backend": name})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )
