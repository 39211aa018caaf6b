"""What the work of a thread may take: checked between steps, ended in the middle of one, never inside of a commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from millpond import App, allowance
from millpond.allowance import Allowance, given
from millpond.errors import QueryFailed, TimedOut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SLOW = "SELECT COUNT(*) AS n FROM t a JOIN t b ON a.id <> b.id JOIN t c ON b.id <> c.id"


@pytest.fixture
def app() -> Iterator[App]:
    with App("CREATE TABLE t (id INT PRIMARY KEY, s STRING)") as app:
        app.table("t").bulk_insert([{"id": i, "s": "x" * 100} for i in range(20_000)])
        yield app


def over() -> Allowance:
    return Allowance(0.0)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT s FROM t WHERE id > 3",
        "SELECT id FROM t WHERE s LIKE '%y'",
        "EXPLAIN SELECT s FROM t ORDER BY s",
        "INSERT INTO t VALUES (-1, 'x')",
        "UPDATE t SET s = 'y'",
        "DELETE FROM t WHERE id > 3",
        "CREATE TABLE u AS SELECT id FROM t",
    ],
)
def test_nothing_begins_when_the_time_is_over(app: App, text: str) -> None:
    with given(over()), pytest.raises(TimedOut, match="within 0 s"):
        app.sql(text)
    assert len(app.table("t")) == 20_000 and app.tables() == ["t"]
    assert app.table("t").get_record(1) == {"id": 1, "s": "x" * 100}


def test_each_step_looks_at_the_time(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is looked at again and again; whichever look finds it over ends the statement."""
    looks = 0
    at = -1

    def check(self: Allowance) -> None:
        nonlocal looks
        looks += 1
        if 0 < at <= looks:
            raise TimedOut("now")

    monkeypatch.setattr(Allowance, "check", check)
    text = "SELECT upper(s) AS u, COUNT(*) AS n FROM t WHERE id IN (SELECT id + 1 FROM t) GROUP BY upper(s)"

    def ask() -> None:
        app._runtime.plans.clear()  # a plan leaves most steps out
        app.sql(text)

    ask()
    with given(Allowance(60)):
        ask()
    every = looks
    assert every >= 8
    for number in range(1, every + 1):
        looks, at = 0, number
        with given(Allowance(60)), pytest.raises(TimedOut, match="now"):
            ask()


def test_a_query_is_ended_in_the_middle(app: App) -> None:
    limit = Allowance(60)
    threading.Timer(0.3, limit.end).start()
    with given(limit), pytest.raises(TimedOut):
        app.sql(SLOW)
    assert app.sql("SELECT COUNT(*) AS n FROM t").rows() == [{"n": 20_000}]


def test_a_query_of_spark_is_ended_in_the_middle(spark: SparkSession) -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY)", _path="spark") as app:
        app.table("t").bulk_insert([{"id": i} for i in range(4_000)])
        limit = Allowance(60)
        ended = threading.Event()

        def end() -> None:
            while not ended.wait(0.2):
                limit.end()

        ender = threading.Timer(2.0, end)
        ender.start()
        with given(limit), pytest.raises(TimedOut):
            app.sql(SLOW.replace("COUNT(*)", "SUM(a.id * b.id + c.id)"))
        ended.set()
        tracker = spark.sparkContext.statusTracker()
        deadline = time.monotonic() + 30
        while tracker.getActiveJobsIds():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with given(Allowance(60)):
            assert app.sql("SELECT COUNT(*) AS n FROM t").rows() == [{"n": 4_000}]


@pytest.mark.parametrize("path", ["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def test_answers_that_are_too_large(path: Any, request: pytest.FixtureRequest) -> None:
    if path == "spark":
        request.getfixturevalue("spark")
    with App("CREATE TABLE t (id INT PRIMARY KEY, s STRING)", _path=path) as app:
        app.table("t").bulk_insert([{"id": i, "s": "x" * 100} for i in range(20_000)])
        with given(Allowance(60, rows=10)):
            with pytest.raises(QueryFailed, match="more than 10 rows") as e:
                app.sql("SELECT id FROM t ORDER BY id")
            assert "LIMIT" in str(e.value.hint)
            assert app.sql("SELECT id FROM t ORDER BY id LIMIT 3").rows() == [{"id": 0}, {"id": 1}, {"id": 2}]
            assert len(app.sql("SELECT id FROM t WHERE id < 10").rows()) == 10
            assert app.sql("SELECT id FROM t WHERE id < 0").rows() == []
        with (
            given(Allowance(60, bytes=1_000_000)),
            pytest.raises(QueryFailed, match="more than 1,000,000 bytes"),
        ):
            app.sql("SELECT s FROM t")
        with given(Allowance(60, bytes=10_000_000)):
            assert app.sql("SELECT s FROM t").to_arrow().num_rows == 20_000


def test_memory_of_guests_is_apart(app: App) -> None:
    """A query that needs more than guests may take fails; what the app asks for itself does not."""
    query = "SELECT size(array_agg(a.s || b.id)) AS n FROM t a JOIN t b ON a.id % 50 = b.id % 50"
    with given(Allowance(600)), pytest.raises(QueryFailed, match="more memory") as e:
        app.sql(query)
    assert e.value.hint
    with given(Allowance(60)):
        assert app.sql("SELECT COUNT(*) AS n FROM t").rows() == [{"n": 20_000}]


def test_a_commit_is_never_ended(app: App) -> None:
    """Whenever the time is over, a change is made as a whole or not at all, and whoever made it is told which."""
    for i in range(60):
        limit = Allowance(60)
        timer = threading.Timer(i * 0.0005, limit.end)
        timer.start()
        try:
            with given(limit):
                app.sql("UPDATE t SET s = ? WHERE id < 2000", [f"round {i}"])
            made = True
        except TimedOut:
            made = False
        timer.cancel()
        found = {r["s"] for r in app.sql("SELECT DISTINCT s FROM t WHERE id < 2000").rows()}
        assert (found == {f"round {i}"}) == made and len(found) == 1


def test_a_shield_holds_off_the_end() -> None:
    limit = Allowance(60)
    ended: list[bool] = []
    with given(limit):
        with allowance.shielded(), allowance.ending(lambda: ended.append(True)):
            limit.end()
            allowance.check()
        assert ended == []
        with pytest.raises(TimedOut), allowance.ending(lambda: ended.append(True)):
            pass
    assert allowance.current() is None
    allowance.check()
