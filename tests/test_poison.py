"""Finding the rows that cannot be processed, by trying parts of a batch."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from millpond import App
from millpond.errors import DataError
from millpond.streaming import statement
from millpond.streaming.poison import TooMany, find_poison


def batch(values: list[int]) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


@settings(deadline=None)
@given(some.lists(some.integers(0, 20), max_size=60), some.booleans())
def test_rows_that_are_wrong_by_themselves(values: list[int], in_order: bool) -> None:
    def attempt(rows: pa.Table) -> DataError | None:
        wrong = [x for x in rows["x"].to_pylist() if x == 0]
        return DataError("zero") if wrong else None

    found = find_poison(batch(values), attempt, in_order=in_order)
    assert [place for place, _ in found] == [i for i, x in enumerate(values) if x == 0]
    assert {reason.message for _, reason in found} <= {"zero"}


@settings(deadline=None)
@given(some.lists(some.integers(1, 9), max_size=40), some.booleans())
def test_rows_that_fail_only_together(values: list[int], in_order: bool) -> None:
    """A sum that overflows: each row that the sum of those before it leaves no room for."""

    def attempt(rows: pa.Table) -> DataError | None:
        return DataError("overflow") if sum(rows["x"].to_pylist()) > 30 else None

    total, expected = 0, []
    for place, x in enumerate(values):
        if total + x > 30:
            expected.append(place)
        else:
            total += x
    found = find_poison(batch(values), attempt, in_order=in_order)
    assert [place for place, _ in found] == expected


@pytest.mark.parametrize("in_order", [False, True])
def test_more_than_may_be(in_order: bool) -> None:
    def attempt(rows: pa.Table) -> DataError | None:
        return DataError("no") if rows.num_rows else None

    with pytest.raises(TooMany):
        find_poison(batch(list(range(4))), attempt, in_order=in_order, most=3)
    assert len(find_poison(batch(list(range(4))), attempt, in_order=in_order)) == 4


@pytest.mark.parametrize("change", [False, True])
def test_a_batch_with_many_bad_rows_is_applied_in_parts(
    monkeypatch: pytest.MonkeyPatch, change: bool
) -> None:
    """The query goes on: every good row counts, every bad one is in the error table."""
    monkeypatch.setattr(statement, "MOST", 5)
    insert = "INSERT INTO t SELECT id, 10 DIV (id % 4) FROM s"
    upsert = "UPSERT INTO t SELECT id, 10 DIV (id % 4) AS x FROM s ON t.id = s.id"
    sql = f"""
        CREATE STREAM s (id INT); CREATE TABLE t (id INT PRIMARY KEY, x INT);
        {upsert if change else insert} WITH ('query.name' = 'fill');
    """
    with App(sql, _direct=True) as app:
        app.send("s", [{"id": i} for i in range(40)])
        app.drain()
        (query,) = app.sql("SHOW QUERIES").rows()
        assert (query["state"], query["errors"]) == ("running", 10) and query["batches"] > 1
        assert sorted(r["id"] for r in app.table("t")) == [i for i in range(40) if i % 4]
        found = app.sql("SELECT seq FROM fill$errors ORDER BY seq").rows()
        assert [r["seq"] for r in found] == list(range(0, 40, 4))
