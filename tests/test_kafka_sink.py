"""Kafka as a sink: what is written, and that it is written once across kills."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from millpond import App, Error
from millpond.connectors.kafka.sink import KafkaSink, _metadata, _of_metadata
from millpond.engine_rule import Engine
from millpond.errors import InvalidOption, NetworkIssue, NotSupported
from millpond.formats.jsontext import to_json
from millpond.testing.crash import crash
from tests.servers import Kafka, Servers
from tests.test_kafka import new_topic, orders, uri


@pytest.fixture
def kafka(servers: Servers) -> Kafka:
    return servers.kafka


def _app(kafka: Kafka, source: str, target: str, delivery: str) -> str:
    return f"""
        CREATE TABLE names (sym STRING PRIMARY KEY, name STRING);
        INSERT INTO names VALUES ('s1', 'one'), ('s2', 'two');
        CREATE STREAM orders (id BIGINT, sym STRING, price DECIMAL(10,2)) WITH ('connector' = '{uri(kafka, source)}');
        INSERT INTO {uri(kafka, target)}
          SELECT o.sym AS _key, o.id, n.name, o.price FROM orders o LEFT JOIN names n ON o.sym = n.sym
          WITH ('delivery' = '{delivery}', 'topic.create.if.missing' = 'true', 'query.name' = 'out');
    """


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
@pytest.mark.usefixtures("spark")
def test_rows_become_messages(kafka: Kafka, tmp_path: Path, delivery: str) -> None:
    source, target = new_topic(kafka, 2), f"out-{delivery}-{random.randrange(10**9)}"
    kafka.produce(source, orders(range(100)))
    with App(_app(kafka, source, target, delivery), state=tmp_path / "state") as app:
        app.drain(120)
        found = kafka.consume(target)
        assert len(found) == 100
        by_id = {json.loads(v or b"")["id"]: (k, v) for k, v in found}
        assert by_id[4] == (b"s1", b'{"id":4,"name":"one","price":4.25}')
        assert by_id[3] == (b"s0", b'{"id":3,"name":null,"price":3.25}')
        kafka.produce(source, orders(range(100, 110)))
        app.drain(120)
        assert len(kafka.consume(target)) == 110
        assert app.sql("SHOW QUERIES").rows()[0]["name"] == "out"
        wanted = {"at-least-once": "at least once", "exactly-once": "exactly once"}[delivery]
        plan = app.sql(
            f"EXPLAIN INSERT INTO {uri(kafka, target)} SELECT id FROM orders WITH ('delivery' = '{delivery}')"
        ).rows()
        assert wanted in plan[-1]["plan"]


@pytest.mark.usefixtures("spark")
def test_a_batch_that_kafka_has_is_not_written_again(kafka: Kafka, tmp_path: Path) -> None:
    """The app ends between Kafka's commit and its own."""
    source, target = new_topic(kafka), f"out-{random.randrange(10**9)}"
    kafka.produce(source, orders(range(50)))
    sql = _app(kafka, source, target, "exactly-once")
    with App(sql, state=tmp_path / "state") as app:
        statement = app._runtime.runner.get("out").statement
        write = statement.write

        def cut_off(*args: object, **more: object) -> object:
            app._runtime.runner._turn._ended = True
            statement.write = write
            raise Error("cut off")

        statement.write = cut_off
        deadline = time.monotonic() + 120
        while len(kafka.consume(target)) < 50:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        crash(app)
    assert len(kafka.consume(target)) == 50
    kafka.produce(source, orders(range(50, 70)))
    with App(
        sql.replace("INSERT INTO names VALUES ('s1', 'one'), ('s2', 'two');", ""), state=tmp_path / "state"
    ) as app:
        app.drain(120)
    assert sorted(json.loads(v or b"")["id"] for _, v in kafka.consume(target)) == list(range(70))


