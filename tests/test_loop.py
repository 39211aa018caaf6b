"""One loop reads a stream for all statements on it: whatever happens beside it, each row is applied once."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from millpond import App, Error
from millpond.app.app import runtime_of
from millpond.connectors.databases.source import SqlSource
from millpond.connectors.stream.source import StreamSource, stream_uri
from millpond.engine.batch import Batch
from millpond.engine.carrier import Sessions
from millpond.engine.courtesy import Courtesy
from millpond.engine.loop import StreamLoop
from millpond.engine.pipeline import Pipeline

SQL = """
CREATE STREAM s (id INT);
CREATE TABLE a (id INT); CREATE TABLE b (id INT); CREATE TABLE c (id INT);
INSERT INTO a SELECT id FROM s WITH ('query.name' = 'qa');
INSERT INTO b SELECT id FROM s WITH ('query.name' = 'qb');
INSERT INTO c SELECT id FROM s WITH ('query.name' = 'qc');
"""


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_statements_that_are_paused_and_resumed_at_random(seed: int, tmp_path: Path) -> None:
    chance, ids = random.Random(seed), iter(range(1_000_000))
    sent, over = [], threading.Event()

    def send() -> None:
        while not over.is_set():
            some = [next(ids) for _ in range(1 + len(sent) % 40)]
            app.send("s", [{"id": i} for i in some])
            sent.extend(some)
            time.sleep(0.002)

    with App(SQL, state=tmp_path, engine="process") as app:
        sender = threading.Thread(target=send)
        sender.start()
        until = time.monotonic() + 4
        while time.monotonic() < until:
            name, way = chance.choice(["qa", "qb", "qc"]), chance.choice(["PAUSE", "RESUME", "STOP", "START"])
            try:
                app.sql(f"{way} QUERY {name}")
            except Error as error:
                assert "does nothing" in error.message
            time.sleep(chance.choice([0, 0.003, 0.05]))
        over.set()
        sender.join()
        for query in app.sql("SHOW QUERIES").rows():
            way = {"paused": "RESUME", "stopped": "START"}.get(query["state"])
            if way is not None:
                app.sql(f"{way} QUERY {query['name']}")
        app.drain(60)
        for table in "abc":
            found = [r["id"] for r in app.sql(f"SELECT id FROM {table}").rows()]
            assert len(found) == len(sent) and sorted(found) == sorted(sent)


def test_rows_are_seen_at_once_though_the_stream_is_hardly_polled(tmp_path: Path) -> None:
    sql = "CREATE STREAM s (id INT); CREATE TABLE t AS SELECT id FROM s;"
    with App(sql, state=tmp_path, engine="process") as app:
        app.send("s", [{"id": 0}])
        app.drain(30)
        time.sleep(1.5)  # the pause between two polls grows
        began = time.monotonic()
        for i in range(1, 21):
            app.send("s", [{"id": i}])
            while len(app.table("t")) <= i:
                time.sleep(0.001)
        assert time.monotonic() - began < 20 * 0.5


def test_a_batch_of_another_offset_is_not_applied(tmp_path: Path) -> None:
    with App("CREATE STREAM s (id INT); CREATE TABLE t AS SELECT id FROM s;", state=tmp_path) as app:
        app.send("s", [{"id": 1}, {"id": 2}])
        app.drain(30)
        pipeline = next(iter(runtime_of(app).runner))
        source = pipeline.source
        assert isinstance(source, StreamSource)
        sessions = Sessions(source, lambda: pytest.fail("Spark is not needed"))
        batch = Batch(source, {"seq": 0}, {"seq": 2}, carrier=sessions)
        pipeline.advance(batch, {"seq": 0})  # seen before another thread has moved it
        assert pipeline.offset == {"seq": 2} and len(app.table("t")) == 2


def test_later_rows_only_from_the_moment_that_the_statement_exists(tmp_path: Path) -> None:
    with App("CREATE STREAM s (id INT)", state=tmp_path) as app:
        app.send("s", [{"id": 1}, {"id": 2}])
        schema = runtime_of(app).catalog.find("s")
        assert schema is not None
        uri = stream_uri(tmp_path, "s")
        begins = [
            StreamSource(uri, {"start": start}, schema.schema).begin() for start in ("latest", "earliest")
        ]
        assert begins == [{"seq": 2}, None]


def test_offsets_of_a_database_are_in_order() -> None:
    reached: Any = SqlSource.reached

    def at(read: int, value: int | None, *ties: str) -> dict[str, object]:
        noted = None if value is None else ["int", str(value)]
        return {"read": read, "step": 0, "value": noted, "count": len(ties), "ties": list(ties)}

    first, second = at(0, 50, "x"), at(0, 100, "y")
    assert reached(None, second, first) and not reached(None, first, second)
    assert reached(None, first, first | {"step": 7}) and reached(None, at(1, 1), second)
    assert reached(None, at(0, 50, "x", "z"), first) and not reached(None, first, at(0, 50, "x", "z"))
    # One row at the value has gone and another has come: that one is to be read.
    assert not reached(None, at(0, 50, "a", "b", "c"), at(0, 50, "a", "d"))
    assert reached(None, first, at(0, None)) and not reached(None, at(0, None), first)


def test_a_statement_for_which_others_come_first_rests_while_they_work() -> None:
    batches = [0]
    courtesy = Courtesy(lambda: batches[0])
    assert courtesy.rest(2.0) == 0
    batches[0] += 1
    assert 1 <= courtesy.rest(2.0) <= 2
    assert courtesy.rest(2.0) == 0


def test_a_table_that_is_built_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []

    def rest(self: Courtesy, seconds: float) -> float:
        rests.append(seconds)
        return 0.01

    monkeypatch.setattr(Courtesy, "rest", rest)
    one_range = StreamLoop._one_range

    def slow(self: StreamLoop, pipeline: Pipeline, *args: Any) -> None:
        until = time.monotonic() + 30
        while pipeline.courtesy is None and time.monotonic() < until:
            time.sleep(0.001)
        one_range(self, pipeline, *args)

    monkeypatch.setattr(StreamLoop, "_one_range", slow)
    sql = "CREATE STREAM s (id INT) WITH ('batch.max.rows' = 10); CREATE TABLE t AS SELECT id FROM s;"
    with App(sql, state=tmp_path, engine="process") as app:
        app.send("s", [{"id": i} for i in range(100)])
        app.drain(30)
        app.sql("CREATE OR REPLACE TABLE t AS SELECT id + 1 AS id FROM s")
        assert rests
        app.send("s", [{"id": 100}])
        app.drain(30)
        assert sorted(r["id"] for r in app.sql("SELECT id FROM t").rows()) == list(range(1, 102))
        assert all(p.courtesy is None for p in runtime_of(app).runner)
