"""What every source promises, over every source there is.

A source takes part by a world: a class below, named after its kind, that can add rows to what it reads.
"""

from __future__ import annotations

import json
import pickle
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from millpond.changes import Offset
from millpond.connectors.memory import source as memory
from millpond.connectors.source import SEQ, NativeSource, Source, Split, find_source, sources
from millpond.connectors.stream.source import stream_uri
from millpond.errors import NotSupported, UnknownName
from millpond.journal.journal import Journal
from millpond.types import Column, Schema
from tests.contract.databases import DATABASES, Base
from tests.servers import S3, Kafka
from tests.webserver import WebServer

SCHEMA = Schema((Column("id", pa.int64()), Column("name", pa.string())))


def rows(first: int, count: int) -> pa.Table:
    names = [None if i % 7 == 0 else f"n{i}" for i in range(first, first + count)]
    return pa.table({"id": range(first, first + count), "name": names}, SCHEMA.arrow())


class World:
    """Where a source reads from. ``add`` puts rows there that come after those that are there."""

    uri: str
    values: dict[str, Any] = {}
    replaces = False
    numbers = True
    """Whether the sequence numbers of rows that come later are those that they have in the whole."""

    def __init__(self, directory: Path):
        self.directory = directory

    def add(self, table: pa.Table) -> None:
        raise NotImplementedError

    def replace(self, table: pa.Table) -> None:
        """Puts rows there in place of those that are there; of worlds of which ``replaces`` is true."""
        raise NotImplementedError

    def close(self) -> None:
        return


class FileWorld(World):
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


class MemoryWorld(World):
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


class HttpWorld(World):
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


class ObjectsWorld(World):
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


class StreamWorld(World):
    def __init__(self, directory: Path):
        super().__init__(directory)
        self.journal = Journal(directory, durable=False)
        self.uri = stream_uri(directory, "s")

    def add(self, table: pa.Table) -> None:
        self.journal.commit(sent={"s": table})

    def close(self) -> None:
        self.journal.close()


class KafkaWorld(World):
    """A topic of a real broker."""

    broker: Kafka

    def __init__(self, directory: Path):
        super().__init__(directory)
        self.topic = f"contract{uuid.uuid4().hex[:8]}"
        self.broker.create(self.topic)
        self.uri = f"kafka://{self.broker.brokers}/{self.topic}"

    def add(self, table: pa.Table) -> None:
        self.broker.produce(self.topic, [json.dumps(row) for row in table.to_pylist()])


class DatabaseWorld(World):
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


WORLDS: dict[str, type[World]] = {
    "file": FileWorld,
    "http": HttpWorld,
    "kafka": KafkaWorld,
    "memory": MemoryWorld,
    "objects": ObjectsWorld,
    "stream": StreamWorld,
}


SERVED = ("kafka", "objects", *DATABASES)
"""Worlds that need a server."""


