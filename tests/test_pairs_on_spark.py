"""Joined streams whose pairs Spark finds: the same rows, in the same order, as in process, and little of them in the
driver."""

from __future__ import annotations

import datetime as dt
import json
import random
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from millpond import App
from millpond.engine.joined_batch import JoinedBatch
from millpond.engine.row_transfer import Staged
from millpond.engine_rule import Engine
from millpond.streaming.stream_join import JoinState
from tests.servers import Servers
from tests.spark_jobs import Jobs
from tests.test_kafka import new_topic, uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
ENGINES: tuple[Engine, Engine] = ("process", "spark")
ZERO = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
MARK = "WATERMARK FOR ts AS ts - INTERVAL 2 SECONDS"
STREAMS = f"""
CREATE STREAM a (n INT, k INT, d DECIMAL(9,2), s STRING, ts TIMESTAMP, {MARK});
CREATE STREAM b (n INT, k BIGINT, d DECIMAL(11,3), s STRING, ts TIMESTAMP, {MARK});
CREATE STREAM c (n INT, k INT, ts TIMESTAMP, {MARK});
CREATE TABLE names (k INT PRIMARY KEY, name STRING);
INSERT INTO names VALUES (0, 'zero'), (1, 'one');
CREATE TABLE groups (k INT, g STRING);
INSERT INTO groups VALUES (0, 'x'), (0, 'y'), (1, 'z');
"""
BOUND = "b.ts BETWEEN a.ts - INTERVAL 2 SECONDS AND a.ts + INTERVAL 3 SECONDS"
ON = f"a.k = b.k AND {BOUND}"
COLUMNS = "a.n, a.d, a.s, a.ts, b.n AS bn, b.d AS bd, b.s AS bs"
QUERIES = {
    "inner": f"CREATE TABLE t AS SELECT {COLUMNS} FROM a JOIN b ON {ON}",
    "left": f"CREATE TABLE t AS SELECT {COLUMNS} FROM a LEFT JOIN b ON {ON}",
    "right": f"CREATE TABLE t AS SELECT {COLUMNS} FROM a RIGHT JOIN b ON {ON} AND a.s <= b.s",
    "full": f"CREATE TABLE t AS SELECT {COLUMNS} FROM a FULL JOIN b ON {ON}",
    "without a bound": "CREATE TABLE t AS SELECT a.n, b.n AS bn FROM a JOIN b ON a.d = b.d AND a.s = b.s",
    "without a key": f"CREATE TABLE t AS SELECT a.n, b.n AS bn FROM a JOIN b ON a.n < b.n + 5 AND {BOUND}",
    "projected": f"""CREATE TABLE t AS SELECT a.n + b.n AS n, a.d * b.d AS d, names.name FROM a JOIN b ON {ON}
        LEFT JOIN names ON names.k = a.k WHERE a.n % 3 <> 1""",
    "computed sides": f"""CREATE TABLE t AS SELECT a.n, a.x, b.n AS bn
        FROM (SELECT n, k, ts, d + 1 AS x FROM a WHERE n % 5 <> 2) a JOIN b ON {ON}""",
    "a table below": f"""CREATE TABLE t AS SELECT a.n, a.g, b.n AS bn
        FROM (SELECT a.n, a.k, a.ts, groups.g FROM a JOIN groups ON groups.k = a.k) a LEFT JOIN b ON {ON}""",
    "another value each time": f"""CREATE TABLE t AS SELECT a.n, a.past, b.n AS bn
        FROM (SELECT n, k, ts, ts < now() AS past FROM a) a FULL JOIN b ON {ON}""",
    "another condition each time": f"""CREATE TABLE t AS SELECT {COLUMNS} FROM a JOIN b
        ON {ON} AND (a.n < b.n OR a.ts < now())""",
    "errors below": f"""CREATE TABLE t AS SELECT a.n, a.q, b.n AS bn
        FROM (SELECT n, k, ts, 10 / (n - 7) AS q FROM a) a LEFT JOIN b ON {ON}""",
    "groups": f"""CREATE TABLE t AS SELECT a.k, COUNT(*) AS n, SUM(a.d) AS d, MAX(b.d) AS m, COUNT(DISTINCT b.n) AS e
        FROM a LEFT JOIN b ON {ON} GROUP BY a.k""",
    "first and last": f"""CREATE TABLE t AS SELECT a.k, FIRST(b.n) AS f, LAST(b.n) AS l, COLLECT_LIST(b.n) AS c
        FROM a JOIN b ON {ON} GROUP BY a.k""",
    "windows": f"""CREATE TABLE t AS SELECT window_start, COUNT(*) AS n, SUM(b.n) AS s
        FROM a JOIN b ON {ON} WINDOW TUMBLING(a.ts, 4s)""",
    "three": f"""CREATE TABLE t AS SELECT a.n, b.n AS bn, c.n AS cn FROM a LEFT JOIN b ON {ON}
        FULL JOIN c ON c.k = a.k AND c.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS""",
    "groups of three": f"""CREATE TABLE t AS SELECT c.k, COUNT(*) AS n, SUM(b.d) AS d FROM a JOIN b ON {ON}
        JOIN c ON c.k = a.k AND c.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS GROUP BY c.k""",
    "rows without a match": f"""INSERT INTO t SELECT a.n, b.n AS bn, names.name FROM a JOIN b ON {ON}
        LEFT JOIN names ON names.k = a.k WITH ('on.miss' = 'error', 'query.name' = 'q')""",
    "errors": f"CREATE TABLE t AS SELECT a.n, 10 / (b.n % 7) AS q FROM a JOIN b ON {ON}",
}


