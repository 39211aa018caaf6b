"""From topic to topic in Spark's real-time mode."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from millpond import App
from millpond.errors import CheckFailed, NotSupported
from tests.servers import Kafka, Servers
from tests.test_kafka import new_topic, uri

MODE = "'mode' = 'realtime', 'on.error' = 'fail', 'query.name' = 'out', 'commit.interval' = '1s'"


@pytest.fixture
def kafka(servers: Servers) -> Kafka:
    return servers.kafka


def declared(kafka: Kafka, source: str) -> str:
    return f"""
        CREATE TABLE names (sym STRING PRIMARY KEY, name STRING);
        CREATE STREAM orders (id BIGINT, sym STRING, price DECIMAL(10,2), at TIMESTAMP)
          WITH ('connector' = '{uri(kafka, source)}');
    """


def order(number: int) -> tuple[str, str]:
    at = f"2024-01-01T00:00:{number % 60:02}.5Z"
    return f"k{number}", f'{{"id": {number}, "sym": "s{number % 3}", "price": {number}.10, "at": "{at}"}}'


def messages(kafka: Kafka, topic: str) -> dict[int, tuple[bytes | None, str]]:
    return {json.loads(v or b"")["id"]: (k, (v or b"").decode()) for k, v in kafka.consume(topic)}


def wait_for(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.usefixtures("spark")
def test_rows_go_through_as_they_come(kafka: Kafka, tmp_path: Path) -> None:
    source, fast, slow = new_topic(kafka), new_topic(kafka), new_topic(kafka)
    query = """
        SELECT o.sym AS _key, o.id, n.name, o.price * 2 AS twice, o.at FROM orders o LEFT JOIN names n ON o.sym = n.sym
        WHERE o.id % 10 <> 7
    """
    sql = f"{declared(kafka, source)} INSERT INTO {uri(kafka, fast)} {query} WITH ({MODE});"
    state = tmp_path / "state"
    with App(sql, state=state) as app:
        app.sql("INSERT INTO names VALUES ('s1', 'one'), ('s2', 'zwei')")
        kafka.produce(source, map(order, range(20)))
        wait_for(lambda: len(messages(kafka, fast)) == 18)
        # A table that has changed is read again.
        app.sql("UPDATE names SET name = 'two' WHERE sym = 's2'")
        numbers = iter(range(20, 1000))

        def sees_the_change() -> bool:
            kafka.produce(source, [order(next(numbers))])
            return any('"two"' in text for _, text in messages(kafka, fast).values())

        wait_for(sees_the_change)
        app.drain(60)
        described = app.sql("SHOW QUERIES").rows()[0]
        assert described["state"] == "running" and described["lag"] == 0
        sent = next(numbers)
    # What was noted is not read again, what came meanwhile is not lost.
    kafka.produce(source, map(order, range(sent, sent + 10)))
    with App(sql, state=state) as app:
        app.drain(60)
        app.sql(f"INSERT INTO {uri(kafka, slow)} {query} WITH ('query.name' = 'slow')")
        app.drain(120)
    by_batch, by_row = messages(kafka, slow), messages(kafka, fast)
    assert set(by_row) == set(by_batch) == {n for n in range(sent + 10) if n % 10 != 7}
    for number in range(sent, sent + 10):
        # The same bytes, whoever decodes, joins and encodes.
        assert by_row.get(number) == by_batch.get(number)
    key, text = by_row[next(n for n in range(sent, sent + 10) if n in by_row and n % 3 == 1)]
    assert key == b"s1" and '"name":"one"' in text and '.20,"at":"2024-01-01T00:00:' in text


@pytest.mark.usefixtures("spark")
def test_a_message_that_is_no_json_ends_the_query(kafka: Kafka, tmp_path: Path) -> None:
    source, target = new_topic(kafka), new_topic(kafka)
    sql = f"{declared(kafka, source)} INSERT INTO {uri(kafka, target)} SELECT id FROM orders WITH ({MODE});"
    with App(sql, state=tmp_path / "state") as app:
        kafka.produce(source, [order(1), "{nonsense"])
        wait_for(lambda: app.sql("SHOW QUERIES").rows()[0]["state"] == "failed")
        assert "MALFORMED" in app.sql("SHOW QUERIES").rows()[0]["error"]


@pytest.mark.parametrize(
    ("query", "options", "why"),
    [
        ("SELECT id FROM orders", "'mode' = 'realtime'", "there is no error table"),
        ("SELECT id FROM orders", f"{MODE}, 'delivery' = 'exactly-once'", "it writes at least once"),
        ("SELECT id FROM s", MODE, "it reads one topic of Kafka"),
        ("SELECT DISTINCT id FROM orders", MODE, "an aggregate needs batches"),
        ("SELECT sym, COUNT(*) AS n FROM orders GROUP BY sym", MODE, "an aggregate needs batches"),
        ("SELECT id, (SELECT MAX(name) FROM names) AS m FROM orders", MODE, "it has no subqueries"),
        ("SELECT id, RANK() OVER (ORDER BY id) AS r FROM orders", MODE, "OVER needs batches"),
        ("SELECT o.id FROM orders o RIGHT JOIN names n ON o.sym = n.sym", MODE, "RIGHT JOIN needs batches"),
        ("SELECT o.id FROM names n LEFT JOIN orders o ON o.sym = n.sym", MODE, "has the stream first"),
        ("SELECT o.id FROM orders o JOIN names n ON o.sym > n.sym", MODE, "needs an equality of columns"),
        (
            "SELECT o.id FROM orders o LEFT JOIN names n ON o.sym = n.sym",
            f"{MODE}, 'on.miss' = 'drop'",
            "'on.miss' needs batches",
        ),
    ],
)
def test_what_cannot_run_so_is_refused(query: str, options: str, why: str) -> None:
    sql = f"""
        CREATE STREAM orders (id BIGINT, sym STRING) WITH ('connector' = 'kafka://localhost:1/orders');
        CREATE STREAM s (id BIGINT);
        CREATE TABLE names (sym STRING PRIMARY KEY, name STRING);
        INSERT INTO kafka://localhost:1/out {query} WITH ({options});
    """
    with pytest.raises((NotSupported, CheckFailed), match=f"'mode' = 'realtime': .*{why}"):
        App(sql)
