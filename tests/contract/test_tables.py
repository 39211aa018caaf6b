"""One suite over every backend in millpond/tables, by the contract of millpond/tables/base.py."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millpond.changes import ROW, Changes, Position
from millpond.errors import Closed, InvalidRecord, NotSupported, UnknownName
from millpond.records import to_arrow, to_rows
from millpond.tables import Backend, backend_names, find_backend
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema
from tests.contract.places import EVERY, Place, Places

Make = Callable[..., Backend]

ITEMS = Schema(
    (
        Column("id", pa.int64()),
        Column("Name", pa.string()),
        Column("tier", pa.string()),
        Column("qty", pa.int32()),
    ),
    ("id",),
)
LOG = Schema(ITEMS.columns)
PAIRS = Schema(
    (Column("a", pa.int32()), Column("b", pa.string()), Column("v", pa.float64())),
    ("a", "b"),
)


@pytest.fixture(params=EVERY)
def make(request: pytest.FixtureRequest, places: Places) -> Iterator[Make]:
    """Opens tables of a kind, each in a place of its own unless one is given."""
    opened: list[Backend] = []

    def open_table(schema: Schema = ITEMS, place: Place | None = None, **more: Any) -> Backend:
        table = (place or places.new(request.param)).open("t", schema, **more)
        opened.append(table)
        return table

    yield open_table
    for table in opened:
        table.close()


def changes(schema: Schema, *records: dict[str, Any], deleted: list[bool] | None = None) -> Changes:
    gone = None if deleted is None else pa.array(deleted, pa.bool_())
    return Changes(to_arrow(Schema(schema.columns), list(records), what="the table"), gone)


def item(
    id: int | None, name: str | None = None, tier: str | None = None, qty: int | None = None
) -> dict[str, Any]:
    return {"id": id, "Name": name, "tier": tier, "qty": qty}


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(to_rows(table), key=repr)


def keys(dtype: pa.DataType, *values: Any) -> pa.Table:
    return pa.table({"k": pa.array(values, dtype)})


def by_id(table: Any, *ids: int | None) -> list[dict[str, Any]]:
    return rows(table.get(["id"], keys(pa.int64(), *ids)))


def test_a_new_table_is_empty(make: Make) -> None:
    table = make()
    assert len(table) == 0
    assert table.scan().schema == ITEMS.arrow()
    assert table.scan().num_rows == 0
    assert by_id(table, 1) == []
    assert table.get(["tier"], keys(pa.string(), "GOLD")).schema == ITEMS.arrow()
    assert table.position("p") is None


def test_upsert_last_row_of_a_key_wins(make: Make) -> None:
    table = make()
    assert table.apply(changes(ITEMS, item(1, "a"), item(2, "b"), item(1, "c")))
    assert rows(table.scan()) == [item(1, "c"), item(2, "b")]
    table.apply(changes(ITEMS, item(2, "d"), item(3, "e")))
    assert rows(table.scan()) == [item(1, "c"), item(2, "d"), item(3, "e")]
    assert len(table) == 3


def test_deletes_look_only_at_the_key(make: Make) -> None:
    table = make()
    table.apply(changes(ITEMS, item(1, "a"), item(2, "b")))
    table.apply(changes(ITEMS, item(1), item(9), deleted=[True, True]))
    assert rows(table.scan()) == [item(2, "b")]
    table.apply(Changes(pa.table({"id": pa.array([2], pa.int32())}), pa.array([True])))
    assert len(table) == 0
    assert by_id(table, 1, 2, 9) == []


def test_the_order_of_changes_within_one_apply_counts(make: Make) -> None:
    table = make()
    table.apply(changes(ITEMS, item(1, "a"), item(1), item(2, "x"), deleted=[False, True, False]))
    assert rows(table.scan()) == [item(2, "x")]
    table.apply(changes(ITEMS, item(2), item(2, "y"), deleted=[True, False]))
    assert by_id(table, 2) == [item(2, "y")]


def test_a_key_that_was_deleted_may_come_again(make: Make) -> None:
    table = make()
    for name in "abc":
        table.apply(changes(ITEMS, item(1, name)))
        assert by_id(table, 1) == [item(1, name)]
        table.apply(changes(ITEMS, item(1), deleted=[True]))
        assert by_id(table, 1) == []


def test_without_a_key_every_row_is_kept_in_order(make: Make) -> None:
    table = make(LOG)
    table.apply(changes(LOG, item(1, "a"), item(1, "a")))
    table.apply(changes(LOG, item(None, "b")))
    assert to_rows(table.scan()) == [item(1, "a"), item(1, "a"), item(None, "b")]
    assert by_id(table, 1) == [item(1, "a"), item(1, "a")]
    with pytest.raises(NotSupported):
        table.apply(changes(LOG, item(1), deleted=[True]))


def numbered(*pairs: tuple[int | None, str | None], deleted: list[bool] | None = None) -> Changes:
    """Changes of LOG by row number."""
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


def test_rows_without_a_key_have_numbers_that_are_never_used_again(make: Make) -> None:
    table = make(LOG)
    table.apply(changes(LOG, item(1, "a"), item(1, "b"), item(1, "c")))
    assert names_by_number(table) == [(0, "a"), (1, "b"), (2, "c")]
    table.apply(numbered((2, None), deleted=[True]))
    table.apply(changes(LOG, item(1, "d")))
    assert names_by_number(table) == [(0, "a"), (1, "b"), (3, "d")]


def test_a_row_is_replaced_in_its_place_by_number(make: Make) -> None:
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


def test_a_scan_with_its_numbers_makes_the_same_table(make: Make) -> None:
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


def test_row_numbers_are_refused_where_they_make_no_sense(make: Make) -> None:
    with pytest.raises(NotSupported):
        make().scan(rows=True)
    with pytest.raises(InvalidRecord, match=ROW):
        make().apply(Changes(pa.table({"id": [1], ROW: pa.array([0], pa.int64())})))
    with pytest.raises(InvalidRecord, match="negative"):
        make(LOG).apply(numbered((-1, "a")))
    with pytest.raises(NotSupported):
        make(LOG).apply(numbered((None, "a"), deleted=[True]))


def test_null_in_the_key_is_refused_and_nothing_is_kept(make: Make) -> None:
    table = make()
    before = table.version
    with pytest.raises(InvalidRecord, match=r'row 1 .*"id"') as caught:
        table.apply(changes(ITEMS, item(1, "a"), item(None, "b")), Position("p", "c", 0))
    assert caught.value.row == 1 and caught.value.field == "id"
    assert len(table) == 0 and table.version == before
    assert table.position("p") is None


def test_null_in_a_not_null_column_is_refused_but_for_deletes(make: Make) -> None:
    schema = Schema((Column("id", pa.int64()), Column("v", pa.string(), nullable=False)), ("id",))
    table = make(schema)
    with pytest.raises(InvalidRecord, match=r'row 0 .*"v" is NULL'):
        table.apply(Changes(pa.table({"id": [1], "v": pa.array([None], pa.string())})))
    table.apply(Changes(pa.table({"id": [1], "v": ["x"]})))
    table.apply(Changes(pa.table({"id": [1], "v": pa.array([None], pa.string())}), pa.array([True])))
    assert len(table) == 0


def test_null_keys_of_groups_equal_themselves(make: Make) -> None:
    table = make(PAIRS, null_keys=True)
    assert "null_keys" in table.abilities
    table.apply(changes(PAIRS, {"a": None, "b": "x", "v": 1.0}, {"a": 1, "b": None, "v": 2.0}))
    table.apply(changes(PAIRS, {"a": None, "b": "x", "v": 3.0}))
    assert len(table) == 2
    wanted = pa.table({"a": pa.array([None], pa.int32()), "b": ["x"]})
    assert rows(table.get(["a", "b"], wanted)) == []
    assert rows(table.get(["a", "b"], wanted, nulls=True)) == [{"a": None, "b": "x", "v": 3.0}]


def test_columns_are_found_by_name_in_any_case_and_order(make: Make) -> None:
    table = make()
    table.apply(
        Changes(pa.table({"QTY": pa.array([7], pa.int64()), "ID": pa.array([1], pa.int16()), "name": ["a"]}))
    )
    assert rows(table.scan()) == [item(1, "a", None, 7)]
    assert to_rows(table.scan(["QTY", "id"])) == [{"qty": 7, "id": 1}]
    assert rows(table.get(["NAME"], keys(pa.string(), "a"))) == [item(1, "a", None, 7)]
    with pytest.raises(UnknownName):
        table.scan(["nmae"])
    with pytest.raises(InvalidRecord, match='"nmae"'):
        table.apply(Changes(pa.table({"id": [1], "nmae": ["a"]})))


def test_get_answers_each_row_once(make: Make) -> None:
    table = make()
    table.apply(changes(ITEMS, *(item(i, f"n{i}", "GOLD" if i % 3 else "IRON", i) for i in range(10))))
    assert by_id(table, 3, 3, 5, 99, None) == [item(3, "n3", "IRON", 3), item(5, "n5", "GOLD", 5)]
    assert [r["id"] for r in rows(table.get(["tier"], keys(pa.string(), "IRON", "IRON", None)))] == [
        0,
        3,
        6,
        9,
    ]


@pytest.mark.parametrize(
    "dtype", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint32(), pa.float64()], ids=str
)
def test_get_compares_numbers_of_any_width(make: Make, dtype: pa.DataType) -> None:
    table = make()
    table.apply(changes(ITEMS, *(item(i, f"n{i}", None, i) for i in (1, 2, 3))))
    assert [r["id"] for r in rows(table.get(["id"], keys(dtype, 1, 3, 4)))] == [1, 3]
    assert [r["id"] for r in rows(table.get(["qty"], keys(dtype, 1, 3, 4)))] == [1, 3]


def test_get_with_keys_that_do_not_fit_matches_nothing(make: Make) -> None:
    table = make(PAIRS)
    table.apply(changes(PAIRS, {"a": 1, "b": "x", "v": 1.5}))
    assert table.get(["a"], keys(pa.int64(), 2**40, -(2**62))).num_rows == 0
    assert table.get(["a"], keys(pa.int64(), 2**40, 1)).num_rows == 1
    assert table.get(["a"], keys(pa.float64(), 1.5)).num_rows == 0
    assert table.get(["b"], keys(pa.int64(), 1)).num_rows == 0
    assert table.get(["a"], keys(pa.null(), None)).num_rows == 0
    assert table.get(["b"], keys(pa.dictionary(pa.int32(), pa.string()), "x", "y")).num_rows == 1
    assert table.get(["b"], keys(pa.large_string(), "x")).num_rows == 1


def test_get_by_a_composite_key_in_any_order_and_by_a_part_of_it(make: Make) -> None:
    table = make(PAIRS)
    table.apply(changes(PAIRS, *({"a": a, "b": b, "v": float(a)} for a in (1, 2) for b in "xy")))
    wanted = pa.table({"b": ["x", "y", None, "z"], "a": pa.array([2, 1, 1, 1], pa.int64())})
    found = rows(table.get(["b", "a"], wanted))
    assert [(r["a"], r["b"]) for r in found] == [(1, "y"), (2, "x")]
    assert [(r["a"], r["b"]) for r in rows(table.get(["b"], keys(pa.string(), "y")))] == [(1, "y"), (2, "y")]
    with_value = pa.table({"b": ["x", "x"], "v": [1.0, 7.0]})
    assert [(r["a"], r["b"]) for r in rows(table.get(["b", "v"], with_value))] == [(1, "x")]


def test_indexes_follow_changes(make: Make) -> None:
    table = make()
    model: dict[int, dict[str, Any]] = {}
    chance = random.Random(7)
    for step in range(400 if "own" in table.abilities else 80):
        record = item(chance.randrange(50), f"n{step}", chance.choice("ABC"), chance.randrange(5))
        gone = chance.random() < 0.2
        table.apply(changes(ITEMS, record, deleted=[gone]))
        model.pop(record["id"], None) if gone else model.__setitem__(record["id"], record)
        tier = chance.choice("ABC")
        expected = sorted((r for r in model.values() if r["tier"] == tier), key=repr)
        assert rows(table.get(["tier"], keys(pa.string(), tier))) == expected
        both = pa.table({"tier": [tier], "qty": pa.array([2], pa.int64())})
        assert rows(table.get(["tier", "qty"], both)) == [r for r in expected if r["qty"] == 2]


def test_a_snapshot_stays_as_it_was(make: Make) -> None:
    table = make()
    table.apply(changes(ITEMS, item(1, "a", "A"), item(2, "b", "A")))
    before = table.snapshot()
    table.apply(changes(ITEMS, item(1, "c", "B"), item(3, "d", "A")))
    middle = table.snapshot()
    table.apply(changes(ITEMS, item(1), item(2), deleted=[True, True]))
    if "held" not in table.abilities:
        assert rows(before.scan()) == rows(middle.scan()) == rows(table.scan()) == [item(3, "d", "A")]
        return
    assert rows(before.scan()) == [item(1, "a", "A"), item(2, "b", "A")] and len(before) == 2
    assert by_id(before, 1, 2, 3) == [item(1, "a", "A"), item(2, "b", "A")]
    assert rows(before.get(["tier"], keys(pa.string(), "A"))) == [item(1, "a", "A"), item(2, "b", "A")]
    assert by_id(middle, 1, 2, 3) == [item(1, "c", "B"), item(2, "b", "A"), item(3, "d", "A")]
    assert rows(table.scan()) == [item(3, "d", "A")]


def test_a_snapshot_may_be_asked_for_by_commit(make: Make) -> None:
    table = make()
    if "commits" not in table.abilities:
        with pytest.raises(NotSupported, match="earlier commits"):
            table.snapshot(commit=0)
        return
    for commit in (3, 5, 9):
        table.apply(changes(ITEMS, item(commit, "x"), item(1, f"at {commit}")), commit=commit)
    assert len(table.snapshot(commit=2)) == 0
    for commit, newest in ((3, 3), (4, 3), (5, 5), (8, 5), (9, 9), (100, 9)):
        assert by_id(table.snapshot(commit=commit), 1) == [item(1, f"at {newest}")]
    assert len(table.snapshot(commit=5)) == 3


def test_snapshots_hold_through_many_updates_of_the_same_keys(make: Make) -> None:
    table = make()
    held: list[tuple[int, Any]] = []
    steps = 300 if "own" in table.abilities else 120
    for step in range(steps):
        table.apply(
            Changes(pa.table({"id": range(100), "qty": pa.array([step] * 100, pa.int32())})), commit=step
        )
        if step % 50 == 0 and "held" in table.abilities:
            held.append((step, table.snapshot()))
    for step, snapshot in held:
        assert set(snapshot.scan(["qty"])["qty"].to_pylist()) == {step}
        assert {r["qty"] for r in by_id(snapshot, *range(100))} == {step}
        assert snapshot.get(["qty"], keys(pa.int64(), step)).num_rows == 100
        assert len(snapshot) == snapshot.scan().num_rows == 100
    for commit in (299, 298, 290, 250) if "commits" in table.abilities else ():
        assert set(table.snapshot(commit=commit).scan(["qty"])["qty"].to_pylist()) == {commit}


def test_a_position_is_applied_once(make: Make) -> None:
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


def test_the_version_grows_when_rows_change_and_scans_are_kept(make: Make) -> None:
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


def test_check_refuses_what_apply_would_refuse(make: Make) -> None:
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


def test_a_snapshot_knows_its_version(make: Make) -> None:
    table = make()
    before = table.snapshot()
    table.apply(changes(ITEMS, item(1)))
    assert before.version < table.snapshot().version == table.version


def test_a_closed_table_says_so(make: Make) -> None:
    table = make()
    table.close()
    with pytest.raises(Closed):
        table.apply(changes(ITEMS, item(1)))
    with pytest.raises(Closed):
        table.scan()


NOON = datetime(2024, 5, 6, 12, 30, 1, 250)
TYPED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 127]),
    (pa.int16(), [-(2**15), 2**15 - 1]),
    (pa.int32(), [-(2**31), 2**31 - 1]),
    (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.float32(), [0.5, -1.25]),
    (pa.float64(), [0.1, float("inf")]),
    (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001")]),
    (pa.string(), ["", "žluťoučký 🐎"]),
    (pa.binary(), [b"", b"\x00\xff"]),
    (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    (TIMESTAMP, [NOON.replace(tzinfo=UTC), datetime(1900, 1, 1, tzinfo=UTC)]),
    (TIMESTAMP_NTZ, [NOON, datetime(1900, 1, 1)]),
    (pa.duration("us"), [timedelta(days=-3, microseconds=1), timedelta(seconds=5)]),
    (pa.list_(pa.field("element", pa.int32())), [[], [1, None, 3]]),
    (
        pa.struct(
            [pa.field("x", pa.decimal128(5, 2)), pa.field("y", pa.list_(pa.field("element", pa.string())))]
        ),
        [{"x": Decimal("1.50"), "y": ["a", None]}, {"x": None, "y": None}],
    ),
]
MAPS = (pa.map_(pa.string(), TIMESTAMP), [{}, {"a": NOON.replace(tzinfo=UTC), "b": None}])


@pytest.mark.parametrize(
    ("dtype", "values"), [*TYPED, MAPS], ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
)
def test_values_of_every_type_come_back_as_they_were(
    make: Make, dtype: pa.DataType, values: list[Any]
) -> None:
    schema = Schema((Column("id", pa.int32()), Column("v", dtype)), ("id",))
    table = make(schema)
    records = [{"id": i, "v": v} for i, v in enumerate([*values, None])]
    table.apply(changes(schema, *records))
    assert to_rows(table.scan()) == records
    assert table.scan().schema == schema.arrow()
    for record in records:
        assert rows(table.get(["id"], keys(pa.int64(), record["id"]))) == [record]


@pytest.mark.parametrize(
    ("dtype", "values"), TYPED, ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
)
def test_every_type_may_be_a_key_and_be_looked_up(make: Make, dtype: pa.DataType, values: list[Any]) -> None:
    schema = Schema((Column("k", dtype), Column("v", pa.int32())), ("k",))
    table = make(schema)
    for v in range(3):
        table.apply(changes(schema, *({"k": k, "v": v} for k in values)))
    assert len(table) == len(values)
    for k in values:
        found = table.get(["k"], to_arrow(Schema(schema.columns[:1]), [{"k": k}], what="keys"))
        assert to_rows(found) == [{"k": k, "v": 2}]
    other = make(Schema(schema.columns))
    other.apply(changes(schema, *({"k": k, "v": 0} for k in values)))
    found = other.get(
        ["k"], to_arrow(Schema(schema.columns[:1]), [{"k": values[0]}, {"k": None}], what="keys")
    )
    assert to_rows(found) == [{"k": values[0], "v": 0}]


def test_times_of_other_units_and_floats_with_nan_are_keys(make: Make) -> None:
    schema = Schema((Column("t", TIMESTAMP), Column("f", pa.float64())), ("f",))
    table = make(schema)
    nan = float("nan")
    table.apply(changes(schema, {"t": NOON, "f": nan}, {"t": NOON, "f": nan}, {"t": None, "f": 0.0}))
    table.apply(changes(schema, {"t": NOON, "f": -0.0}))
    assert len(table) == 2
    assert table.get(["f"], keys(pa.float64(), nan, 0.0)).num_rows == 2
    nanos = pa.timestamp("ns", "UTC")
    moment = pa.array([NOON], TIMESTAMP).cast(nanos)
    odd = pa.array([moment[0].value + 1], pa.int64()).cast(nanos)
    assert table.get(["t"], pa.table({"t": pa.concat_arrays([moment, odd])})).num_rows == 2
    assert table.get(["t"], pa.table({"t": odd})).num_rows == 0


def test_many_rows_in_one_apply_and_many_applies_of_one_row(make: Make) -> None:
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


def test_readers_see_whole_commits_while_a_writer_goes_on(make: Make) -> None:
    """Every commit writes one step number to all 200 keys, and moves ten keys between two tiers."""
    table = make()
    size = 200

    def batch(step: int) -> Changes:
        tiers = ["hot" if (i + step) % 20 == 0 else "cold" for i in range(size)]
        return Changes(
            pa.table(
                {"id": range(size), "Name": [str(step)] * size, "tier": tiers, "qty": pa.array([step] * size)}
            )
        )

    table.apply(batch(0))
    stop = threading.Event()
    wrong: list[str] = []
    seen = [0] * 4

    def read(me: int) -> None:
        chance = random.Random(me)
        while not stop.is_set() or not seen[me]:
            snapshot = table.snapshot()
            scanned = set(snapshot.scan(["qty"])["qty"].to_pylist())
            some = [chance.randrange(size) for _ in range(20)]
            looked_up = {r["qty"] for r in by_id(snapshot, *some)}
            hot = snapshot.get(["tier"], keys(pa.string(), "hot"))
            reads = [scanned, looked_up, set(hot["qty"].to_pylist())]
            steps = max(reads, key=len) if "held" not in table.abilities else set.union(*reads)
            if len(steps) != 1 or hot.num_rows != size // 20 or len(snapshot) != size:
                wrong.append(f"steps {steps}, {hot.num_rows} hot rows, {len(snapshot)} rows")
            seen[me] += 1

    readers = [threading.Thread(target=read, args=(i,)) for i in range(4)]
    for reader in readers:
        reader.start()
    for step in range(1, 300 if "own" in table.abilities else 60):
        table.apply(batch(step))
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert min(seen) > 0


def test_backends_are_found_by_name() -> None:
    assert find_backend("memory") is find_backend("inMemory") is find_backend("INMEMORY")
    with pytest.raises(UnknownName, match='"memroy"') as caught:
        find_backend("memroy")
    assert "memory" in (caught.value.hint or "")


def test_a_backend_that_is_only_planned_is_named() -> None:
    names = backend_names()
    for planned in ("cache", "sqlite", "postgresql", "mysql", "mongodb", "redis", "delta"):
        if planned not in names:
            with pytest.raises(NotSupported, match=planned):
                find_backend(planned)


@pytest.mark.parametrize("key", [("id",), ()])
def test_columns_are_added(make: Make, key: tuple[str, ...]) -> None:
    table = make(Schema(ITEMS.columns, key))
    table.apply(Changes(to_arrow(table.schema, [{"id": i, "Name": f"n{i}"} for i in range(5)], what="rows")))
    before, version = table.snapshot(), table.version
    more = Column("Seen", pa.list_(pa.field("element", pa.string())))
    wide = Schema((ITEMS.columns[0], more, *ITEMS.columns[1:]), key)
    if "widen" not in table.abilities:
        with pytest.raises(NotSupported):
            table.widen(wide)
        return
    table.widen(wide)
    assert "Seen" not in before.scan().column_names and table.version >= version
    table.apply(Changes(to_arrow(wide, [{"id": 9, "Seen": ["a"]}, {"id": 1, "Name": "x"}], what="rows")))
    rows = {r["id"]: (r["Seen"], r["Name"]) for r in to_rows(table.scan())}
    assert rows[9] == (["a"], None) and rows[3] == (None, "n3") and rows[1] == (None, "x")
    assert len(table) == (6 if key else 7)
    found = table.get(["Name"], pa.table({"Name": ["n4"]}))
    assert found["id"].to_pylist() == [4] and found.column_names == list(wide.names)
    if not key:
        assert sorted(table.scan(rows=True)[ROW].to_pylist()) == list(range(7))