def some_rows(choice: random.Random, stream: str, start: int, count: int, time: int) -> list[Row]:
    def maybe(value: Any) -> Any:
        return None if choice.random() < 0.1 else value

    made: list[Row] = []
    for n in range(start, start + count):
        at = ZERO + dt.timedelta(seconds=time + choice.randint(-5, 3))
        row: Row = {"n": n, "k": maybe(choice.randint(0, 2)), "ts": maybe(at)}
        if stream != "c":
            row["d"] = maybe(Decimal(choice.randint(0, 8)) / 4)
            row["s"] = maybe(choice.choice(["", "x", "é", "X"]))
        made.append(row)
    return made


def steps(seed: int, streams: str) -> list[tuple[str, list[Row]]]:
    choice, sent = random.Random(seed), dict.fromkeys(streams, 0)
    made = []
    for time in range(0, 18, 3):
        name = streams[(time // 3 + choice.randint(0, 1)) % len(streams)]
        rows = some_rows(choice, name, sent[name], choice.randint(10, 20), time)
        sent[name] += len(rows)
        made.append((name, rows))
    return made


def answers(sql: str, sent: list[tuple[str, list[Row]]], engine: Engine) -> dict[str, pa.Table]:
    made = STREAMS
    if sql.startswith("INSERT"):
        made += "CREATE TABLE t (n INT, bn INT, name STRING);"
    with App(made, engine=engine) as app:
        app.sql(sql)
        for name, rows in sent:
            app.send(name, rows)
            app.drain(120)
        found = {"t": app.sql("SELECT * FROM t").to_arrow()}
        errors = "q$errors" if sql.startswith("INSERT") else "t$errors"
        found["errors"] = app.sql(f"SELECT seq, reason, row FROM `{errors}`").to_arrow()
        about = app.sql("DESCRIBE EXTENDED t").rows()
        found["about"] = pa.table(
            {"p": [r["value"] for r in about if r["property"] in ("kept rows", "late rows")]}
        )
        engines = {s for q in app.sql("SHOW QUERIES").rows() for s in ENGINES if q[f"{s}_rows"]}
        assert engines <= {engine}
    return found


COLLECTED = ("another condition each time", "first and last", "rows without a match")
"""Statements that need the numbers of the pairs."""
WITH_ERRORS = ("errors", "errors below", "rows without a match")
GROUPED = ("groups", "first and last", "windows", "groups of three")
"""Statements whose results have no order."""
QUICK = ("inner", "full", "groups", "three")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in QUERIES]
)
def test_the_same_as_in_process(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stayed: list[JoinedBatch] = []
    made = JoinedBatch.__init__
    monkeypatch.setattr(JoinedBatch, "__init__", lambda *given: stayed.append(given[0]) or made(*given))
    sent = steps(9, "abc") if "three" in kind else steps(len(kind), "ab")
    wanted = answers(QUERIES[kind], sent, "process")
    assert wanted["t"].num_rows > 1 and not stayed
    monkeypatch.setattr(JoinState, "take", None)
    found = answers(QUERIES[kind], sent, "spark")
    assert found.keys() == wanted.keys()
    assert bool(wanted["errors"].num_rows) == (kind in WITH_ERRORS)
    for name, rows in wanted.items():
        assert found[name].schema == rows.schema, name
        order = partial(sorted, key=repr) if name == "t" and kind in GROUPED else list
        assert order(found[name].to_pylist()) == order(rows.to_pylist()), name
    assert bool(stayed) == (kind not in COLLECTED)


ROWS, SAME = 60_000, 5
LARGE = """
CREATE STREAM a (k BIGINT, x BIGINT);
CREATE STREAM b (k BIGINT, y BIGINT);
"""


def test_what_reaches_the_driver(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows, once, to be stored, and groups; no pair."""
    here: list[int] = []
    take = JoinState.take
    monkeypatch.setattr(JoinState, "take", lambda *given: here.append(given[2].num_rows) or take(*given))
    keys = np.arange(ROWS) % (ROWS // SAME)
    with App(LARGE) as app:
        app.send("a", pa.table({"k": keys, "x": np.arange(ROWS)}))
        app.drain()
        jobs = Jobs(spark)
        app.sql(
            "CREATE TABLE t AS SELECT a.x % 10 AS g, COUNT(*) AS n, SUM(b.y) AS s FROM a JOIN b ON a.k = b.k GROUP BY 1"
        )
        app.drain(120)
        app.send("b", pa.table({"k": keys, "y": np.arange(ROWS)}))
        app.drain(120)
        found = app.sql("SELECT SUM(n) AS n, COUNT(*) AS g FROM t").rows()
        queries = app.sql("SHOW QUERIES").rows()
        told = app.sql("EXPLAIN ANALYZE QUERY t").rows()
    assert not any(here)
    assert found == [{"n": ROWS * SAME, "g": 10}]
    assert [(q["process_rows"], q["spark_rows"]) for q in queries] == [(0, ROWS), (0, ROWS)]
    stages = [s for s in jobs.stages if (s.statement or "").startswith("table:t")]
    returned = sum(s.result for s in stages)
    # Numbers of 8 bytes: of both streams with their sequence numbers, and, to be sent to all tasks, what is stored.
    assert 0 < returned < 2 * ROWS * 24 + ROWS * 24 + 500_000 < ROWS * SAME * 32, "no pairs"
    assert any("find pairs by Spark" in r["plan"] for r in told)


def test_a_stored_side_that_is_much_larger_is_looked_up(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the rows with the keys of the batch are passed to Spark."""
    many = 50_000
    passed: list[int] = []
    stage = Staged.__init__

    def noted(self: Staged, session: SparkSession, rows: pa.Table) -> None:
        passed.append(rows.num_rows)
        stage(self, session, rows)

    with App(LARGE, engine="spark") as app:
        app.sql("CREATE TABLE t AS SELECT a.x, b.y FROM a JOIN b ON a.k = b.k")
        app.send("a", pa.table({"k": np.arange(many), "x": np.arange(many)}))
        app.drain(120)
        monkeypatch.setattr(Staged, "__init__", noted)
        app.send("b", pa.table({"k": np.arange(0, 100, 2), "y": np.arange(50)}))
        app.drain(120)
        assert app.sql("SELECT COUNT(*) AS n, SUM(x) AS x FROM t").rows() == [{"n": 50, "x": 2450}]
    assert max(passed) == 50


@pytest.mark.usefixtures("spark")
def test_topics(servers: Servers) -> None:
    """Executors decode their messages; those that they cannot are error records, told when the rows were read."""
    kafka = servers.kafka
    topics = {name: new_topic(kafka, 2) for name in "ab"}
    for name, topic in topics.items():
        messages = [json.dumps({"id": i, "k": i % 20, name: f"{name}{i}"}) for i in range(60)]
        kafka.produce(topic, [(None, m, i % 2) for i, m in enumerate([*messages, "{"])])
    found = []
    for engine in ENGINES:
        streams = "".join(
            f"CREATE STREAM {name} (id BIGINT, k INT, {name} STRING) WITH ('connector' = '{uri(kafka, topic)}');"
            for name, topic in topics.items()
        )
        query = "SELECT a.id, b.id AS other, a.a, b.b FROM a JOIN b ON a.k = b.k"
        with App(f"{streams} CREATE TABLE t AS {query}", engine=engine) as app:
            app.drain(120)
            rows = app.sql("SELECT * FROM t ORDER BY id, other").rows()
            errors = app.sql("SELECT query, stream, seq, reason, row FROM `t$errors` ORDER BY stream").rows()
            found.append((rows, errors))
    assert found[0] == found[1]
    assert len(found[0][0]) == 180 and len(found[0][1]) == 2


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("policy", ["fail", "table"])
def test_topics_with_new_fields(servers: Servers, policy: str) -> None:
    """A field that appears while executors decode becomes a column, and does not stop the statement."""
    kafka = servers.kafka
    topics = {name: new_topic(kafka, 1) for name in "ab"}
    for name, topic in topics.items():
        kafka.produce(topic, [(None, json.dumps({"k": i, name: i}), 0) for i in range(30)])
    streams = "".join(
        f"CREATE STREAM {name} WITH ('connector' = '{uri(kafka, topic)}');" for name, topic in topics.items()
    )
    query = "SELECT a.a, b.b FROM a JOIN b ON a.k = b.k"
    with App(f"{streams} CREATE TABLE t WITH ('on.error' = '{policy}') AS {query}", engine="spark") as app:
        app.drain(120)
        for name, topic in topics.items():
            kafka.produce(topic, [(None, json.dumps({"k": i, name: i, "new": i}), 0) for i in range(30, 60)])
        app.drain(120)
        assert app.sql("SELECT COUNT(*) AS n, SUM(a - b) AS d FROM t").rows() == [{"n": 60, "d": 0}]
        assert {q["state"] for q in app.sql("SHOW QUERIES").rows()} == {"running"}