@pytest.fixture(
    params=[
        *(name for name in WORLDS if name not in SERVED),
        *(pytest.param(name, marks=pytest.mark.slow) for name in SERVED),
    ]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "kafka":
        KafkaWorld.broker = request.getfixturevalue("servers").kafka
        request.getfixturevalue("spark")
    if request.param == "objects":
        ObjectsWorld.server = request.getfixturevalue("servers").s3
    if request.param in DATABASES:
        base = DATABASES[request.param](request.getfixturevalue("servers"), tmp_path)
        made: World = DatabaseWorld(tmp_path, base)
    else:
        made = WORLDS[request.param](tmp_path)
    yield made
    made.close()


def open_source(world: World, declared: Schema | None = SCHEMA, **values: Any) -> Source:
    return find_source(world.uri)(world.uri, {**world.values, **values}, declared)


def through_json(offset: Offset) -> Offset:
    loaded: Offset = json.loads(json.dumps(offset))
    assert loaded == offset
    return loaded


def read(source: Source, start: Offset | None, end: Offset) -> pa.Table:
    """The rows of a range; splits and source travel as they would to an executor. What Spark reads, it reads."""
    if isinstance(source, NativeSource):
        return read_by_spark(pickle.loads(pickle.dumps(source)), start, end)
    splits: list[Split] = pickle.loads(pickle.dumps(source.splits(start, end)))
    reader = source if source.local else pickle.loads(pickle.dumps(source))
    schema = source.schema().arrow().append(pa.field(SEQ, pa.int64()))
    batches: list[pa.RecordBatch] = []
    for split in splits:
        found = list(reader.read(split))
        assert all(b.schema == schema for b in found)
        estimated = split.rows is None or not source.stands(end)
        assert estimated or split.rows == sum(b.num_rows for b in found)
        batches += found
    table = pa.Table.from_batches(batches, schema)
    table.validate(full=True)
    seqs = table.column(SEQ).to_pylist()
    assert seqs == sorted(set(seqs)) and None not in seqs
    return table


def read_by_spark(source: NativeSource, start: Offset | None, end: Offset) -> pa.Table:
    from millpond.engine.batch import Batch
    from millpond.engine.session import get_session

    batch = Batch(source, start, end, limit=0, spark=get_session)
    table = batch.read()
    assert batch.size == table.num_rows
    assert table.schema == source.schema().arrow().append(pa.field(SEQ, pa.int64()))
    return table.select([*visible(source.schema()).names, SEQ])


def visible(schema: Schema) -> Schema:
    return Schema(tuple(c for c in schema if not c.hidden))


def content(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.drop_columns([SEQ]).to_pylist()
    return found


def test_every_source_has_a_world() -> None:
    assert {*WORLDS, *(base.source for base in DATABASES.values())} == {s.kind for s in sources()}


def test_options_are_declared_with_help_and_a_default_of_their_kind() -> None:
    for source in sources():
        assert source.kind and source.schemes
        names = [o.name for o in source.options]
        assert len(set(names)) == len(names)
        assert all(o.help and o.help[0].islower() and not o.help.endswith(".") for o in source.options)


def test_the_bulk_is_everything_as_of_an_offset(world: World) -> None:
    world.add(rows(0, 10))
    source = open_source(world)
    assert visible(source.schema()) == SCHEMA
    end = through_json(source.latest(None))
    world.add(rows(10, 5))
    assert content(read(source, None, end)) == rows(0, 10).to_pylist()


def test_a_range_read_twice_gives_the_same_rows(world: World) -> None:
    for first in range(0, 40, 8):
        world.add(rows(first, 8))
    source = open_source(world)
    end = source.latest(None)
    once = read(source, None, end)
    assert content(once) == rows(0, 40).to_pylist()
    assert read(source, None, through_json(end)).equals(once)
    if not source.local:
        assert read(open_source(world), None, end).equals(once)


def test_what_is_received_is_what_is_read(world: World) -> None:
    """With nothing put aside where nothing is wrong; the places are the sequence numbers."""
    world.add(rows(0, 20))
    source = open_source(world)
    splits = [] if isinstance(source, NativeSource) else source.splits(None, source.latest(None))
    for split in splits:
        parts = list(source.receive(split))
        found = [p.rows.append_column(SEQ, p.places) for p in parts]
        assert pa.Table.from_batches(found).equals(pa.Table.from_batches(source.read(split)))
        assert not any(p.spoiled.num_rows for p in parts)
        assert source.sifts or type(source).receive is Source.receive


def test_ranges_continue_one_another(world: World) -> None:
    """Rows and sequence numbers of the parts are those of the whole; or the whole is another one each time."""
    source = open_source(world)
    world.add(rows(0, 8))
    ends: list[Offset] = [source.latest(None)]
    for first in range(8, 40, 8):
        world.add(rows(first, 8))
        ends.append(through_json(source.latest(ends[-1])))
        if source.replaced(*ends[-2:]):
            assert content(read(source, None, ends[-1])) == rows(0, first + 8).to_pylist()
    if source.replaced(*ends[-2:]):
        return
    starts = [None, *ends[:-1]]
    parts = [read(source, a, b) for a, b in zip(starts, ends, strict=True)]
    whole, together = read(source, None, ends[-1]), pa.concat_tables(parts)
    assert together.equals(whole) if world.numbers else content(together) == content(whole)
    numbers = together[SEQ].to_pylist()
    assert numbers == sorted(set(numbers))
    assert [len(p) for p in parts] == [8] * len(ends)


def test_what_is_replaced_is_read_anew(world: World) -> None:
    if not world.replaces:
        return
    world.add(rows(0, 8))
    world.add(rows(8, 8))
    source = open_source(world)
    before = source.latest(None)
    assert content(read(source, None, before)) == rows(0, 16).to_pylist()
    assert not source.replaced(before, source.latest(before)) and source.settled(before)
    world.replace(rows(4, 8))
    after = through_json(source.latest(before))
    assert source.replaced(before, after) and not source.reached(before, after)
    assert content(read(source, None, after)) == rows(4, 8).to_pylist()
    assert source.settled(after) and not source.settled(before)
    # Another process, after a restart, goes on with the same offset.
    again = open_source(world)
    assert again.reached(after, again.latest(after)) or again.replaced(after, again.latest(after))
    assert content(read(again, None, again.latest(after))) == rows(4, 8).to_pylist()


def test_news_come_until_they_are_stopped(world: World) -> None:
    world.add(rows(0, 8))
    source = open_source(world)
    at = source.latest(None)
    stop = threading.Event()
    news = source.changes(stop)
    world.add(rows(8, 8))
    for _ in news:
        if not source.reached(at, source.latest(at)):
            break
    stop.set()
    assert next(news, "stopped") == "stopped"


def test_nothing_lies_between_equal_offsets(world: World) -> None:
    world.add(rows(0, 10))
    source = open_source(world)
    end = source.latest(None)
    assert source.splits(end, through_json(end)) == []
    assert source.latest(end) == end
    assert source.reached(end, through_json(end)) and not source.reached(None, end)


def test_a_range_is_walked_in_steps(world: World) -> None:
    for first in range(0, 40, 8):
        world.add(rows(first, 8))
    source = open_source(world)
    end = source.latest(None)
    at: Offset | None = None
    parts: list[pa.Table] = []
    while at is None or not source.reached(at, end):
        to = through_json(source.clip(at, end, 7))
        parts.append(read(source, at, to))
        at = to
    assert pa.concat_tables(parts).equals(read(source, None, end))


def test_an_empty_table_is_read(world: World) -> None:
    world.add(rows(0, 0))
    source = open_source(world)
    assert len(read(source, None, source.latest(None))) == 0


def test_a_declared_column_that_is_not_there_is_null(world: World) -> None:
    world.add(rows(0, 3))
    wider = Schema((Column("NAME", pa.string()), Column("more", pa.float64()), Column("Id", pa.int64())))
    source = open_source(world, wider)
    found = content(read(source, None, source.latest(None)))
    assert found == [{"NAME": r["name"], "more": None, "Id": r["id"]} for r in rows(0, 3).to_pylist()]


def test_closing_twice_is_no_error(world: World) -> None:
    world.add(rows(0, 1))
    source = open_source(world)
    source.latest(None)
    source.close()
    source.close()


def test_a_stream_from_its_end_begins_after_the_first_offset(tmp_path: Path) -> None:
    world = StreamWorld(tmp_path)
    world.add(rows(0, 5))
    source = open_source(world, start="latest")
    first = source.clip(None, source.latest(None), 2)
    assert source.splits(None, first) == []
    world.add(rows(5, 5))
    assert content(read(source, first, source.latest(first))) == rows(5, 5).to_pylist()
    world.close()


def test_rows_of_a_stream_that_are_not_kept_are_passed_over(tmp_path: Path) -> None:
    world = StreamWorld(tmp_path)
    for first in range(0, 50, 10):
        world.add(rows(first, 10))
    world.journal.trim_stream("s", 30)
    source = open_source(world)
    end = source.latest(None)
    step = source.clip(None, end, 5)
    kept = read(source, None, end)
    assert content(kept) == rows(50 - len(kept), len(kept)).to_pylist()
    assert content(read(source, None, step)) == content(kept)[:5]
    world.close()


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
    listed = "abfs://, abfss://, az://, clickhouse://, file://, gcs://, gs://, http://, https://, kafka://"
    assert listed in (e.value.hint or "")
