"""Single rows by the short way give what the long way gives: random changes against a dict, and threads."""

from __future__ import annotations

import contextlib
import random
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from millpond import App, Table
from millpond.errors import Closed, InvalidRecord
from millpond.tables._storage import RowStorage
from millpond.testing.crash import crash

COLUMNS = (
    "id INT, code STRING, n BIGINT, x DOUBLE, d DECIMAL(30,2), t STRING, ok BOOLEAN, PRIMARY KEY (id, code)"
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-(2**63), 2**63 - 1),
    "x": st.floats(allow_nan=False),
    "d": st.decimals(-(10**20), 10**20, places=2, allow_nan=False),
    "t": st.sampled_from(["", "a", "žluť", "GOLD"]),
    "ok": st.booleans(),
}
keys = st.tuples(st.integers(0, 3), st.sampled_from(["x", "y"]))
fields = st.fixed_dictionaries({}, optional={k: st.one_of(st.none(), v) for k, v in FIELDS.items()})


class SingleRows(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        with mock.patch.object(RowStorage, "kept_commits", 2):
            self.table = Table(COLUMNS)
        for name, value in (("idle_dead", 3), ("piece", 2), ("kept_commits", 2)):
            setattr(self.table._backend.storage, name, value)
        self.model: dict[tuple[int, str], dict[str, Any]] = {}
        self.held: list[tuple[Any, dict[tuple[int, str], dict[str, Any]]]] = []

    @rule(key=keys, record=fields)
    def insert(self, key: tuple[int, str], record: dict[str, Any]) -> None:
        full = {"id": key[0], "code": key[1], **dict.fromkeys(FIELDS), **record}
        self.table.insert({"id": key[0], "code": key[1], **record})
        self.model[key] = full

    @rule(records=st.lists(st.tuples(keys, fields), max_size=4))
    def bulk_insert(self, records: list[tuple[tuple[int, str], dict[str, Any]]]) -> None:
        self.table.bulk_insert([{"id": k[0], "code": k[1], **r} for k, r in records])
        for key, record in records:
            self.model[key] = {"id": key[0], "code": key[1], **dict.fromkeys(FIELDS), **record}

    @rule(key=keys, record=fields)
    def update(self, key: tuple[int, str], record: dict[str, Any]) -> None:
        count = self.table.update({"id": key[0], "code": key[1]}, record)
        assert count == (key in self.model)
        if key in self.model:
            self.model[key] = {**self.model[key], **record}

    @rule(key=keys, by_name=st.booleans())
    def delete(self, key: tuple[int, str], by_name: bool) -> None:
        count = self.table.delete(id=key[0], code=key[1]) if by_name else self.table.delete(key)
        assert count == (self.model.pop(key, None) is not None)

    @rule()
    def hold(self) -> None:
        self.held = [*self.held[-2:], (self.table.snapshot(), dict(self.model))]

    @rule(wanted=st.lists(keys, max_size=20))
    def join(self, wanted: list[tuple[int, str]]) -> None:
        for view, model in [(self.table, self.model), *self.held]:
            expected = sorted((model[k] for k in set(wanted) if k in model), key=repr)
            assert sorted(view.find_rows_for_join(("id", "code"), wanted), key=repr) == expected
            some = {k[0] for k in wanted}
            found = view.find_rows_for_join("id", sorted(some))
            assert sorted(found, key=repr) == sorted((r for k, r in model.items() if k[0] in some), key=repr)

    @invariant()
    def reads_are_right(self) -> None:
        for view, model in [(self.table, self.model), *self.held]:
            assert sorted(view.all_rows(), key=repr) == sorted(model.values(), key=repr)
            assert len(view) == len(model)
            for key in [(a, b) for a in range(4) for b in "xy"]:
                assert view.get_record(key) == model.get(key)
                assert view.contains(key) == (key in model)


def test_single_rows_behave_as_a_dict() -> None:
    run_state_machine_as_test(
        SingleRows, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )


MOMENT = datetime(2024, 5, 6, 12, 30, 1, 250, tzinfo=UTC)
TYPED: list[tuple[str, Any, Any]] = [
    ("BOOLEAN", True, True),
    ("TINYINT", -128, -128),
    ("SMALLINT", 2**15 - 1, 2**15 - 1),
    ("BIGINT", -(2**63), -(2**63)),
    ("FLOAT", 0.5, 0.5),
    ("DOUBLE", 3, 3.0),
    ("DECIMAL(5,2)", "1.5", Decimal("1.50")),
    ("DECIMAL(18,0)", -(10**18) + 1, Decimal(-(10**18) + 1)),
    ("DECIMAL(38,10)", Decimal("-1234567890123456789012345678.0123456789"), None),
    ("STRING", "žluťoučký 🐎", None),
    ("BINARY", b"\x00\xff", None),
    ("DATE", "0001-01-01", date(1, 1, 1)),
    ("DATE", date(9999, 12, 31), None),
    ("TIMESTAMP", MOMENT, None),
    ("TIMESTAMP", "1900-01-01 00:00:00.000001", datetime(1900, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    ("TIMESTAMP_NTZ", MOMENT.replace(tzinfo=None), None),
    ("INTERVAL DAY TO SECOND", timedelta(days=-3, microseconds=1), None),
    ("ARRAY<INT>", [1, None, 3], None),
    ("MAP<STRING, DOUBLE>", {"a": 1.5}, None),
    ("STRUCT<a: INT, b: ARRAY<STRING>>", {"a": 1, "b": ["x"]}, None),
]


@pytest.mark.parametrize(("dtype", "given", "expected"), TYPED)
def test_every_type_goes_in_and_out_one_by_one(dtype: str, given: Any, expected: Any) -> None:
    expected = given if expected is None else expected
    table = Table({"id": "INT", "v": dtype}, key="id")
    for i in range(3):
        table.insert({"id": i, "v": given})
    table.insert({"id": 3, "v": None})
    assert table.update({"id": 1}, {"v": None}) == 1 and table.update({"id": 3}, {"v": given}) == 1
    table.insert({"ID": 4, "V": given})
    records = [{"id": i, "v": None if i == 1 else expected} for i in range(5)]
    assert [table.get_record(i) for i in range(5)] == records
    assert sorted(table.all_rows(), key=lambda r: r["id"]) == records
    assert table.to_arrow().schema == table.schema.arrow()
    plain = Table({"v": dtype})
    for value in (given, None, given):
        plain.insert({"v": value})
    assert plain.all_rows() == [{"v": expected}, {"v": None}, {"v": expected}]


def test_what_does_not_fit_is_refused_by_the_short_way_too() -> None:
    table = Table("id INT PRIMARY KEY, n INT, t STRING NOT NULL")
    table.insert({"id": 1, "n": 1, "t": "a"})
    for wrong in (
        {"id": 1, "n": 2**31, "t": "a"},
        {"id": 1, "n": 1.5, "t": "a"},
        {"id": 1, "n": True, "t": "a"},
        {"id": None, "n": 1, "t": "a"},
        {"n": 1, "t": "a"},
        {"id": 1, "n": 1, "t": None},
        {"id": 1, "n": 1, "t": "\ud800"},
        {"id": 1, "n": 1, "t": "a", "x": 1},
        {"id": 1, "ID": 1, "t": "a"},
    ):
        with pytest.raises(InvalidRecord):
            table.insert(wrong)
    for wrong in ({"n": 2**31}, {"t": None}, {"x": 1}):
        with pytest.raises(InvalidRecord):
            table.update({"id": 1}, wrong)
    assert table.all_rows() == [{"id": 1, "n": 1, "t": "a"}]
    assert table.update({"id": 1}, {"id": 2, "n": 5}) == 1
    assert table.all_rows() == [{"id": 2, "n": 5, "t": "a"}]


def test_keys_of_other_kinds_are_looked_up_by_value() -> None:
    table = Table("id INT PRIMARY KEY, v INT")
    table.insert({"id": 1, "v": 2})
    assert table.get_record(1) == {"id": 1, "v": 2}
    for strange in ([1], {"a": 1}, object(), 2**40):
        with contextlib.suppress(InvalidRecord):
            assert table.get_record(strange) is None
    table._backend.close()
    for read in (table.get_record, table.contains):
        with pytest.raises(Closed):
            read(1)


def test_many_texts_repeated_or_not() -> None:
    table = Table("id INT PRIMARY KEY, same STRING, other STRING")
    data = pa.table(
        {
            "id": range(50_000),
            "same": [None if i % 11 == 0 else f"s{i % 7}" for i in range(50_000)],
            "other": [None if i % 13 == 0 else f"text {i}" for i in range(50_000)],
        }
    )
    table.bulk_insert(data.slice(0, 20_000))
    for i in range(20_000, 20_100):
        table.insert(data.slice(i, 1).to_pylist()[0])
    table.bulk_insert(data.slice(20_100))
    for i in (0, 1, 11, 13, 999, 19_999, 20_000, 20_050, 20_100, 49_999):
        assert table.get_record(i) == data.slice(i, 1).to_pylist()[0]
    assert (
        table.to_arrow()
        .sort_by("id")
        .combine_chunks()
        .equals(data.cast(table.schema.arrow()).combine_chunks())
    )
    assert table.find_rows_for_join("other", ["text 20050", "text 7", "text 13"]) == [
        {"id": 7, "same": "s0", "other": "text 7"},
        {"id": 20050, "same": "s2", "other": "text 20050"},
    ]
    copy = table.clone()
    assert len(copy) == 50_000 and copy.get_record(20_050) == table.get_record(20_050)


def test_readers_of_single_keys_never_see_half_a_commit() -> None:
    """Every commit writes its number to all keys, or deletes them all: what is read later is never older."""
    table = Table("id INT PRIMARY KEY, step INT")
    size, steps = 300, 150
    table.bulk_insert([{"id": i, "step": 0} for i in range(size)])
    stop = threading.Event()
    wrong: list[tuple[int, int]] = []
    reads = [0, 0]

    def read(me: int) -> None:
        order = range(size) if me else range(size - 1, -1, -1)
        while not stop.is_set():
            newest = -1
            for i in order:
                record = table.get_record(i)
                # In the odd steps there is no row: the number that is seen next is the next even one.
                if record is not None:
                    if record["step"] < newest:
                        wrong.append((newest, record["step"]))
                    newest = record["step"]
                reads[me] += 1

    readers = [threading.Thread(target=read, args=(i,)) for i in range(2)]
    for reader in readers:
        reader.start()
    for step in range(1, steps):
        if step % 2:
            assert table.bulk_delete(list(range(size))) == size
        else:
            table.bulk_insert([{"id": i, "step": step} for i in range(size)])
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong and min(reads) > 0


ALL_TYPES = (
    "id INT, code STRING, n BIGINT, s SMALLINT, x DOUBLE, f FLOAT, d DECIMAL(30,2), e DECIMAL(9,3), t STRING,"
    " ok BOOLEAN, day DATE, at TIMESTAMP, naive TIMESTAMP_NTZ, raw BINARY, tags ARRAY<STRING>, PRIMARY KEY (id, code)"
)
VALUES: dict[str, list[Any]] = {
    "n": [0, -(2**63), None],
    "s": [7, None],
    "x": [1.5, -0.0, None],
    "f": [0.25, None],
    "d": [Decimal("12345678901234567890.12"), "-0.01", None],
    "e": [Decimal("-123456.789"), 5, None],
    "t": ["žluť", "", None],
    "ok": [True, False, None],
    "day": [date(1969, 12, 31), "2024-02-29", None],
    "at": [datetime(2024, 2, 29, 12, tzinfo=UTC), None],
    "naive": [datetime(1901, 1, 1, 0, 0, 0, 5), None],
    "raw": [b"\x00\xff", None],
    "tags": [["a", None], None],
}


@pytest.mark.parametrize("durability", ["commit", "batch", "none"])
def test_single_rows_of_an_app_are_those_of_a_table_alone(tmp_path: Path, durability: str) -> None:
    """Every change is done to both; what is kept is there again after a crash."""
    chance = random.Random(8)
    alone = Table(ALL_TYPES)
    sql = f"CREATE TABLE t ({ALL_TYPES}) WITH ('durability' = '{durability}'); CREATE TABLE log (n INT);"
    app = App(sql, state=tmp_path / "state")
    for step in range(120):
        if step % 40 == 39:
            crash(app)
            app = App(sql, state=tmp_path / "state")
            if durability == "none":
                assert app.table("t").all_rows() == []
                app.table("t").bulk_insert(alone.to_arrow())
        kept = app.table("t")
        key = {"id": chance.randrange(4), "code": chance.choice("ab")}
        fields = {k: chance.choice(v) for k, v in VALUES.items() if chance.random() < 0.4}
        match chance.randrange(3):
            case 0:
                alone.insert({**key, **fields})
                kept.insert({**key, **fields})
            case 1:
                assert alone.update(key, fields) == kept.update(key, fields)
            case _:
                assert alone.delete(**key) == kept.delete(**key)
        app.table("log").insert({"n": step})
        found, expected = (sorted(map(repr, t.all_rows())) for t in (kept, alone))
        assert found == expected, step
    assert [r["n"] for r in app.table("log")] == [*range(120)]
    app.close()
