"""Transactions of one table, and bulk changes by conditions: as the same changes one after the other, in one commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import App, Error, Table
from millpond.errors import Closed, Conflict, InvalidRecord, NotSupported, UnknownName

pytestmark = pytest.mark.slow

COLUMNS = {"id": "INT", "name": "STRING", "age": "INT"}
PEOPLE = [{"id": i, "name": f"n{i % 3}", "age": 10 * i} for i in range(1, 6)]
KINDS = ("alone", "memory", "cache", "sqlite")


@pytest.fixture(params=KINDS)
def people(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    if request.param == "alone":
        table = Table(COLUMNS, key="id", name="people")
        table.bulk_insert(PEOPLE)
        yield table
        return
    options = {"sqlite": f", 'path' = '{tmp_path / 'people.db'}'"}.get(request.param, "")
    with App() as app:
        app.sql(
            "CREATE TABLE people (id INT PRIMARY KEY, name STRING, age INT)"
            f" WITH ('extension' = '{request.param}'{options})"
        )
        app.table("people").bulk_insert(PEOPLE)
        yield app.table("people")


def rows(table: Table) -> list[dict[str, Any]]:
    return sorted(table.all_rows(), key=lambda row: row["id"])


def test_changes_are_seen_inside_and_count_at_the_end(people: Table) -> None:
    with people.begin_transaction() as tx:
        tx.insert({"id": 9, "name": "new", "age": 1})
        assert tx.update("id = 1", "age = age + 1") == 1 and tx.delete("age > 40") == 1
        assert tx.get_record(9) == {"id": 9, "name": "new", "age": 1} and tx.contains(9)
        assert tx.sql_scalar("COUNT(*)") == len(tx) == 5 and tx.find("id = 1")[0]["age"] == 11
        assert rows(people) == PEOPLE
    assert rows(people) == [
        {**PEOPLE[0], "age": 11},
        *PEOPLE[1:4],
        {"id": 9, "name": "new", "age": 1},
    ]
    with pytest.raises(Closed):
        tx.insert({"id": 10})
    with pytest.raises(Closed):
        tx.commit()


def test_an_exception_and_a_rollback_leave_the_table_as_it_was(people: Table) -> None:
    with pytest.raises(RuntimeError), people.begin_transaction() as tx:
        tx.delete("true")
        raise RuntimeError
    tx = people.begin_transaction()
    tx.bulk_insert([{"id": 7}, {"id": 8}])
    tx.rollback()
    tx.rollback()
    with people.begin_transaction() as tx, suppress(InvalidRecord):
        tx.bulk_insert([{"id": 7}, {"id": "x"}])
    assert rows(people) == PEOPLE


def test_the_second_writer_of_a_row_is_told_so(people: Table) -> None:
    first, second, third = (people.begin_transaction() for _ in range(3))
    first.update("id = 1", {"age": 1})
    second.update("id = 1", {"age": 2})
    second.update("id = 2", {"age": 2})
    third.update("id = 3", {"age": 3})
    first.commit()
    third.commit()
    with pytest.raises(Conflict, match='rows of table "people"') as caught:
        second.commit()
    assert caught.value.retryable
    assert {r["id"]: r["age"] for r in rows(people)} == {1: 1, 2: 20, 3: 3, 4: 40, 5: 50}
    tx = people.begin_transaction()
    tx.insert({"id": 8, "age": 8})
    people.insert({"id": 8, "age": 9})
    with pytest.raises(Conflict):
        tx.commit()


def test_it_reads_the_rows_as_of_its_beginning(people: Table) -> None:
    tx = people.begin_transaction()
    people.delete("true")
    assert [r["id"] for r in rows(tx)] == [1, 2, 3, 4, 5] and rows(people) == []
    tx.insert({"id": 6})
    tx.commit()
    assert [r["id"] for r in rows(people)] == [6]


def test_there_are_none_within_one(people: Table) -> None:
    with people.begin_transaction() as tx, pytest.raises(NotSupported, match="has begun already"):
        tx.begin_transaction()


def test_a_table_without_a_key_and_one_that_refuses_keys() -> None:
    log = Table({"v": "INT"})
    log.bulk_insert([{"v": 1}, {"v": 1}, {"v": 2}])
    with log.begin_transaction() as tx:
        tx.insert({"v": 1})
        assert tx.update("v = 1", "v = 5") == 3
        assert tx.delete("v = 2") == 1
    assert log.all_rows() == [{"v": 5}] * 3
    first, second = log.begin_transaction(), log.begin_transaction()
    first.delete("true")
    second.delete("true")
    first.commit()
    with pytest.raises(Conflict):
        second.commit()
    strict = Table("id INT", key="id", options={"on.conflict": "error"})
    with pytest.raises(Error, match="already"), strict.begin_transaction() as tx:
        tx.insert({"id": 1})
        tx.insert({"id": 1})
    assert len(strict) == 0


def test_a_live_view_has_none() -> None:
    with (
        App("CREATE TABLE t (id INT PRIMARY KEY); CREATE MATERIALIZED VIEW v AS SELECT id FROM t") as app,
        pytest.raises(Error, match="follows"),
        app.table("v").begin_transaction() as tx,
    ):
        tx.insert({"id": 1})


def test_bulk_changes_by_conditions(people: Table) -> None:
    old = people.compile_condition("age > 30")
    raised = people.compile_update_set("age = age + 100")
    pairs = [(old, raised), ({"name": "n1"}, {"name": "N"}), ("name = 'N' AND age > 100", "name = 'old'")]
    assert people.bulk_update(pairs) == 2 + 2 + 1
    assert [(r["id"], r["name"], r["age"]) for r in rows(people)] == [
        (1, "N", 10),
        (2, "n2", 20),
        (3, "n0", 30),
        (4, "old", 140),
        (5, "n2", 150),
    ]
    assert people.bulk_delete(["age > 100", {"name": "N"}, 3, 77]) == 4
    assert people.bulk_delete("age = 1") == 0 and people.bulk_update([("true", {"age": 0})]) == 1
    assert rows(people) == [{"id": 2, "name": "n2", "age": 0}]


def test_a_wrong_one_of_them_changes_nothing(people: Table) -> None:
    with pytest.raises(UnknownName, match="agee"):
        people.bulk_update([("true", {"age": 0}), ("agee = 1", {"age": 1})])
    with pytest.raises(Error):
        people.bulk_update([("true", {"age": 0}), ("id = 2", "age = CAST(name AS INT)")])
    with pytest.raises(InvalidRecord, match="pairs"):
        people.bulk_update([("true", {"age": 0}), {"id": 1, "age": 7}])
    with pytest.raises(UnknownName, match="agee"):
        people.bulk_delete(["true", "agee = 1"])
    assert rows(people) == PEOPLE


def test_a_text_is_a_key_where_the_key_is_text() -> None:
    table = Table("s STRING, v INT", key="s")
    table.bulk_insert([{"s": s, "v": v} for v, s in enumerate(("a", "b", "v = 0", "c"))])
    assert table.bulk_delete(["v = 0", "b"]) == 2
    assert table.bulk_delete([table.compile_condition("v = 0"), {"v": 9}]) == 1
    assert table.all_rows() == [{"s": "c", "v": 3}]


CONDITIONS = st.sampled_from(["id = 1", "id = 3", "v > 1", "v IS NULL", "id < 3 AND v = 2", "true"])
CHANGES = st.sampled_from(["v = v + 1", "v = NULL", "v = id", "id = id + 10", "v = 2"])
STEPS = st.lists(st.tuples(CONDITIONS, CHANGES | st.none()), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, keyed=st.booleans())
def test_bulk_changes_and_transactions_are_the_changes_in_turn(
    steps: list[tuple[str, str | None]], keyed: bool
) -> None:
    start = Table("id INT, v INT", key="id" if keyed else ())
    start.bulk_insert([{"id": i, "v": v} for i, v in enumerate((1, None, 2, 3, 2))])
    plain, staged = start.clone(), start.clone()
    tx = staged.begin_transaction()
    total: int | None = 0
    for condition, changes in steps:
        for table in (plain, tx):
            count = table.delete(condition) if changes is None else table.update(condition, changes)
        total += count
    expected = plain.all_rows()
    tx.commit()
    assert sorted(staged.all_rows(), key=str) == sorted(expected, key=str)
    updates = [(c, s) for c, s in steps if s is not None]
    if len(updates) == len(steps):
        bulk = start.clone()
        assert bulk.bulk_update(updates) == total
        assert sorted(bulk.all_rows(), key=str) == sorted(expected, key=str)
    elif not updates:
        bulk = start.clone()
        assert bulk.bulk_delete([c for c, _ in steps]) == total
        assert bulk.all_rows() == expected
