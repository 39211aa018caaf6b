"""Reads of single rows: they see a commit in all of its tables, or in none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from millpond import App, faults
from millpond.store import visibility
from millpond.tables._storage import RowStorage

SQL = """
CREATE TABLE a (id INT PRIMARY KEY, g STRING NOT NULL, n INT);
CREATE INDEX by_g ON a (g);
CREATE TABLE v (PRIMARY KEY (id)) WITH ('consistency' = 'commit') AS SELECT id, g, n + 1 AS m FROM a WHERE n >= 0;
CREATE TABLE w (PRIMARY KEY (g)) WITH ('consistency' = 'commit') AS SELECT g, COUNT(*) AS c FROM v GROUP BY g;
"""


@pytest.fixture
def app() -> Iterator[App]:
    with App(SQL, engine="process") as app:
        app.sql("INSERT INTO a VALUES (1, 'x', 1), (2, 'x', 2), (3, 'y', 3)")
        yield app


def reads(app: App) -> dict[str, Any]:
    """What each way of reading rows without the snapshot of a statement finds."""
    a, v, w = app.table("a"), app.table("v"), app.table("w")
    found: dict[str, Any] = {}
    for key in (1, 2, 3, 4):
        for table in (a, v):
            found[f"get {table.name} {key}"] = table.get_record(key)
            found[f"has {table.name} {key}"] = table.contains(key), table.contains(id=key)
            found[f"sql {table.name} {key}"] = app.sql(f"SELECT * FROM {table.name} WHERE id = {key}").rows()
            found[f"find {table.name} {key}"] = table.find(id=key)
    found["in"] = app.sql("SELECT * FROM a WHERE id IN (1, 2, 4)").rows()
    for g in "xyz":
        found[f"index {g}"] = app.sql(f"SELECT id FROM a WHERE g = '{g}'").rows(), a.find(g=g)
        found[f"groups {g}"] = w.get_record(g), app.sql(f"SELECT c FROM w WHERE g = '{g}'").rows()
    for table in (a, v, w):
        found[f"all {table.name}"] = len(table), table.all_rows(), table.snapshot().all_rows()
    return found


class Between:
    """Calls a function before each table takes a commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.call: Callable[[], object] = lambda: None
        self.times = 0
        monkeypatch.setattr(visibility, "faults", self)

    def reach(self, point: str) -> None:
        if point == "commit: journalled":
            self.times += 1
            self.call()
        faults.reach(point)


CHANGES = [
    "INSERT INTO a VALUES (4, 'z', 4)",
    "INSERT INTO a VALUES (1, 'x', 5), (4, 'y', 6)",
    "UPDATE a SET n = n + 10",
    "UPDATE a SET g = 'z' WHERE id = 1",
    "DELETE FROM a WHERE id = 2",
    "DELETE FROM a",
]


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_nobody_sees_a_part(change: str, compacts: bool, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    if compacts:  # with every commit
        for name, value in (("idle_dead", -10), ("piece", 1), ("kept_commits", 1)):
            monkeypatch.setattr(RowStorage, name, value)
        for n in range(4):
            app.sql(f"UPDATE a SET n = {n}")
    between = Between(monkeypatch)
    before = [reads(app), reads(app)]  # the second finds records and indexes that were kept
    seen: list[dict[str, Any]] = []
    between.call = lambda: seen.append(reads(app))
    app.sql(change)
    assert between.times == len(seen) >= 2
    assert before[0] == before[1]
    assert all(found == before[0] for found in seen)
    between.call = lambda: None
    after = reads(app)
    assert after == reads(app) != before[0]
    assert [r["id"] for r in app.sql("SELECT id FROM a WHERE n >= 0 ORDER BY id").rows()] == [
        r["id"] for r in sorted(after["all v"][1], key=lambda r: r["id"])
    ]
    app.sql("INSERT INTO a VALUES (1, 'x', 77)")
    assert app.table("v").get_record(1) == {"id": 1, "g": "x", "m": 78}
    assert app.sql("SELECT id FROM a WHERE g = 'x' AND id = 1").rows() == [{"id": 1}]


def test_a_table_that_fails_once_is_seen_with_the_others(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    between, before, seen = Between(monkeypatch), reads(app), []

    def fail() -> None:
        seen.append(reads(app))
        if between.times == 2:
            raise MemoryError("once")

    between.call = fail
    app.sql("UPDATE a SET n = n + 1")
    assert len(seen) == 2 and all(found == before for found in seen)
    assert app.table("v").get_record(1) == {"id": 1, "g": "x", "m": 3}


def test_a_transaction_of_two_tables_is_seen_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "CREATE TABLE p (id INT PRIMARY KEY, n INT); CREATE TABLE q (id INT PRIMARY KEY, n INT);"
    with App(sql, engine="process") as app:
        p, q, between = app.table("p"), app.table("q"), Between(monkeypatch)
        seen: list[Any] = []
        between.call = lambda: seen.append((p.get_record(1), q.get_record(1), len(p.snapshot()), len(q)))
        with app.begin_transaction() as changes:
            changes.sql("INSERT INTO p VALUES (1, 1)")
            changes.sql("INSERT INTO q VALUES (1, 1)")
        assert seen == [(None, None, 0, 0)] * 2
        assert p.get_record(1) == q.get_record(1) == {"id": 1, "n": 1}


def test_a_reader_never_finds_a_view_behind_its_table(app: App) -> None:
    a, v, over = app.table("a"), app.table("v"), threading.Event()
    torn: list[Any] = []
    counts = [0]

    def read() -> None:
        while not over.is_set():
            for first, then in (
                (lambda: a.get_record(1), lambda: v.get_record(1)),
                (lambda: a.find(id=1)[0], lambda: v.snapshot().get_record(1)),
                (
                    lambda: app.sql("SELECT n FROM a WHERE id = 1").rows()[0],
                    lambda: app.sql("SELECT m FROM v WHERE id = 1").rows()[0],
                ),
            ):
                n, m = first()["n"], then()["m"]
                counts[0] += 1
                if m < n + 1:
                    torn.append((n, m))

    thread = threading.Thread(target=read)
    thread.start()
    for n in range(10, 40):
        ids = pa.array(range(1, 2000), pa.int32())
        a.bulk_insert(pa.table({"id": ids, "g": ["x"] * 1999, "n": pa.array([n] * 1999, pa.int32())}))
    over.set()
    thread.join()
    assert counts[0] and not torn
