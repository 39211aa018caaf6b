"""Tests what a table keeps of changes: rows by key and by number, positions, columns."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from millpond.changes import ROW, Changes, Position
from millpond.errors import Closed, InvalidRecord, NotSupported, UnknownName
from millpond.records import to_rows
from millpond.testing.contracts.rows import (
    ITEMS,
    LOG,
    PAIRS,
    Make,
    TableSuite,
    by_id,
    changes,
    item,
    keys,
    rows,
)
from millpond.types import Column, Schema


def numbered(*pairs: tuple[int | None, str | None], deleted: list[bool] | None = None) -> Changes:
    """Returns changes of LOG by row number."""
    rows = pa.table(
        {
            "Name": pa.array([name for _, name in pairs], pa.string()),
            ROW: pa.array([number for number, _ in pairs], pa.int64()),
        }
    )
    return Changes(rows, None if deleted is None else pa.array(deleted))


def names_by_number(table: Any) -> list[tuple[int, str]]:
    found = table.scan(["Name"], rows=True)
    assert found.column_names == ["Name", ROW] and found.schema.field(ROW).type == pa.int64()
    return list(zip(found[ROW].to_pylist(), found["Name"].to_pylist(), strict=True))


class ChangesSuite(TableSuite):
    """Tests what is applied, once, all or nothing."""

    def test_a_new_table_is_empty(self, make: Make) -> None:
        table = make()
        assert len(table) == 0
        assert table.scan().schema == ITEMS.arrow()
        assert table.scan().num_rows == 0
        assert by_id(table, 1) == []
        assert table.get(["tier"], keys(pa.string(), "GOLD")).schema == ITEMS.arrow()
        assert table.position("p") is None

    def test_upsert_last_row_of_a_key_wins(self, make: Make) -> None:
        table = make()
        assert table.apply(changes(ITEMS, item(1, "a"), item(2, "b"), item(1, "c")))
        assert rows(table.scan()) == [item(1, "c"), item(2, "b")]
        table.apply(changes(ITEMS, item(2, "d"), item(3, "e")))
        assert rows(table.scan()) == [item(1, "c"), item(2, "d"), item(3, "e")]
        assert len(table) == 3

    def test_deletes_look_only_at_the_key(self, make: Make) -> None:
        table = make()
        table.apply(changes(ITEMS, item(1, "a"), item(2, "b")))
        table.apply(changes(ITEMS, item(1), item(9), deleted=[True, True]))
        assert rows(table.scan()) == [item(2, "b")]
        table.apply(Changes(pa.table({"id": pa.array([2], pa.int32())}), pa.array([True])))
        assert len(table) == 0
        assert by_id(table, 1, 2, 9) == []

    def test_the_order_of_changes_within_one_apply_counts(self, make: Make) -> None:
        table = make()
        table.apply(changes(ITEMS, item(1, "a"), item(1), item(2, "x"), deleted=[False, True, False]))
        assert rows(table.scan()) == [item(2, "x")]
        table.apply(changes(ITEMS, item(2), item(2, "y"), deleted=[True, False]))
        assert by_id(table, 2) == [item(2, "y")]

    def test_a_key_that_was_deleted_may_come_again(self, make: Make) -> None:
        table = make()
        for name in "abc":
            table.apply(changes(ITEMS, item(1, name)))
            assert by_id(table, 1) == [item(1, name)]
            table.apply(changes(ITEMS, item(1), deleted=[True]))
            assert by_id(table, 1) == []

    def test_without_a_key_every_row_is_kept_in_order(self, make: Make) -> None:
        table = make(LOG)
        table.apply(changes(LOG, item(1, "a"), item(1, "a")))
        table.apply(changes(LOG, item(None, "b")))
        assert to_rows(table.scan()) == [item(1, "a"), item(1, "a"), item(None, "b")]
        assert by_id(table, 1) == [item(1, "a"), item(1, "a")]
        with pytest.raises(NotSupported):
            table.apply(changes(LOG, item(1), deleted=[True]))

    def test_rows_without_a_key_have_numbers_that_are_never_used_again(self, make: Make) -> None:
        table = make(LOG)
        table.apply(changes(LOG, item(1, "a"), item(1, "b"), item(1, "c")))
        assert names_by_number(table) == [(0, "a"), (1, "b"), (2, "c")]
        table.apply(numbered((2, None), deleted=[True]))
        table.apply(changes(LOG, item(1, "d")))
        assert names_by_number(table) == [(0, "a"), (1, "b"), (3, "d")]

    def test_a_row_is_replaced_in_its_place_by_number(self, make: Make) -> None:
        table = make(LOG)
        table.apply(changes(LOG, item(1, "a"), item(1, "b"), item(1, "c")))
        before = table.snapshot()
        table.apply(numbered((1, "x"), (None, "new"), (0, None), deleted=[False, False, True]))
        assert names_by_number(table) == [(1, "x"), (2, "c"), (3, "new")]
        assert [r["Name"] for r in to_rows(table.scan())] == ["x", "c", "new"]
        if "held" in table.abilities:
            assert names_by_number(before) == [(0, "a"), (1, "b"), (2, "c")]
        table.apply(numbered((1, "y"), (1, "z")))
        assert names_by_number(table) == [(1, "z"), (2, "c"), (3, "new")]
        assert rows(table.get(["Name"], keys(pa.string(), "z", "y", "b"))) == [item(None, "z")]
        assert len(table) == 3

    def test_a_scan_with_its_numbers_makes_the_same_table(self, make: Make) -> None:
        table = make(LOG)
        table.apply(changes(LOG, *(item(i, f"n{i}") for i in range(10))))
        table.apply(numbered((3, None), (9, None), (5, "five"), deleted=[True, True, False]))
        again = make(LOG)
        again.apply(Changes(table.scan(rows=True)))
        again.apply(numbered((9, None), deleted=[True]))
        assert names_by_number(again) == names_by_number(table)
        for each in (table, again):
            each.apply(changes(LOG, item(1, "next")))
            assert names_by_number(each)[-1] == (10, "next")

    def test_row_numbers_are_refused_where_they_make_no_sense(self, make: Make) -> None:
        with pytest.raises(NotSupported):
            make().scan(rows=True)
        with pytest.raises(InvalidRecord, match=ROW):
            make().apply(Changes(pa.table({"id": [1], ROW: pa.array([0], pa.int64())})))
        with pytest.raises(InvalidRecord, match="negative"):
            make(LOG).apply(numbered((-1, "a")))
        with pytest.raises(NotSupported):
            make(LOG).apply(numbered((None, "a"), deleted=[True]))

    def test_null_in_the_key_is_refused_and_nothing_is_kept(self, make: Make) -> None:
        table = make()
        before = table.version
        with pytest.raises(InvalidRecord, match=r'row 1 .*"id"') as caught:
            table.apply(changes(ITEMS, item(1, "a"), item(None, "b")), Position("p", "c", 0))
        assert caught.value.row == 1 and caught.value.field == "id"
        assert len(table) == 0 and table.version == before
        assert table.position("p") is None

    def test_null_in_a_not_null_column_is_refused_but_for_deletes(self, make: Make) -> None:
        schema = Schema((Column("id", pa.int64()), Column("v", pa.string(), nullable=False)), ("id",))
        table = make(schema)
        with pytest.raises(InvalidRecord, match=r'row 0 .*"v" is NULL'):
            table.apply(Changes(pa.table({"id": [1], "v": pa.array([None], pa.string())})))
        table.apply(Changes(pa.table({"id": [1], "v": ["x"]})))
        table.apply(Changes(pa.table({"id": [1], "v": pa.array([None], pa.string())}), pa.array([True])))
        assert len(table) == 0

    def test_null_keys_of_groups_equal_themselves(self, make: Make) -> None:
        table = make(PAIRS, null_keys=True)
        assert "null_keys" in table.abilities
        table.apply(changes(PAIRS, {"a": None, "b": "x", "v": 1.0}, {"a": 1, "b": None, "v": 2.0}))
        table.apply(changes(PAIRS, {"a": None, "b": "x", "v": 3.0}))
        assert len(table) == 2
        wanted = pa.table({"a": pa.array([None], pa.int32()), "b": ["x"]})
        assert rows(table.get(["a", "b"], wanted)) == []
        assert rows(table.get(["a", "b"], wanted, nulls=True)) == [{"a": None, "b": "x", "v": 3.0}]

    def test_columns_are_found_by_name_in_any_case_and_order(self, make: Make) -> None:
        table = make()
        table.apply(
            Changes(
                pa.table({"QTY": pa.array([7], pa.int64()), "ID": pa.array([1], pa.int16()), "name": ["a"]})
            )
        )
        assert rows(table.scan()) == [item(1, "a", None, 7)]
        assert to_rows(table.scan(["QTY", "id"])) == [{"qty": 7, "id": 1}]
        assert rows(table.get(["NAME"], keys(pa.string(), "a"))) == [item(1, "a", None, 7)]
        with pytest.raises(UnknownName):
            table.scan(["nmae"])
        with pytest.raises(InvalidRecord, match='"nmae"'):
            table.apply(Changes(pa.table({"id": [1], "nmae": ["a"]})))

    def test_a_position_is_applied_once(self, make: Make) -> None:
        table = make(LOG)
        first, again = Position("p", "c1", 0, {"s": {"seq": 5}}), Position("p", "c1", 0)
        assert table.apply(changes(LOG, item(1)), first)
        assert not table.apply(changes(LOG, item(1)), again)
        assert table.position("p") == first
        assert table.apply(changes(LOG, item(2)), Position("p", "c1", 1))
        assert not table.apply(changes(LOG, item(1)), again)
        assert table.apply(changes(LOG, item(3)), Position("p", "c2", 0))
        assert table.apply(changes(LOG, item(4)), Position("q", "c1", 0))
        assert [r["id"] for r in to_rows(table.scan())] == [1, 2, 3, 4]

    def test_the_version_grows_when_rows_change_and_scans_are_kept(self, make: Make) -> None:
        table = make()
        empty = table.version
        table.apply(changes(ITEMS, item(1)))
        one = table.version
        assert one > empty
        scanned = table.scan()
        table.apply(changes(ITEMS), Position("p", "c", 0))
        table.apply(changes(ITEMS, item(7), deleted=[True]), Position("p", "c", 1))
        if "own" in table.abilities:
            assert table.version == one
            assert table.scan() is scanned
        table.apply(changes(ITEMS, item(1, "x")))
        assert table.version > one

    def test_check_refuses_what_apply_would_refuse(self, make: Make) -> None:
        table = make()
        fitting = table.check(Changes(pa.table({"NAME": ["a"], "id": pa.array([1], pa.int8())})))
        assert fitting.rows.schema == ITEMS.arrow()
        with pytest.raises(InvalidRecord, match='"id"'):
            table.check(changes(ITEMS, item(None)))
        with pytest.raises(InvalidRecord, match='"qty"'):
            table.check(Changes(pa.table({"id": [1], "qty": [2**40]})))
        with pytest.raises(NotSupported):
            make(LOG).check(changes(LOG, item(1), deleted=[True]))
        assert len(table) == 0

    def test_a_closed_table_says_so(self, make: Make) -> None:
        table = make()
        table.close()
        with pytest.raises(Closed):
            table.apply(changes(ITEMS, item(1)))
        with pytest.raises(Closed):
            table.scan()

    def test_many_rows_in_one_apply_and_many_applies_of_one_row(self, make: Make) -> None:
        table = make()
        own = "own" in table.abilities
        count, singles = (100_000, 1000) if own else (20_000, 100)
        ids = list(range(count))
        random.Random(3).shuffle(ids)
        data = pa.table(
            {"id": ids, "Name": [f"n{i}" for i in ids], "qty": pa.array([i % 7 for i in ids], pa.int32())}
        )
        table.apply(Changes(data))
        for i in range(singles):
            table.apply(Changes(data.slice(i * 50, 1).set_column(1, "Name", [["new"]])))
        assert len(table) == count
        assert table.get(["Name"], keys(pa.string(), "new")).num_rows == singles
        found = table.get(["id"], keys(pa.int64(), *range(0, count, 2)))
        assert sorted(found["id"].to_pylist()) == list(range(0, count, 2))
        assert sum(table.scan(["qty"])["qty"].to_pylist()) == sum(i % 7 for i in range(count))
        assert table.scan()["id"].num_chunks < 100
