"""Logged changes as a whole do to a table what they do one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond import App
from millpond.connectors.cdc.log import ADDED, EMPTIED, ENDED, MOVED, PUT
from millpond.loading.capture_tables import changes_of, with_kept
from millpond.tables.registry import find_backend
from millpond.types import Column, Schema

pytestmark = pytest.mark.slow

COLUMNS = (Column("id", pa.int64()), Column("a", pa.string()), Column("b", pa.int64()))
ROW = pa.schema([(c.name, c.type) for c in COLUMNS])

Row = tuple[int | None, str | None, int | None]
Change = tuple[int, Row, list[int] | None]


@st.composite
def logs(draw: st.DrawFn) -> list[list[Change]]:
    """Transactions that a database could have had."""
    there: set[int] = set()
    found: list[list[Change]] = []
    for _ in range(draw(st.integers(1, 6))):
        transaction: list[Change] = []
        for _ in range(draw(st.integers(0, 8))):
            kind = draw(st.sampled_from(["add", "add", "put", "end", "move", "empty"]))
            key, other = draw(st.integers(0, 4)), draw(st.integers(0, 4))
            a, b = draw(st.sampled_from(["x", "y", None])), draw(st.integers(0, 9))
            kept = draw(st.sampled_from([None, [1], [2], [1, 2]]))
            row: Row = (key, None if kept and 1 in kept else a, None if kept and 2 in kept else b)
            if kind == "add" and key not in there:
                transaction.append((ADDED, (key, a, b), None))
                there.add(key)
            elif kind == "put" and key in there:
                transaction.append((PUT, row, kept))
            elif kind == "end" and key in there:
                transaction.append((ENDED, (key, None, None), None))
                there.discard(key)
            elif kind == "move" and other in there and key not in there:
                transaction += [(MOVED, (other, None, None), None), (PUT, row, kept)]
                there.discard(other)
                there.add(key)
            elif kind == "empty":
                transaction.append((EMPTIED, (None, None, None), None))
                there.clear()
        found.append(transaction)
    return found


def one_by_one(log: list[list[Change]]) -> dict[int, Row]:
    rows: dict[int, Row] = {}
    moved: Row | None = None
    for op, row, kept in (change for transaction in log for change in transaction):
        key = row[0]
        if op == EMPTIED:
            rows.clear()
            continue
        assert key is not None
        if op == ENDED:
            del rows[key]
        elif op == MOVED:
            moved = rows.pop(key)
        else:
            before: Any = moved if moved is not None else rows.get(key)
            values: list[Any] = [before[i] if kept and i in kept else v for i, v in enumerate(row)]
            rows[key], moved = (values[0], values[1], values[2]), None
    return rows


def as_table(changes: list[Change]) -> tuple[pa.Table, np.ndarray, pa.ChunkedArray]:
    rows = pa.Table.from_pylist([dict(zip(ROW.names, r, strict=True)) for _, r, _ in changes], ROW)
    kept = pa.chunked_array([pa.array([k for _, _, k in changes], pa.list_(pa.int16()))])
    return rows, np.array([op for op, _, _ in changes], np.int8), kept


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    with App() as app:
        yield app


@settings(deadline=None, max_examples=100)
@given(log=logs())
def test_by_key(app: App, log: list[list[Change]]) -> None:
    backend = find_backend("memory").open("t", Schema(COLUMNS, ("id",)), {}, null_keys=False)
    for transaction in log:
        if transaction:
            rows, ops, kept = as_table(transaction)
            own = backend.snapshot()
            rows = with_kept(rows, ops, kept, {1: 1, 2: 2}, ["id"], own)
            backend.apply(backend.check(changes_of(rows, ops, ["id"], own, app._runtime.evaluator)))
    found = {r["id"]: (r["id"], r["a"], r["b"]) for r in backend.snapshot().scan().to_pylist()}
    assert found == one_by_one(log)


@settings(deadline=None, max_examples=60)
@example(log=[[(ADDED, (0, "x", 0), None), (ENDED, (0, "x", 0), None)]])
@given(log=logs())
def test_by_value(app: App, log: list[list[Change]]) -> None:
    """Of a table without a key the log has whole rows, also of what goes."""
    backend = find_backend("memory").open("t", Schema(COLUMNS), {}, null_keys=False)
    wanted: list[Row] = []
    for transaction in log:
        changes: list[Change] = []
        for op, row, _ in transaction:
            if op == EMPTIED:
                wanted.clear()
                changes.append((EMPTIED, row, None))
            elif op in (PUT, ADDED):
                wanted.append(row)
                changes.append((op, row, None))
            elif wanted:
                changes.append((ENDED, wanted.pop(0), None))
        if changes:
            rows, ops, _ = as_table(changes)
            change = changes_of(rows, ops, [], backend.snapshot(), app._runtime.evaluator)
            backend.apply(backend.check(change))
    found = [tuple(r.values()) for r in backend.snapshot().scan().to_pylist()]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
