"""A query that DuckDB fails on by a mistake of its own takes no other one with it."""

from __future__ import annotations

import threading
import time

import duckdb
import pyarrow as pa
import pytest

from millpond.query.duck import Duck, NotAccepted

TABLES = {
    "t1": pa.table(
        {"id": [1, 2, 3], "s": ["a", "b", None], "ts": pa.array([1, 2, None], pa.timestamp("us"))}
    ),
    "t2": pa.table({"s": ["a", "c"]}),
}
BREAKS = """
SELECT a5.id, q2.n FROM (SELECT a1.ts, 1 AS n FROM t1 a1) q2
LEFT JOIN t1 a3 ON NOT EXISTS (SELECT 1 FROM t2 a4 WHERE a4.s = a3.s)
RIGHT JOIN t1 a5 ON q2.ts <> a5.ts"""
"""DuckDB mixes up the columns of this join. When it no longer does, another query is needed here."""


def test_it_breaks_a_database() -> None:
    with duckdb.connect() as connection:
        for name, table in TABLES.items():
            connection.register(name, table)
        with pytest.raises(duckdb.InternalException):
            connection.sql(BREAKS).to_arrow_table()
        with pytest.raises(duckdb.FatalException):
            connection.sql("SELECT 1").fetchall()


def test_the_next_query_is_answered() -> None:
    duck = Duck()
    for _ in range(2):
        with pytest.raises(NotAccepted):
            duck.run(BREAKS, TABLES)
        assert duck.run("SELECT COUNT(*) AS n FROM t1", TABLES).to_pylist() == [{"n": 3}]
    duck.close()


def test_queries_beside_it_are_answered() -> None:
    duck, wrong, over = Duck(), list[BaseException](), threading.Event()
    answered = [0, 0, 0]

    def ask(at: int) -> None:
        try:
            while not over.is_set():
                found = duck.run("SELECT SUM(x) AS n FROM range(200000) r(x), t2", TABLES).to_pylist()
                assert found == [{"n": 2 * 19999900000}]
                answered[at] += 1
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        with pytest.raises(NotAccepted):
            duck.run(BREAKS, TABLES)
        before = list(answered)
        while not wrong and any(now == then for now, then in zip(answered, before, strict=True)):
            time.sleep(0.001)
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    duck.close()
