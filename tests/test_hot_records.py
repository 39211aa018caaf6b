"""Records and keys that a memory table remembers for its readers are never older than what was committed."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond import App, Table
from millpond.errors import Closed
from millpond.tables.memory import MemoryTable

COLUMNS = "id BIGINT PRIMARY KEY, name STRING, price DECIMAL(10,2), at TIMESTAMP, raw BINARY"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def record(key: int, name: str | None = "a") -> dict[str, Any]:
    return {"id": key, "name": name, "price": Decimal("1.50"), "at": AT, "raw": b"x"}


def filled(**options: Any) -> Table:
    table = Table(COLUMNS, **options)
    table.bulk_insert([record(key) for key in range(200)])
    for key in range(200):
        table.get_record(key)
    return table


def hot(table: Table) -> dict[Any, Any]:
    backend = table._backend
    assert isinstance(backend, MemoryTable)
    return backend.storage.hot.records


def test_a_record_is_kept_and_handed_out_as_a_copy() -> None:
    table = filled()
    assert len(hot(table)) == 200
    first = table.get_record(7)
    assert first == record(7)
    first["name"] = "changed by the caller"
    assert table.get_record(7) == record(7)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update({"id": 7}, {"name": "b"}),
        lambda t: t.update("id = 7", "name = 'b'"),
        lambda t: t.insert(record(7, "b")),
        lambda t: t.bulk_insert([record(7, "b"), record(300)]),
        lambda t: t.bulk_update([{"id": 7, "name": "b"}]),
    ],
)
def test_a_change_is_seen_at_once(change: Any) -> None:
    table = filled()
    before = table.snapshot()
    change(table)
    assert table.get_record(7) == record(7, "b")
    assert before.get_record(7) == record(7)
    assert table.get_record(8) == record(8)


def test_deletes_compaction_and_closing_are_seen() -> None:
    table = filled()
    table.delete(7)
    table.bulk_delete([8, 9])
    assert [table.get_record(key) for key in (7, 8, 9)] == [None] * 3
    backend = table._backend
    assert isinstance(backend, MemoryTable)
    with backend._writing:
        backend.storage.compact(forced=True)
    assert table.get_record(10) == record(10)
    table.update({"id": 10}, {"name": "b"})
    assert table.get_record(10) == record(10, "b")
    backend.close()
    with pytest.raises(Closed):
        table.get_record(11)


def test_the_room_is_bounded_and_can_be_none() -> None:
    table = filled(options={"hot.records": "50"})
    assert 0 < len(hot(table)) <= 50
    assert not hot(filled(options={"hot.records": "0"}))
    assert not hot(filled(options={"max_memory": "10MB"}))
    nested = Table("id INT PRIMARY KEY, tags ARRAY<STRING>")
    nested.insert({"id": 1, "tags": ["a"]})
    nested.get_record(1)["tags"].append("b")
    assert nested.get_record(1) == {"id": 1, "tags": ["a"]}


def test_what_is_read_only_once_is_not_kept_for_long() -> None:
    table = Table("id BIGINT PRIMARY KEY", options={"hot.records": "100"})
    table.bulk_insert([{"id": key} for key in range(1_000)])
    assert [table.get_record(key) for key in range(1_000)] == [{"id": key} for key in range(1_000)]
    assert len(hot(table)) <= 1, "a room that was filled in vain rests"


def test_a_reader_never_sees_less_than_what_was_committed_before_it_asked() -> None:
    with App("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)") as app:
        for table in (app.table("t"), Table("id BIGINT PRIMARY KEY, n BIGINT")):
            _no_old_records(table)


def _no_old_records(table: Table) -> None:
    keys = range(4)
    table.bulk_insert([{"id": key, "n": 0} for key in keys])
    committed = [0] * len(keys)
    wrong: list[Any] = []
    end = threading.Event()

    def write(key: int) -> None:
        for n in range(1, 500):
            if n % 5:
                table.update({"id": key}, {"n": n})
            else:
                table.bulk_insert([{"id": key, "n": n}])
            committed[key] = n

    def read() -> None:
        while not end.is_set():
            for key in keys:
                least = committed[key]
                found = table.get_record(key)
                if found is None or found["n"] < least:
                    wrong.append((key, found, least))

    readers = [threading.Thread(target=read) for _ in range(3)]
    writers = [threading.Thread(target=write, args=(key,)) for key in keys[:2]]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    end.set()
    for thread in readers:
        thread.join()
    assert not wrong, wrong[:3]


def found(table: Any, keys: Any) -> list[int]:
    rows = table.find_rows_for_join("id", keys)
    arrow = table.find_rows_for_join("id", pa.table({"id": pa.array(keys, pa.int64())}))
    assert sorted(r["id"] for r in rows) == sorted(r["id"] for r in arrow)
    return sorted(r["id"] for r in rows)


@pytest.mark.parametrize(
    "keys",
    [
        range(-100, 400),
        range(0, 1_000, 3),
        [*range(100), 10**15],
        [-(2**63), 2**63 - 1, *range(200)],
        [int(k) for k in np.random.default_rng(1).integers(-(2**40), 2**40, 300)],
    ],
)
def test_many_integer_keys_at_once(keys: Any) -> None:
    table = Table("id BIGINT PRIMARY KEY, n INT")
    keys = list(dict.fromkeys(keys))
    half = keys[: len(keys) // 2]
    table.bulk_insert([{"id": k, "n": 0} for k in half])
    asked = [*keys, 5_000, -5_000, *keys[:20]]
    assert found(table, asked) == sorted(half)
    early = table.snapshot()
    table.bulk_insert([{"id": k, "n": 1} for k in keys])
    table.bulk_delete(keys[::7])
    table.update({"id": keys[1]}, {"n": 2})
    left = sorted(set(keys) - set(keys[::7]))
    assert found(table, asked) == left
    assert found(early, asked) == sorted(half)
    assert {r["n"] for r in early.find_rows_for_join("id", asked)} == {0}
    assert {r["id"]: r["n"] for r in table.find_rows_for_join("id", asked)}[keys[1]] == 2
    backend = table._backend
    assert isinstance(backend, MemoryTable)
    with backend._writing:
        backend.storage.compact(forced=True)
    assert found(table, asked) == left


def test_rows_of_many_keys_are_those_of_single_ones() -> None:
    table = Table(
        "id INT PRIMARY KEY, a STRING, b DOUBLE, c BOOLEAN, d DECIMAL(9,2), e DATE, f TIMESTAMP, g TIMESTAMP_NTZ"
    )
    for key in range(300):
        values = [
            None,
            str(key),
            key / 8,
            key % 2 == 0,
            Decimal(key) / 4,
            AT.date(),
            AT,
            AT.replace(tzinfo=None),
        ]
        row = dict(zip("abcdefg", values[1:], strict=True))
        table.insert(
            {"id": key, **{n: None if (key + i) % 5 == 0 else v for i, (n, v) in enumerate(row.items())}}
        )
    keys = list(range(0, 300, 2))
    rows = table.find_rows_for_join("id", keys)
    assert sorted(rows, key=lambda r: r["id"]) == [table.get_record(k) for k in keys]
    long = Table("id INT PRIMARY KEY, d DECIMAL(38,2), tags ARRAY<INT>")
    long.bulk_insert([{"id": k, "d": Decimal(k), "tags": [k]} for k in range(200)])
    assert long.find_rows_for_join("id", list(range(100))) == [long.get_record(k) for k in range(100)]