@pytest.mark.usefixtures("spark")
def test_a_dropped_query_leaves_no_position_to_a_new_one(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the brokers could not be reached when it was dropped: the new one begins at the beginning."""

    def unreachable(*_: object) -> None:
        raise NetworkIssue("gone")

    target = new_topic(kafka)
    insert = f"""INSERT INTO {uri(kafka, target)} SELECT id FROM s
        WITH ('delivery' = 'exactly-once', 'query.name' = 'q')"""
    with App("CREATE STREAM s (id BIGINT)", state=tmp_path / "state") as app:
        app.send("s", [{"id": 1}, {"id": 2}])
        app.sql(insert)
        app.drain(120)
        with monkeypatch.context() as patched:
            patched.setattr(KafkaSink, "forget", unreachable)
            app.sql("DROP QUERY q")
        app.sql(insert)
        app.drain(120)
    assert sorted(json.loads(v or b"")["id"] for _, v in kafka.consume(target)) == [1, 1, 2, 2]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("delivery", "of_topic", "of_client"),
    [("exactly-once", "1100", "1000000"), ("at-least-once", "1000000", "1000")],
)
def test_a_message_that_is_too_large_is_put_aside(
    kafka: Kafka, tmp_path: Path, delivery: str, of_topic: str, of_client: str
) -> None:
    target = new_topic(kafka, **{"max.message.bytes": of_topic})
    sql = f"""
        CREATE STREAM s (id BIGINT, body STRING);
        INSERT INTO {uri(kafka, target)} SELECT id, body FROM s
        WITH ('delivery' = '{delivery}', 'query.name' = 'out', 'kafka.max.request.size' = '{of_client}')
    """
    with App(sql, state=tmp_path / "state") as app:
        app.send("s", [{"id": i, "body": "x" * (2000 if i == 3 else 10)} for i in range(6)])
        app.drain(120)
        assert sorted(json.loads(v or b"")["id"] for _, v in kafka.consume(target)) == [0, 1, 2, 4, 5]
        errors = app.sql("SELECT reason FROM `out$errors`").rows()
        assert len(errors) == 1 and "larger than 1,000" in errors[0]["reason"]


def _values(kafka: Kafka, topic: str) -> list[tuple[str | None, object]]:
    return [
        (k.decode() if k is not None else None, None if v is None else json.loads(v))
        for k, v in kafka.consume(topic)
    ]


@pytest.mark.usefixtures("spark")
def test_an_aggregate_is_a_stream_of_its_groups(kafka: Kafka, tmp_path: Path) -> None:
    """The last message of a key is the group; one that HAVING takes away ends. A keyed table reads it back."""
    target = new_topic(kafka)
    sql = f"""
        CREATE STREAM s (sym STRING, qty INT);
        INSERT INTO {uri(kafka, target)}
          SELECT sym, COUNT(*) AS n, SUM(qty) AS total FROM s GROUP BY sym HAVING SUM(qty) < 10
          WITH ('query.name' = 'out');
        CREATE STREAM again (sym STRING, n BIGINT, total BIGINT) WITH ('connector' = '{uri(kafka, target)}');
        CREATE TABLE groups (PRIMARY KEY (sym)) AS SELECT sym, n, total FROM again;
    """
    with App(sql, state=tmp_path / "state") as app:
        app.send("s", [{"sym": "a", "qty": 1}, {"sym": "b", "qty": 2}])
        app.drain(120)
        assert sorted(_values(kafka, target), key=str) == [
            ("a", {"sym": "a", "n": 1, "total": 1}),
            ("b", {"sym": "b", "n": 1, "total": 2}),
        ]
    with App(sql, state=tmp_path / "state") as app:
        app.send("s", [{"sym": "a", "qty": 3}, {"sym": "b", "qty": 20}, {"sym": None, "qty": 5}])
        app.drain(120)
        assert sorted(_values(kafka, target)[2:], key=str) == [
            ("a", {"sym": "a", "n": 2, "total": 4}),
            ("b", None),
            ('{"sym":null}', {"sym": None, "n": 1, "total": 5}),
        ]
        app.drain(120)
        assert app.sql("SELECT * FROM groups").rows() == [{"sym": "a", "n": 2, "total": 4}]
        plan = app.sql(
            f"EXPLAIN INSERT INTO {uri(kafka, target)} SELECT sym, COUNT(*) AS n FROM s GROUP BY sym"
        )
        assert "at least once" in plan.rows()[-1]["plan"]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_joined_streams_and_rows_of_tables(kafka: Kafka, tmp_path: Path, engine: Engine) -> None:
    joined, rows = new_topic(kafka), new_topic(kafka)
    sql = f"""
        CREATE STREAM a (id INT, x STRING);
        CREATE STREAM b (id INT, y STRING);
        CREATE TABLE names (x STRING PRIMARY KEY, name STRING);
        INSERT INTO names VALUES ('p', 'pear'), ('q', 'quince');
        INSERT INTO {uri(kafka, rows)} SELECT x AS _key, name FROM names;
        INSERT INTO {uri(kafka, joined)}
          SELECT a.id, a.x, b.y, n.name FROM a JOIN b ON a.id = b.id LEFT JOIN names n ON a.x = n.x
          WITH ('query.name' = 'out');
    """
    for _ in range(2):  # what was written once is not written again
        with App(sql, state=tmp_path / "state", engine=engine) as app:
            app.drain(120)
            assert sorted(_values(kafka, rows), key=str) == [
                ("p", {"name": "pear"}),
                ("q", {"name": "quince"}),
            ]
    with App(sql, state=tmp_path / "state", engine=engine) as app:
        app.send("a", [{"id": 1, "x": "p"}, {"id": 2, "x": "z"}])
        app.drain(120)
        app.send("b", [{"id": 1, "y": "one"}, {"id": 2, "y": "two"}, {"id": 3, "y": "three"}])
        app.drain(120)
        assert sorted(_values(kafka, joined), key=str) == [
            (None, {"id": 1, "x": "p", "y": "one", "name": "pear"}),
            (None, {"id": 2, "x": "z", "y": "two", "name": None}),
        ]


def test_what_exactly_once_cannot_be(kafka: Kafka) -> None:
    target = uri(kafka, new_topic(kafka))
    declared = "CREATE STREAM s (id INT); CREATE STREAM r (id INT); CREATE TABLE t (id INT);"
    exact = "WITH ('delivery' = 'exactly-once')"
    for query in ("id, COUNT(*) AS n FROM s GROUP BY id", "s.id FROM s JOIN r ON s.id = r.id", "id FROM t"):
        with pytest.raises(NotSupported, match="'delivery' = 'exactly-once' of"):
            App(f"{declared} INSERT INTO {target} SELECT {query} {exact}")
    with pytest.raises(NotSupported, match="must give all its grouping columns"):
        App(f"{declared} INSERT INTO {target} SELECT COUNT(*) AS n FROM s GROUP BY id")
    with pytest.raises(InvalidOption, match="has no primary key"):
        App(f"{declared} INSERT INTO {target} SELECT id FROM t EMIT CHANGES")


@pytest.mark.usefixtures("spark")
def test_a_partition_that_is_not_there_is_put_aside(kafka: Kafka, tmp_path: Path) -> None:
    target = new_topic(kafka, 2)
    sql = f"""
        CREATE STREAM s (id INT, p INT);
        INSERT INTO {uri(kafka, target)} SELECT id, p AS _partition FROM s
        WITH ('delivery' = 'exactly-once', 'query.name' = 'out')
    """
    with App(sql, state=tmp_path / "state") as app:
        app.send("s", [{"id": i, "p": p} for i, p in enumerate([0, 1, None, 7])])
        app.drain(120)
        assert sorted(json.loads(v or b"")["id"] for _, v in kafka.consume(target)) == [0, 1, 2]
        assert "has partitions 0 to 1" in app.sql("SELECT reason FROM `out$errors`").rows()[0]["reason"]


def test_a_position_of_many_partitions_fits_into_a_commit_of_kafka() -> None:
    offsets = {"s": {str(p): 10**9 + p * 7919 for p in range(250)} | {"topic": "f" * 22}}
    noted = {"pipeline": "out", "batch": 7, "offsets": offsets}
    assert len(_metadata(noted)) < 4096 < len(json.dumps(noted))
    assert _of_metadata(_metadata(noted)) == noted
    assert _of_metadata(_metadata({"batch": 1})) == {"batch": 1}


def test_what_is_refused(kafka: Kafka) -> None:
    target = uri(kafka, new_topic(kafka))
    with pytest.raises(NotSupported, match="needs a state directory"):
        App(
            f"CREATE STREAM s (id INT); INSERT INTO {target} SELECT id FROM s WITH ('delivery' = 'exactly-once')"
        )
    with pytest.raises(InvalidOption, match="writes one column of type STRING"):
        App(f"CREATE STREAM s (id INT); INSERT INTO {target} SELECT id FROM s WITH ('format' = 'text')")
    with pytest.raises(Error, match="delivery"):
        App(f"CREATE STREAM s (id INT); INSERT INTO {target} SELECT id FROM s WITH ('delivery' = 'twice')")


def test_json_of_rows() -> None:
    rows = pa.table(
        {
            "id": pa.array([1, None]),
            "text": pa.array(['a "quoted"\n', "plain"]),
            "exact": pa.array([Decimal("12345678901234567890.12"), None], pa.decimal128(38, 2)),
            "real": pa.array([float("nan"), -0.5]),
            "at": pa.array([datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "day": pa.array([datetime(2024, 1, 2).date(), None]),
            "list": pa.array([[Decimal("1.10")], []], pa.list_(pa.decimal128(5, 2))),
            "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "yes": pa.array([True, None]),
        }
    )
    first, second = [v.decode() for v in to_json(rows).to_pylist()]
    assert first == (
        '{"id":1,"text":"a \\"quoted\\"\\n","exact":12345678901234567890.12,"real":"NaN",'
        '"at":"2024-01-02T03:04:05.000006Z","day":"2024-01-02","list":[1.10],"map":{"k":1},"yes":true}'
    )
    assert json.loads(second) == {
        "id": None, "text": "plain", "exact": None, "real": -0.5, "at": None, "day": None, "list": [], "map": {},
        "yes": None,
    }  # fmt: skip


_RUN = """
import sys
from millpond import App
with App(open(sys.argv[1]).read(), state=sys.argv[2]) as app:
    print("up", flush=True)
    app.drain(600)
    print("done", flush=True)
"""


def _kills(kafka: Kafka, directory: Path, kills: int, records: int, seed: int) -> None:
    """Kafka → join → Kafka with kills at random moments: a reader of committed records sees each row once."""
    chance = random.Random(seed)
    source, target = new_topic(kafka, 2), f"out-{chance.randrange(10**9)}-{records}-{random.randrange(10**6)}"
    sql = _app(kafka, source, target, "exactly-once").replace(
        "INSERT INTO names VALUES ('s1', 'one'), ('s2', 'two');", ""
    )
    sql = sql.replace(
        "CREATE TABLE names (sym STRING PRIMARY KEY, name STRING);",
        f"CREATE TABLE names (sym STRING, name STRING, PRIMARY KEY (sym)) AS SELECT * FROM file://{directory}/names.csv;",
    )
    (directory / "names.csv").write_text("sym,name\ns1,one\ns2,two\n")
    (directory / "app.sql").write_text(sql)
    command = [sys.executable, "-c", _RUN, str(directory / "app.sql"), str(directory / "state")]
    share = records // (kills + 1)
    for kill in range(kills):
        kafka.produce(source, orders(range(kill * share, (kill + 1) * share)))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline().strip() == "up"
        time.sleep(chance.uniform(0, 4))
        process.kill()
        process.wait()
    kafka.produce(source, orders(range(kills * share, records)))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert ended.stdout.splitlines()[-1:] == ["done"], ended.stderr
    found = [json.loads(v or b"") for _, v in kafka.consume(target)]
    assert sorted(f["id"] for f in found) == list(range(records))
    names = {0: None, 1: "one", 2: "two"}
    assert all(f["name"] == names[f["id"] % 3] for f in found)


@pytest.mark.slow
def test_each_row_once_across_kills(kafka: Kafka, tmp_path: Path) -> None:
    _kills(kafka, tmp_path, 3, 20_000, seed=1)


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_each_row_once_across_fifty_kills(kafka: Kafka, tmp_path: Path) -> None:
    _kills(kafka, tmp_path, 50, 500_000, seed=2)
