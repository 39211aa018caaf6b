"""What every source promises, over every source there is.

A source takes part by a place: a class below, named after its kind, that can add rows to what it reads.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import csv, parquet

from millpond.connectors.memory import source as memory
from millpond.connectors.source import find_source, sources
from millpond.connectors.stream.source import stream_uri
from millpond.errors import NotSupported, UnknownName
from millpond.journal.journal import Journal
from millpond.testing.contracts.source import (
    SCHEMA,
    SourceContract,
    SourcePlace,
    content,
    open_source,
    read,
    rows,
)
from tests.contract.databases import DATABASES, Base
from tests.servers import S3, Kafka
from tests.webserver import WebServer


class FilePlace(SourcePlace):
    count = 0
    values = {"watch.debounce": 0.0, "on.remove": "delete"}
    replaces = True

    def __init__(self, directory: Path):
        super().__init__(directory)
        self.uri = f"file://{directory}/*.{{csv,jsonl,parquet}}"

    def add(self, table: pa.Table) -> None:
        path = self.directory / f"{self.count:03d}"
        match self.count % 3:
            case 0:
                csv.write_csv(table, f"{path}.csv")
            case 1:
                lines = [json.dumps(row) + "\n" for row in table.to_pylist()]
                Path(f"{path}.jsonl").write_text("".join(lines))
            case _:
                parquet.write_table(table, f"{path}.parquet", row_group_size=3)
        self.count += 1

    def replace(self, table: pa.Table) -> None:
        for path in self.directory.iterdir():
            path.unlink()
        self.add(table)


class MemoryPlace(SourcePlace):
    """A table that another app has published."""

    uri = "memory://contract"
    replaces = True

    def __init__(self, directory: Path):
        super().__init__(directory)
        self.table = SCHEMA.arrow().empty_table()
        self.version = 0
        self.published = memory.Published("contract", SCHEMA, lambda: self)
        memory.publish(self.published)

    def scan(self) -> pa.Table:
        return self.table

    def add(self, table: pa.Table) -> None:
        self.replace(pa.concat_tables([self.table, table]))

    def replace(self, table: pa.Table) -> None:
        self.table = table
        self.version += 1

    def close(self) -> None:
        memory.withdraw(self.published)


class HttpPlace(SourcePlace):
    """What a web server answers, four rows to a page."""

    values = {"paging": "link", "poll.interval": 0.01}
    replaces = True

    def __init__(self, directory: Path):
        super().__init__(directory)
        self.web = WebServer()
        self.uri = f"{self.web.url}/0"
        self.replace(SCHEMA.arrow().empty_table())

    def add(self, table: pa.Table) -> None:
        self.replace(pa.concat_tables([self.table, table]))

    def replace(self, table: pa.Table) -> None:
        self.table = table
        for first in range(0, max(len(table), 1), 4):
            more = {"Link": f'</{first + 4}>; rel="next"'} if first + 4 < len(table) else {}
            self.web.json(f"/{first}", table.slice(first, 4).to_pylist(), etag=True, **more)

    def close(self) -> None:
        self.web.close()


class ObjectsPlace(SourcePlace):
    """A bucket of an S3 server."""

    server: S3
    count = 0
    replaces = True

    def __init__(self, directory: Path):
        super().__init__(directory)
        self.values = {**self.server.options, "on.remove": "delete", "watch.interval": 0.05}
        self.bucket = f"contract{uuid.uuid4().hex[:8]}"
        self.client = self.server.client()
        self.client.create_bucket(Bucket=self.bucket)
        self.uri = f"s3://{self.bucket}/*.csv"

    def add(self, table: pa.Table) -> None:
        with pa.BufferOutputStream() as body:
            csv.write_csv(table, body)
        self.client.put_object(
            Bucket=self.bucket, Key=f"{self.count:03d}.csv", Body=body.getvalue().to_pybytes()
        )
        self.count += 1

    def replace(self, table: pa.Table) -> None:
        for number in range(1, self.count):
            self.client.delete_object(Bucket=self.bucket, Key=f"{number:03d}.csv")
        self.count = 0
        self.add(table)


class DeltaPlace(SourcePlace):
    """A Delta table, whose versions are polled."""

    values = {"poll.interval": 0.01}
    replaces = True

    def __init__(self, directory: Path):
        super().__init__(directory)
        self.uri = f"delta://{directory}/t"
        DeltaTable.create(directory / "t", SCHEMA.arrow())

    def add(self, table: pa.Table) -> None:
        write_deltalake(self.directory / "t", table, mode="append")

    def replace(self, table: pa.Table) -> None:
        write_deltalake(self.directory / "t", table, mode="overwrite")


class StreamPlace(SourcePlace):
    def __init__(self, directory: Path):
        super().__init__(directory)
        self.journal = Journal(directory, durable=False)
        self.uri = stream_uri(directory, "s")

    def add(self, table: pa.Table) -> None:
        self.journal.commit(sent={"s": table})

    def close(self) -> None:
        self.journal.close()


class KafkaPlace(SourcePlace):
    """A topic of a real broker."""

    broker: Kafka

    def __init__(self, directory: Path):
        super().__init__(directory)
        self.topic = f"contract{uuid.uuid4().hex[:8]}"
        self.broker.create(self.topic)
        self.uri = f"kafka://{self.broker.brokers}/{self.topic}"

    def add(self, table: pa.Table) -> None:
        self.broker.produce(self.topic, [json.dumps(row) for row in table.to_pylist()])


class DatabasePlace(SourcePlace):
    """A table of a database, polled by a column that grows."""

    values = {"poll.interval": 0.05, "incremental.column": "id", "order.by": "id"}
    numbers = False

    def __init__(self, directory: Path, base: Base):
        super().__init__(directory)
        self.base = base
        base.run(f"CREATE TABLE contract ({base.schema})")
        self.uri = base.uri("contract")

    def add(self, table: pa.Table) -> None:
        self.base.fill("contract", [tuple(row.values()) for row in table.to_pylist()])


PLACES: dict[str, Callable[[Path], SourcePlace]] = {
    "delta": DeltaPlace,
    "file": FilePlace,
    "http": HttpPlace,
    "kafka": KafkaPlace,
    "memory": MemoryPlace,
    "objects": ObjectsPlace,
    "stream": StreamPlace,
}


SERVED = ("kafka", "objects", *DATABASES)
"""Places that need a server."""


@pytest.fixture(
    params=[
        *(name for name in PLACES if name not in SERVED),
        *(pytest.param(name, marks=pytest.mark.slow) for name in SERVED),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SourcePlace]:
    if request.param == "kafka":
        KafkaPlace.broker = request.getfixturevalue("servers").kafka
        request.getfixturevalue("spark")
    if request.param == "objects":
        ObjectsPlace.server = request.getfixturevalue("servers").s3
    if request.param in DATABASES:
        base = DATABASES[request.param](request.getfixturevalue("servers"), tmp_path)
        made: SourcePlace = DatabasePlace(tmp_path, base)
    else:
        made = PLACES[request.param](tmp_path)
    yield made
    made.close()


class TestSources(SourceContract):
    """The suite that ships, over every source there is."""


def test_every_source_has_a_place() -> None:
    assert {*PLACES, *(base.source for base in DATABASES.values())} == {s.kind for s in sources()}


def test_a_stream_from_its_end_begins_after_the_first_offset(tmp_path: Path) -> None:
    place = StreamPlace(tmp_path)
    place.add(rows(0, 5))
    source = open_source(place, start="latest")
    first = source.clip(None, source.latest(None), 2)
    assert source.splits(None, first) == []
    place.add(rows(5, 5))
    assert content(read(source, first, source.latest(first))) == rows(5, 5).to_pylist()
    place.close()


def test_rows_of_a_stream_that_are_not_kept_are_passed_over(tmp_path: Path) -> None:
    place = StreamPlace(tmp_path)
    for first in range(0, 50, 10):
        place.add(rows(first, 10))
    place.journal.trim_stream("s", 30)
    source = open_source(place)
    end = source.latest(None)
    step = source.clip(None, end, 5)
    kept = read(source, None, end)
    assert content(kept) == rows(50 - len(kept), len(kept)).to_pylist()
    assert content(read(source, None, step)) == content(kept)[:5]
    place.close()


def test_a_table_that_nobody_published() -> None:
    published = memory.Published("customers", SCHEMA)
    memory.publish(published)
    source = find_source("memory://custmers")("memory://custmers", {}, None)
    with pytest.raises(UnknownName, match="custmers") as e:
        source.schema()
    memory.withdraw(published)
    assert e.value.hint == 'did you mean "customers"?'


def test_a_scheme_without_a_source() -> None:
    with pytest.raises(NotSupported, match="ftp://") as e:
        find_source("ftp://x/y")
    listed = "abfs://, abfss://, az://, clickhouse://, delta://, file://, gcs://, gs://, http://, https://, kafka://"
    assert listed in (e.value.hint or "")
