"""Connections to DuckDB that are kept for the next query: no query sees the tables of another one."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from millpond import App
from millpond.errors import Error
from millpond.query import idle
from millpond.query.duck import Duck


def numbers(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def kept(duck: Duck) -> list[idle.Connection]:
    return duck._idle._idle


def ask(duck: Duck, tables: dict[str, pa.Table], sql: str = "SELECT sum(x)::BIGINT AS s FROM t") -> object:
    return duck.run(sql, tables)["s"][0].as_py()


def test_a_query_of_the_same_rows_takes_the_connection_again() -> None:
    duck, t = Duck(), numbers(1, 2)
    assert [ask(duck, {"t": t}) for _ in range(5)] == [3] * 5
    assert len(kept(duck)) == 1
    assert ask(duck, {"t": numbers(5)}) == 5
    assert len(kept(duck)) == 2


def test_other_rows_under_the_same_name_and_fewer_tables() -> None:
    duck, t, u = Duck(), numbers(1), numbers(10)
    both = "SELECT (SELECT sum(x) FROM t)::BIGINT + (SELECT sum(x) FROM u)::BIGINT AS s"
    assert ask(duck, {"t": t, "u": u}, both) == 11
    assert ask(duck, {"t": t}) == 1
    assert len(kept(duck)) == 1
    assert ask(duck, {"t": u, "u": t}, both) == 11
    assert ask(duck, {"t": u}) == 10


def test_few_and_small_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    duck = Duck()
    for number in range(idle._CONNECTIONS + 3):
        assert ask(duck, {"t": numbers(number)}) == number
    assert len(kept(duck)) == idle._CONNECTIONS
    monkeypatch.setattr(idle, "_BYTES", 100)
    before = list(kept(duck))
    assert ask(duck, {"t": numbers(*range(100))}) == 4950
    assert kept(duck) == before
    duck.close()
    assert kept(duck) == []
    assert ask(duck, {"t": numbers(4)}) == 4


def test_a_connection_whose_query_failed_is_not_kept() -> None:
    duck, t = Duck(), numbers(1)
    ask(duck, {"t": t})
    with pytest.raises(Error):
        duck.run("SELECT error('no') AS s FROM t", {"t": t})
    assert kept(duck) == []


def test_rows_that_are_read_once() -> None:
    duck = Duck()
    assert ask(duck, {"t": numbers(1, 2).to_reader()}) == 3
    assert kept(duck) == []


def test_threads_do_not_share_one() -> None:
    duck, t, found = Duck(), numbers(*range(1000)), []

    def work() -> None:
        for _ in range(50):
            found.append(ask(duck, {"t": t}))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [499500] * 200
    assert len(kept(duck)) <= 4


def test_queries_of_a_table_that_changes() -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY, x INT); CREATE TABLE u (id INT PRIMARY KEY, y INT)") as app:
        app.sql("INSERT INTO u VALUES (1, 100), (2, 200)")
        for x in range(30):
            app.sql("INSERT INTO t VALUES (1, ?)", [x])
            joined = "SELECT t.x + u.y AS s FROM t JOIN u ON t.id = u.id"
            for _ in range(2):
                assert app.sql(joined).rows() == [{"s": 100 + x}]
