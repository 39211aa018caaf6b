"""Threads that read and write at once: every read sees a committed state, and nobody starves."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millpond import App, Table
from millpond.errors import Conflict

ACCOUNTS = 200
TOTAL = ACCOUNTS * 100
SQL = f"""
CREATE TABLE account (id INT PRIMARY KEY, amount BIGINT, kind STRING);
CREATE TABLE other (id INT PRIMARY KEY, amount BIGINT);
INSERT INTO other VALUES {", ".join(f"({i}, 100)" for i in range(ACCOUNTS))};
INSERT INTO account VALUES {", ".join(f"({i}, 100, '{'ab'[i % 2]}')" for i in range(ACCOUNTS))};
"""


class Work:
    """Threads with what they do, until the time is over; each counts its calls."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self.done: dict[str, int] = {}
        self.longest: dict[str, float] = {}
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def add(self, name: str, call: Callable[[random.Random], None]) -> None:
        def run() -> None:
            chance = random.Random(name)
            try:
                before = time.monotonic()
                while before < self._end and not self.errors:
                    call(chance)
                    now = time.monotonic()
                    self.longest[name] = max(self.longest.get(name, 0), now - before)
                    self.done[name] = self.done.get(name, 0) + 1
                    before = now
            except BaseException as error:
                self.errors.append(error)

        self._threads.append(threading.Thread(target=run, name=name))

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        for name, count in sorted(self.done.items()):
            print(f"{name}: {count} calls, the longest took {self.longest[name] * 1000:.0f} ms")

    def check_that_nobody_starved(self) -> None:
        """No call took a tenth of the time, and threads that do the same came about as far."""
        assert len(self.done) == len(self._threads)
        assert max(self.longest.values()) < self._seconds / 10, self.longest
        for name, count in self.done.items():
            alike = [
                n
                for other, n in self.done.items()
                if other.rstrip(" 0123456789") == name.rstrip(" 0123456789")
            ]
            assert count >= 0.5 * sum(alike) / len(alike), self.done


@pytest.fixture(params=["memory only", "state directory"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    kept = request.param == "state directory"
    with App(SQL, state=tmp_path / "state" if kept else None) as app:
        yield app


def check_an_app(app: App, seconds: float) -> Work:
    """Amounts move within a table and between two, so that the sum over both stays what it was. A third of the
    changes are of single rows that do not touch the sums."""
    account, other = app.table("account"), app.table("other")
    work = Work(seconds)

    def between(chance: random.Random) -> None:
        one, two, amount = chance.randrange(ACCOUNTS), chance.randrange(ACCOUNTS), chance.randrange(50)
        try:
            with app.begin_transaction() as tx:
                tx.table("account").update(f"id = {one}", f"amount = amount - {amount}")
                tx.table("other").update(f"id = {two}", f"amount = amount + {amount}")
        except Conflict:
            pass

    def within(chance: random.Random) -> None:
        shift = chance.randrange(10)
        account.update(
            f"id < {ACCOUNTS}", f"amount = amount + CASE WHEN id % 2 = 0 THEN {shift} ELSE -{shift} END"
        )

    def single(chance: random.Random) -> None:
        key = chance.randrange(ACCOUNTS)
        account.update({"id": key}, {"kind": chance.choice("abc")})
        account.insert({"id": ACCOUNTS + key, "amount": 0, "kind": "x"})
        account.delete(id=ACCOUNTS + key)

    def read_all(chance: random.Random) -> None:
        found = app.sql(
            "SELECT (SELECT SUM(amount) FROM account) + (SELECT SUM(amount) FROM other) AS total"
        ).rows()
        assert found == [{"total": 2 * TOTAL}]

    def read_snapshot(chance: random.Random) -> None:
        with app.begin_transaction() as tx:
            total = sum(r["amount"] for t in ("account", "other") for r in tx.table(t).all_rows())
        assert total == 2 * TOTAL

    def read_one(chance: random.Random) -> None:
        for _ in range(50):
            key = chance.randrange(ACCOUNTS)
            record = account.get_record(key)
            assert record is not None and record["id"] == key
            assert other.contains(key)
            assert {r["kind"] for r in account.find(id=key)} <= set("abc")

    for name, call in {
        "write between": between,
        "write within": within,
        "write single 1": single,
        "write single 2": single,
        "read all": read_all,
        "read snapshot": read_snapshot,
        "read one 1": read_one,
        "read one 2": read_one,
    }.items():
        work.add(name, call)
    work.run()
    assert len(work.done) == 8
    assert account.sql_scalar("SUM(amount)") + other.sql_scalar("SUM(amount)") == 2 * TOTAL
    return work


def check_a_table(seconds: float) -> Work:
    """A table alone: bulk changes keep the sum; single changes write two columns that are always equal."""
    table = Table("id INT PRIMARY KEY, amount BIGINT, a BIGINT, b BIGINT, t STRING")
    table.bulk_insert([{"id": i, "amount": 100, "a": 0, "b": 0, "t": "0"} for i in range(ACCOUNTS)])
    work = Work(seconds)

    def within(chance: random.Random) -> None:
        table.update("true", "amount = amount + CASE WHEN id % 2 = 0 THEN 3 ELSE -3 END")

    def single(chance: random.Random) -> None:
        for _ in range(20):
            n = chance.randrange(1000)
            table.update({"id": chance.randrange(ACCOUNTS)}, {"a": n, "b": n, "t": str(n)})

    def read(chance: random.Random) -> None:
        view = table.snapshot()
        assert view.sql_scalar("SUM(amount)") == TOTAL
        rows = view.all_rows()
        assert len(rows) == ACCOUNTS and all(r["a"] == r["b"] == int(r["t"]) for r in rows)
        assert [r["id"] for r in view.find("a = b")] == [r["id"] for r in rows]

    def read_one(chance: random.Random) -> None:
        for _ in range(50):
            record = table.get_record(chance.randrange(ACCOUNTS))
            assert record is not None and record["a"] == record["b"] == int(record["t"])

    for number in range(8):
        call = (within, single, single, read, read, read_one, read_one, read_one)[number]
        work.add(f"{call.__name__} {number}", call)
    work.run()
    assert len(work.done) == 8
    return work


@pytest.mark.slow
def test_eight_threads_of_an_app(app: App) -> None:
    check_an_app(app, 2.5)


@pytest.mark.slow
def test_eight_threads_of_a_table() -> None:
    check_a_table(2.5)


@pytest.mark.chaos
def test_eight_threads_of_an_app_for_a_minute(app: App) -> None:
    check_an_app(app, 60).check_that_nobody_starved()


@pytest.mark.chaos
def test_eight_threads_of_a_table_for_a_minute() -> None:
    check_a_table(60).check_that_nobody_starved()
