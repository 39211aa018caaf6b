"""Tests what a table answers: rows by key, by other columns, as of a snapshot, with every type."""

from __future__ import annotations

import math
import random
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millpond.changes import Changes
from millpond.errors import NotSupported
from millpond.records import to_arrow, to_rows
from millpond.testing.contracts.rows import (
    ITEMS,
    PAIRS,
    Make,
    TableSuite,
    by_id,
    changes,
    item,
    keys,
    rows,
)
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema

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


def stored(table: Any, values: list[Any]) -> list[Any]:
    """Returns those of the values that the table stores: one without the ability has no NaN and no infinities."""
    every = "every_float" in table.abilities
    return [v for v in values if every or not isinstance(v, float) or math.isfinite(v)]


class ReadsSuite(TableSuite):
    """Tests what is read, also while others write."""

    def test_get_answers_each_row_once(self, make: Make) -> None:
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
    def test_get_compares_numbers_of_any_width(self, make: Make, dtype: pa.DataType) -> None:
        table = make()
        table.apply(changes(ITEMS, *(item(i, f"n{i}", None, i) for i in (1, 2, 3))))
        assert [r["id"] for r in rows(table.get(["id"], keys(dtype, 1, 3, 4)))] == [1, 3]
        assert [r["id"] for r in rows(table.get(["qty"], keys(dtype, 1, 3, 4)))] == [1, 3]

    def test_get_with_keys_that_do_not_fit_matches_nothing(self, make: Make) -> None:
        table = make(PAIRS)
        table.apply(changes(PAIRS, {"a": 1, "b": "x", "v": 1.5}))
        assert table.get(["a"], keys(pa.int64(), 2**40, -(2**62))).num_rows == 0
        assert table.get(["a"], keys(pa.int64(), 2**40, 1)).num_rows == 1
        assert table.get(["a"], keys(pa.float64(), 1.5)).num_rows == 0
        assert table.get(["b"], keys(pa.int64(), 1)).num_rows == 0
        assert table.get(["a"], keys(pa.null(), None)).num_rows == 0
        assert table.get(["b"], keys(pa.dictionary(pa.int32(), pa.string()), "x", "y")).num_rows == 1
        assert table.get(["b"], keys(pa.large_string(), "x")).num_rows == 1

    def test_get_by_a_composite_key_in_any_order_and_by_a_part_of_it(self, make: Make) -> None:
        table = make(PAIRS)
        table.apply(changes(PAIRS, *({"a": a, "b": b, "v": float(a)} for a in (1, 2) for b in "xy")))
        wanted = pa.table({"b": ["x", "y", None, "z"], "a": pa.array([2, 1, 1, 1], pa.int64())})
        found = rows(table.get(["b", "a"], wanted))
        assert [(r["a"], r["b"]) for r in found] == [(1, "y"), (2, "x")]
        assert [(r["a"], r["b"]) for r in rows(table.get(["b"], keys(pa.string(), "y")))] == [
            (1, "y"),
            (2, "y"),
        ]
        with_value = pa.table({"b": ["x", "x"], "v": [1.0, 7.0]})
        assert [(r["a"], r["b"]) for r in rows(table.get(["b", "v"], with_value))] == [(1, "x")]

    def test_indexes_follow_changes(self, make: Make) -> None:
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

    def test_a_snapshot_stays_as_it_was(self, make: Make) -> None:
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

    def test_a_snapshot_may_be_asked_for_by_commit(self, make: Make) -> None:
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

    def test_snapshots_hold_through_many_updates_of_the_same_keys(self, make: Make) -> None:
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

    def test_a_snapshot_knows_its_version(self, make: Make) -> None:
        table = make()
        before = table.snapshot()
        table.apply(changes(ITEMS, item(1)))
        assert before.version < table.snapshot().version == table.version

    @pytest.mark.parametrize(
        ("dtype", "values"), [*TYPED, MAPS], ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
    )
    def test_values_of_every_type_come_back_as_they_were(
        self, make: Make, dtype: pa.DataType, values: list[Any]
    ) -> None:
        schema = Schema((Column("id", pa.int32()), Column("v", dtype)), ("id",))
        table = make(schema)
        records = [{"id": i, "v": v} for i, v in enumerate([*stored(table, values), None])]
        table.apply(changes(schema, *records))
        assert to_rows(table.scan()) == records
        assert table.scan().schema == schema.arrow()
        for record in records:
            assert rows(table.get(["id"], keys(pa.int64(), record["id"]))) == [record]

    @pytest.mark.parametrize(
        ("dtype", "values"), TYPED, ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
    )
    def test_every_type_may_be_a_key_and_be_looked_up(
        self, make: Make, dtype: pa.DataType, values: list[Any]
    ) -> None:
        schema = Schema((Column("k", dtype), Column("v", pa.int32())), ("k",))
        table = make(schema)
        values = stored(table, values)
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

    def test_times_of_other_units_and_floats_with_nan_are_keys(self, make: Make) -> None:
        schema = Schema((Column("t", TIMESTAMP), Column("f", pa.float64())), ("f",))
        table = make(schema)
        nan = float("nan") if "every_float" in table.abilities else 0.5
        table.apply(changes(schema, {"t": NOON, "f": nan}, {"t": NOON, "f": nan}, {"t": None, "f": 0.0}))
        table.apply(changes(schema, {"t": NOON, "f": -0.0}))
        assert len(table) == 2
        assert table.get(["f"], keys(pa.float64(), nan, 0.0)).num_rows == 2
        nanos = pa.timestamp("ns", "UTC")
        timestamp = pa.array([NOON], TIMESTAMP).cast(nanos)
        odd = pa.array([timestamp[0].value + 1], pa.int64()).cast(nanos)
        assert table.get(["t"], pa.table({"t": pa.concat_arrays([timestamp, odd])})).num_rows == 2
        assert table.get(["t"], pa.table({"t": odd})).num_rows == 0

    def test_readers_see_whole_commits_while_a_writer_goes_on(self, make: Make) -> None:
        """Checks reads while each commit writes one step number to all 200 keys, and moves ten between two tiers."""
        table = make()
        size = 200

        def batch(step: int) -> Changes:
            tiers = ["hot" if (i + step) % 20 == 0 else "cold" for i in range(size)]
            return Changes(
                pa.table(
                    {
                        "id": range(size),
                        "Name": [str(step)] * size,
                        "tier": tiers,
                        "qty": pa.array([step] * size),
                    }
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
