"""Transactions of programs: one commit or none, a snapshot to read, the first committer wins."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond import App, Error
from millpond.errors import UnknownName

SQL = """
CREATE TABLE account (id INT PRIMARY KEY, balance INT);
CREATE TABLE log (account INT, amount INT);
INSERT INTO account VALUES (1, 100), (2, 50), (3, 0);
INSERT INTO log VALUES (1, 100), (1, 100), (2, 50);
"""


@pytest.fixture
def app() -> Iterator[App]:
    with App(SQL) as app:
        yield app


def balances(app: App) -> dict[int, int]:
    return {r["id"]: r["balance"] for r in app.table("account").all_rows()}


def test_a_table_that_the_transaction_has_emptied_is_empty_in_it():
    with App("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1), (2)") as app:
        with app.begin_transaction() as tx:
            tx.sql("DELETE FROM t")
            assert tx.sql("SELECT * FROM t").rows() == [] and tx.table("t").all_rows() == []
        assert app.sql("SELECT * FROM t").rows() == []


def test_changes_of_several_tables_count_together(app: App) -> None:
    with app.begin_transaction() as tx:
        tx.table("account").update("id = 1", "balance = balance - 30")
        tx.sql("UPDATE account SET balance = balance + 30 WHERE id = ?", [2])
        tx.table("log").insert({"account": 1, "amount": -30})
        assert tx.sql("SELECT balance FROM account WHERE id = 2").rows() == [{"balance": 80}]
        assert tx.table("account").get_record(1) == {"id": 1, "balance": 70}
        assert balances(app) == {1: 100, 2: 50, 3: 0}
        assert len(app.table("log")) == 3
    assert balances(app) == {1: 70, 2: 80, 3: 0}
    assert len(app.table("log")) == 4


def test_an_exception_rolls_back(app: App) -> None:
    with pytest.raises(RuntimeError), app.begin_transaction() as tx:
        tx.table("account").delete("id > 0")
        tx.table("log").delete("amount = 100")
        raise RuntimeError
    assert balances(app) == {1: 100, 2: 50, 3: 0}
    assert len(app.table("log")) == 3


def test_rows_without_a_key_are_changed_one_by_one(app: App) -> None:
    with app.begin_transaction() as tx:
        log = tx.table("log")
        log.insert({"account": 9, "amount": 9})
        assert log.update("account = 9", {"amount": 10}) == 1
        assert log.delete("amount = 100") == 2
        assert log.all_rows() == [{"account": 2, "amount": 50}, {"account": 9, "amount": 10}]
    assert app.table("log").all_rows() == [{"account": 2, "amount": 50}, {"account": 9, "amount": 10}]


def test_the_first_committer_wins(app: App) -> None:
    first, second = app.begin_transaction(), app.begin_transaction()
    first.sql("UPDATE account SET balance = 1 WHERE id = 1")
    second.sql("UPDATE account SET balance = 2 WHERE id = 1")
    second.sql("UPDATE account SET balance = 2 WHERE id = 2")
    first.commit()
    with pytest.raises(Error) as caught:
        second.commit()
    assert caught.value.code == "conflict" and caught.value.retryable
    assert balances(app) == {1: 1, 2: 50, 3: 0}


def test_two_transactions_that_add_one_key_conflict(app: App) -> None:
    first, second = app.begin_transaction(), app.begin_transaction()
    first.table("account").insert({"id": 7, "balance": 1})
    second.table("account").insert({"id": 7, "balance": 2})
    second.commit()
    with pytest.raises(Error, match="same rows"):
        first.commit()
    assert balances(app)[7] == 2


def test_other_rows_do_not_conflict(app: App) -> None:
    first, second = app.begin_transaction(), app.begin_transaction()
    first.sql("UPDATE account SET balance = 1 WHERE id = 1")
    second.sql("UPDATE account SET balance = 2 WHERE id = 2")
    second.sql("INSERT INTO log VALUES (2, 2)")
    first.sql("INSERT INTO log VALUES (1, 1)")
    first.commit()
    second.commit()
    assert balances(app) == {1: 1, 2: 2, 3: 0}
    assert len(app.table("log")) == 5


def test_a_transaction_keeps_the_rows_as_they_were(app: App) -> None:
    tx = app.begin_transaction()
    app.sql("DELETE FROM account")
    assert tx.sql("SELECT COUNT(*) AS n FROM account").rows() == [{"n": 3}]
    tx.rollback()
    with pytest.raises(Error, match="has ended"):
        tx.sql("SELECT 1")


def test_no_schema_changes_and_no_streams_inside(app: App) -> None:
    app.sql("CREATE STREAM s (id INT)")
    with app.begin_transaction() as tx:
        for text in ("CREATE TABLE x (id INT)", "DROP TABLE log", "INSERT INTO s VALUES (1)", "BEGIN"):
            with pytest.raises(Error):
                tx.sql(text)


def test_sums_hold_while_threads_move_money(app: App) -> None:
    """Every reader sees a committed state, and nothing is lost: the sum stays."""
    stop = threading.Event()
    wrong: list[int] = []

    def move(seed: int) -> None:
        numbers = random.Random(seed)
        for _ in range(20):
            a, b = numbers.sample([1, 2, 3], 2)
            while True:
                try:
                    with app.begin_transaction() as tx:
                        tx.table("account").update({"id": a}, "balance = balance - 1")
                        tx.table("account").update({"id": b}, "balance = balance + 1")
                    break
                except Error as error:
                    assert error.code == "conflict"

    def read() -> None:
        while not stop.is_set():
            total = app.sql("SELECT SUM(balance) AS s FROM account").rows()[0]["s"]
            if total != 150:
                wrong.append(total)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=move, args=(seed,)) for seed in range(3)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert not wrong
    assert sum(balances(app).values()) == 150


def test_committed_changes_survive_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with App(SQL, state=state) as app:
        with app.begin_transaction() as tx:
            tx.sql("UPDATE account SET balance = balance + 1")
            tx.sql("DELETE FROM log WHERE account = 1")
        lost = app.begin_transaction()
        lost.sql("DELETE FROM account")
    with App(SQL, state=state) as app:
        assert balances(app) == {1: 101, 2: 51, 3: 1}
        assert app.table("log").all_rows() == [{"account": 2, "amount": 50}]
        app.sql("UPDATE log SET amount = 51")
    with App(SQL, state=state) as app:
        assert app.table("log").all_rows() == [{"account": 2, "amount": 51}]


def test_a_table_that_was_dropped_meanwhile(app: App) -> None:
    app.sql("CREATE TABLE gone (id INT PRIMARY KEY)")
    transaction = app.begin_transaction()
    table = transaction.table("gone")
    app.sql("DROP TABLE gone")
    with pytest.raises(UnknownName, match='"gone" is not known') as raised:
        table.insert({"id": 1})
    assert "CREATE TABLE" in (raised.value.hint or "")
