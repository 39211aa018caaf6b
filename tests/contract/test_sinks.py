"""What every sink promises, over every sink there is, in each way of delivery."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from millpond.connectors.sink import sinks
from millpond.connectors.source import SEQ, find_source
from millpond.errors import ConfigurationIssue, FileMissing
from millpond.testing.contracts import SinkContract, SinkPlace
from millpond.testing.contracts.sink import NAME, make_sink, open_sink, write
from millpond.testing.contracts.source import SCHEMA, rows
from tests.servers import Kafka
from tests.webserver import Asked, Reply, WebServer


class KafkaPlace(SinkPlace):
    """A topic of a real broker, of one partition."""

    kind = "kafka"
    broker: Kafka
    refused = pa.table({"id": [1, 2], "name": ["a", "x" * 3_000_000]}, SCHEMA.arrow())

    def __init__(self, delivery: str):
        self.topic = f"contract{uuid.uuid4().hex[:8]}"
        self.broker.create(self.topic)
        self.uri = f"kafka://{self.broker.brokers}/{self.topic}"
        self.values = {"delivery": delivery}

    def written(self) -> list[dict[str, Any]]:
        return [json.loads(value or b"") for _, value in self.broker.consume(self.topic)]


class ConsolePlace(SinkPlace):
    """The standard output of the process, for as long as the test runs."""

    uri = "console://"

    def __init__(self, request: pytest.FixtureRequest):
        self._capture = request.getfixturevalue("capsys")
        self._out = ""

    def written(self) -> list[dict[str, Any]]:
        self._out += self._capture.readouterr().out
        return [json.loads(line) for line in self._out.splitlines()]


class FilePlace(SinkPlace):
    """A directory, which a source reads back."""

    def __init__(self, request: pytest.FixtureRequest, form: str, **values: Any):
        self._folder = request.getfixturevalue("tmp_path") / "out"
        self.uri = f"file://{self._folder}"
        self.values = {"format": form, **values}

    def written(self) -> list[dict[str, Any]]:
        files = sorted(p for p in self._folder.rglob("*.*") if p.is_file() and ".millpond" not in p.parts)
        return [row for file in files for row in read_back(f"file://{file}", {})]


class ObjectPlace(SinkPlace):
    """A bucket of a server of moto."""

    def __init__(self, request: pytest.FixtureRequest, form: str):
        s3 = request.getfixturevalue("servers").s3
        name = f"b{uuid.uuid4().hex[:10]}"
        s3.client().create_bucket(Bucket=name)
        self.uri = f"s3://{name}/out"
        self.values = {"format": form, **s3.options}
        self._read = {"watch": False, **s3.options}

    def written(self) -> list[dict[str, Any]]:
        try:
            return read_back(self.uri, self._read)
        except FileMissing:
            return []


class HttpPlace(SinkPlace):
    """A web server that keeps what it is sent."""

    def __init__(self, form: str):
        self._web, self._rows = WebServer(), []
        self.uri = f"{self._web.url}/rows"
        self.values = {"format": form}
        self._web.routes["/rows"] = self._keep

    def _keep(self, asked: Asked) -> Reply:
        lines = asked.body.splitlines() if self.values["format"] == "jsonl" else [asked.body]
        for found in map(json.loads, lines):
            self._rows += found if isinstance(found, list) else [found]
        return 204, {}, b""

    def written(self) -> list[dict[str, Any]]:
        return self._rows

    def close(self) -> None:
        self._web.close()


class DatabasePlace(SinkPlace):
    """A table of a database, which the sink creates; rows are compared in the order of their ids."""

    refused = pa.table({"id": [1, 2], "name": ["a", "b\0"]}, SCHEMA.arrow())

    def __init__(self, url: str, read: Callable[[str], list[tuple[Any, ...]]], **values: Any):
        self.uri = f"{url}{'&' if '?' in url else '?'}table=sunk"
        self.values, self._read = values, read

    def written(self) -> list[dict[str, Any]]:
        try:
            found = self._read("SELECT id, name FROM sunk ORDER BY id")
        except (
            Exception
        ) as error:  # each driver has its own, for a table that is not there, or has another column
            assert "sunk" in str(error) or "id" in str(error), error
            return []
        return [{"id": row[0], "name": row[1]} for row in found]


def postgres_place(request: pytest.FixtureRequest, **values: Any) -> DatabasePlace:
    url = request.getfixturevalue("servers").postgresql.new_schema(f"sink{uuid.uuid4().hex[:8]}")

    def read(sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(url) as connection:
            return connection.execute(sql).fetchall()

    return DatabasePlace(url, read, **values)


def mysql_place(request: pytest.FixtureRequest, **values: Any) -> DatabasePlace:
    server = request.getfixturevalue("servers").mariadb
    name = f"sink{uuid.uuid4().hex[:8]}"
    place = DatabasePlace(server.new_database(name), lambda sql: server.execute(sql, name), **values)
    place.refused = None  # its texts may have any character
    return place


def sqlite_place(request: pytest.FixtureRequest, **values: Any) -> DatabasePlace:
    path = request.getfixturevalue("tmp_path") / "out.db"

    def read(sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(sql).fetchall()

    place = DatabasePlace(f"sql://sqlite:///{path}", read, **values)
    place.refused = None  # its texts may have any character
    return place


def clickhouse_place(request: pytest.FixtureRequest, **values: Any) -> DatabasePlace:
    server = request.getfixturevalue("servers").clickhouse
    name = f"sink{uuid.uuid4().hex[:8]}"

    def read(sql: str) -> list[tuple[Any, ...]]:
        lines = server.execute(f"{sql} FORMAT JSONCompactEachRow", name).splitlines()
        return [(int(number), text) for number, text in map(json.loads, lines)]

    place = DatabasePlace(server.new_database(name), read, **values)
    place.refused = None  # there is no transaction that tries it
    return place


class DeltaPlace(SinkPlace):
    """A Delta table, which the sink creates; rows are compared in the order of their ids."""

    def __init__(self, request: pytest.FixtureRequest, **values: Any):
        self._folder = str(request.getfixturevalue("tmp_path") / "table")
        self.uri, self.values = f"delta://{self._folder}", values

    def written(self) -> list[dict[str, Any]]:
        if not DeltaTable.is_deltatable(self._folder):
            return []
        found = DeltaTable(self._folder).to_pyarrow_table()
        return found.sort_by("id").to_pylist() if "id" in found.column_names else []


def read_back(uri: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    source = find_source(uri)(uri, values, SCHEMA)
    splits = source.splits(None, source.latest(None))
    batches = [batch for split in splits for batch in source.read(split)]
    return [row for b in batches for row in b.drop_columns([SEQ]).to_pylist()]


def kafka_place(request: pytest.FixtureRequest, delivery: str) -> KafkaPlace:
    KafkaPlace.broker = request.getfixturevalue("servers").kafka
    request.getfixturevalue("spark")
    return KafkaPlace(delivery)


PLACES: dict[str, Callable[[pytest.FixtureRequest], SinkPlace]] = {
    "console": ConsolePlace,
    "file csv": lambda request: FilePlace(request, "csv", compression="gzip"),
    "file jsonl": lambda request: FilePlace(request, "jsonl", compression="zstd"),
    "file parquet": lambda request: FilePlace(request, "parquet"),
    "file avro": lambda request: FilePlace(request, "avro", compression="gzip"),
    "file at least once": lambda request: FilePlace(request, "jsonl", delivery="at-least-once"),
    "http json": lambda request: HttpPlace("json"),
    "http jsonl": lambda request: HttpPlace("jsonl"),
    "http object": lambda request: HttpPlace("object"),
    "objects parquet": lambda request: ObjectPlace(request, "parquet"),
    "postgresql append": lambda request: postgres_place(request),
    "postgresql upsert": lambda request: postgres_place(request, key="id"),
    "postgresql at least once": lambda request: postgres_place(request, delivery="at-least-once"),
    "mysql append": lambda request: mysql_place(request),
    "mysql upsert": lambda request: mysql_place(request, key="id"),
    "sql append": lambda request: sqlite_place(request),
    "sql upsert": lambda request: sqlite_place(request, key="id"),
    "sql at least once": lambda request: sqlite_place(request, delivery="at-least-once"),
    "clickhouse append": lambda request: clickhouse_place(request),
    "clickhouse by key": lambda request: clickhouse_place(request, key="id"),
    "delta append": lambda request: DeltaPlace(request),
    "delta upsert": lambda request: DeltaPlace(request, key="id"),
    "delta at least once": lambda request: DeltaPlace(request, delivery="at-least-once"),
    "kafka at least once": lambda request: kafka_place(request, "at-least-once"),
    "kafka exactly once": lambda request: kafka_place(request, "exactly-once"),
}
SERVED = ("kafka", "objects", "postgresql", "mysql", "clickhouse")


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.slow if name.startswith(SERVED) else ()) for name in PLACES]
)
def place(request: pytest.FixtureRequest) -> Iterator[SinkPlace]:
    made = PLACES[request.param](request)
    yield made
    made.close()


class TestSinks(SinkContract):
    """The suite that ships, over every sink there is."""

    def test_two_owners_do_not_take_turns(self, place: SinkPlace) -> None:
        """The one that was shut out is not retried; whoever starts it again wants it to go on."""
        one = open_sink(place)
        if not one.exact or place.uri.startswith("kafka"):
            one.close()
            return
        write(one, rows(0, 5), 0)
        two = open_sink(place)
        for _ in range(2):
            with pytest.raises(ConfigurationIssue) as found:
                if one.is_open:
                    write(one, rows(5, 5), 1)
                else:
                    two.open(NAME)  # it is still the owner: a lost connection changes nothing
                    write(two, rows(5, 5), 1)
                    assert one.open(NAME) is not None
                    write(two, rows(10, 5), 2)
            assert not found.value.retryable
        assert place.written() == rows(0, 10).to_pylist()
        one.close()
        two.close()

    def test_forgetting_needs_no_target(self, place: SinkPlace) -> None:
        if not place.uri.startswith("kafka"):  # a group that is not there is an error of the brokers
            make_sink(place).forget(NAME)
        assert place.written() == []


def test_every_sink_has_a_place() -> None:
    assert {name.split()[0] for name in PLACES} == {s.kind for s in sinks()}
