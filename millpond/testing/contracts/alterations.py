"""Tests what every table promises about changes of its columns."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from millpond.alterations import (
    AddedColumn,
    DroppedColumn,
    RenamedColumn,
    RetypedColumn,
    TableChange,
    WidenedColumns,
)
from millpond.changes import ROW, Changes
from millpond.errors import NotSupported
from millpond.records import to_arrow, to_rows
from millpond.testing.contracts.rows import (
    ITEMS,
    Make,
    TablePlace,
    TableSuite,
    by_id,
    changes,
    item,
    keys,
    rows,
)
from millpond.types import Column, Schema

NOTE = Column("note", pa.string())


def added(column: Column, value: object = None) -> AddedColumn:
    return AddedColumn(column, pa.array([value], column.type))


class AlterationsSuite(TableSuite):
    """Tests a table with the ability ``alter``; others refuse."""

    @pytest.mark.parametrize("change", [added(NOTE), DroppedColumn("qty")])
    def test_a_table_without_the_ability_refuses(self, make: Make, change: TableChange) -> None:
        table = make()
        if "alter" not in table.abilities:
            with pytest.raises(NotSupported):
                table.alter(change)

    @pytest.mark.parametrize("key", [("id",), ()])
    def test_columns_are_added_anywhere(self, make: Make, key: tuple[str, ...]) -> None:
        table = make(Schema(ITEMS.columns, key))
        if "widen" not in table.abilities:
            return
        first = [{"id": i, "Name": f"n{i}"} for i in range(5)]
        table.apply(Changes(to_arrow(table.schema, first, what="rows")))
        before, version = table.snapshot(), table.version
        more = Column("Seen", pa.list_(pa.field("element", pa.string())))
        wide = Schema((ITEMS.columns[0], more, *ITEMS.columns[1:]), key)
        table = table.alter(WidenedColumns(wide))
        assert "Seen" not in before.scan().column_names and table.version >= version
        table.apply(Changes(to_arrow(wide, [{"id": 9, "Seen": ["a"]}, {"id": 1, "Name": "x"}], what="rows")))
        found = {r["id"]: (r["Seen"], r["Name"]) for r in to_rows(table.scan())}
        assert found[9] == (["a"], None) and found[3] == (None, "n3") and found[1] == (None, "x")
        assert len(table) == (6 if key else 7)
        named = table.get(["Name"], pa.table({"Name": ["n4"]}))
        assert named["id"].to_pylist() == [4] and named.column_names == list(wide.names)
        if not key:
            assert sorted(table.scan(rows=True)[ROW].to_pylist()) == list(range(7))

    def test_a_column_is_added_with_a_value_or_null(self, make: Make) -> None:
        table = make()
        if "alter" not in table.abilities:
            return
        table.apply(changes(ITEMS, item(1, "a"), item(2, "b")))
        table = table.alter(added(NOTE))
        table = table.alter(added(Column("n", pa.int64()), 7))
        table.apply(Changes(to_arrow(table.schema, [{"id": 2, "note": "x"}, {"id": 3, "n": 1}], what="rows")))
        found = {r["id"]: (r["Name"], r["note"], r["n"]) for r in to_rows(table.scan())}
        assert found == {1: ("a", None, 7), 2: (None, "x", None), 3: (None, None, 1)}
        assert table.schema.names == (*ITEMS.names, "note", "n") and len(table) == 3
        assert [r["id"] for r in rows(table.get(["n"], keys(pa.int64(), 7)))] == [1]

    def test_a_column_is_renamed_and_its_name_used_again(self, make: Make) -> None:
        table = make()
        if "alter" not in table.abilities:
            return
        table.apply(changes(ITEMS, item(1, "a", "t"), item(2, "b")))
        assert table.get(["Name"], keys(pa.string(), "a")).num_rows == 1
        table = table.alter(RenamedColumn("name", "title")).alter(added(Column("Name", pa.string())))
        table.apply(Changes(to_arrow(table.schema, [{"id": 3, "title": "c", "Name": "a"}], what="rows")))
        found = {r["id"]: (r["title"], r["Name"]) for r in to_rows(table.scan())}
        assert found == {1: ("a", None), 2: ("b", None), 3: ("c", "a")}
        assert [r["id"] for r in rows(table.get(["name"], keys(pa.string(), "a")))] == [3]
        assert [r["id"] for r in rows(table.get(["title"], keys(pa.string(), "a")))] == [1]
        table = table.alter(RenamedColumn("id", "number"))
        assert table.schema.key == ("number",)
        table.apply(Changes(to_arrow(table.schema, [{"number": 1, "title": "z"}], what="rows")))
        assert {r["number"]: r["title"] for r in to_rows(table.scan())} == {1: "z", 2: "b", 3: "c"}

    def test_a_dropped_column_does_not_come_back(self, make: Make) -> None:
        table = make()
        if "alter" not in table.abilities:
            return
        table.apply(changes(ITEMS, item(1, "a", "t", 1), item(2, "b", "u", 2)))
        assert table.get(["tier"], keys(pa.string(), "t")).num_rows == 1
        table = table.alter(DroppedColumn("Name")).alter(DroppedColumn("tier"))
        assert table.scan().column_names == ["id", "qty"] and table.schema.names == ("id", "qty")
        assert [r["id"] for r in rows(table.get(["qty"], keys(pa.int32(), 2)))] == [2]
        table = table.alter(added(Column("tier", pa.string())))
        assert rows(table.scan()) == [
            {"id": 1, "qty": 1, "tier": None},
            {"id": 2, "qty": 2, "tier": None},
        ]
        table.apply(Changes(pa.table({"id": [1]}), pa.array([True])))
        assert len(table) == 1

    @pytest.mark.parametrize("key", [("id",), ()])
    def test_integers_get_a_wider_type(self, make: Make, key: tuple[str, ...]) -> None:
        table = make(Schema(ITEMS.columns, key))
        if "alter" not in table.abilities:
            return
        table.apply(changes(ITEMS, item(1, qty=5), item(2), item(3, qty=-7)))
        table = table.alter(RetypedColumn("qty", pa.int64()))
        table.apply(Changes(to_arrow(table.schema, [{"id": 4, "qty": 1 << 40}], what="rows")))
        assert sorted((r["id"], r["qty"]) for r in to_rows(table.scan()))[2:] == [(3, -7), (4, 1 << 40)]
        assert table.scan().schema.field("qty").type == pa.int64()
        assert rows(table.get(["qty"], keys(pa.int64(), 5)))[0]["id"] == 1

    def test_a_table_is_opened_again_with_its_new_columns(
        self, make: Make, new_place: Callable[[], TablePlace]
    ) -> None:
        place = new_place()
        table = make(place=place)
        if not {"alter", "lasting"} <= table.abilities:
            return
        table.apply(changes(ITEMS, item(1, "a", "t", 1)))
        change = RenamedColumn("Name", "title")
        after = table.alter(change).alter(DroppedColumn("tier")).alter(added(NOTE, "x"))
        schema = after.schema
        again = make(schema, place)
        assert rows(again.scan()) == [{"id": 1, "title": "a", "qty": 1, "note": "x"}]
        # A change that was made before does nothing.
        assert rows(again.alter(AddedColumn(NOTE, pa.array(["y"]))).scan())[0]["note"] == "x"

    @pytest.mark.parametrize("key", [("id",), ()])
    def test_snapshots_do_not_change(self, make: Make, key: tuple[str, ...]) -> None:
        table = make(Schema(ITEMS.columns, key))
        if not {"alter", "held"} <= table.abilities:
            return
        table.apply(changes(ITEMS, item(1, "a", "t", 1), item(2, "b")))
        before = table.snapshot()
        if table.database is not None:
            before.scan()  # a lock of the reader would hold up a server
            return
        for change in (added(NOTE), DroppedColumn("Name"), RenamedColumn("tier", "Name")):
            table = table.alter(change)
            table.apply(Changes(to_arrow(table.schema, [{"id": 1, "qty": 9}], what="rows")))
        assert [r["Name"] for r in to_rows(before.scan())] == ["a", "b"] and len(before) == 2
        assert before.get(["Name"], keys(pa.string(), "b"))["id"].to_pylist() == [2]
        assert by_id(before, 1)[0] == item(1, "a", "t", 1)
