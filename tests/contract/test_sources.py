"""What every source promises, over every source there is.

A source takes part by a world: a class below, named after its kind, that can add rows to what it reads.
"""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from millpond.changes import Offset
from millpond.errors import NotSupported, UnknownName
from millpond.journal.journal import Journal
from millpond.sources import memory
from millpond.sources.base import SEQ, NativeSource, Source, Split, find_source, sources
from millpond.sources.stream import stream_uri
from millpond.types import Column, Schema
from tests.servers import Kafka
from tests.webserver import WebServer

SCHEMA = Schema((Column("id", pa.int64()), Column("name", pa.string())))


def rows(first: int, count: int) -> pa.Table:
    names = [None if i % 7 == 0 else f"n{i}" for i in range(first, first + count)]
    return pa.table({"id": range(first, first + count), "name": names}, SCHEMA.arrow())


class World:
    """Where a source reads from. ``add`` puts rows there that come after those that are there."""

    uri: str
    values: dict[str, Any] = {}

    def __init__(self, directory: Path):
        self.directory = directory

    def add(self, table: pa.Table) -> None:
        raise NotImplementedError

    def close(self) -> None:
        return


class FileWorld(World):
    count = 0
    values = {"watch.debounce": 0.0}

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


class MemoryWorld(World):
    uri = "memory://contract"

    def __init__(self, directory: Path):
        super().__init__(directory)
        self.table = SCHEMA.arrow().empty_table()
        memory.publish("contract", lambda: self.table, SCHEMA)

    def add(self, table: pa.Table) -> None:
        self.table = pa.concat_tables([self.table, table])

    def close(self) -> None:
        memory.withdraw("contract")


class HttpWorld(World):
    """What a web server answers."""

    def __init__(self, directory: Path):
        super().__init__(directory)
        self.web = WebServer()
        self.uri = f"{self.web.url}/rows"
        self.table = SCHEMA.arrow().empty_table()
        self.add(self.table)

    def add(self, table: pa.Table) -> None:
        self.table = pa.concat_tables([self.table, table])
        self.web.json("/rows", self.table.to_pylist(), etag=True)

    def close(self) -> None:
        self.web.close()


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


WORLDS: dict[str, type[World]] = {
    "file": FileWorld,
    "http": HttpWorld,
    "kafka": KafkaWorld,
    "memory": MemoryWorld,
    "stream": StreamWorld,
}


@pytest.fixture(params=[s.kind for s in sources()])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "kafka":
        KafkaWorld.broker = request.getfixturevalue("servers").kafka
        request.getfixturevalue("spark")
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
        assert split.rows is None or split.rows == sum(b.num_rows for b in found)
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
    assert set(WORLDS) == {s.kind for s in sources()}


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


def test_ranges_continue_one_another(world: World) -> None:
    """Rows and sequence numbers of the parts are those of the whole."""
    source = open_source(world)
    world.add(rows(0, 8))
    ends: list[Offset] = [source.latest(None)]
    if source.follows:
        for first in range(8, 40, 8):
            world.add(rows(first, 8))
            ends.append(through_json(source.latest(ends[-1])))
    starts = [None, *ends[:-1]]
    parts = [read(source, a, b) for a, b in zip(starts, ends, strict=True)]
    assert pa.concat_tables(parts).equals(read(source, None, ends[-1]))
    assert [len(p) for p in parts] == [8] * len(ends)


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
    memory.publish("customers", lambda: rows(0, 1), SCHEMA)
    source = find_source("memory://custmers")("memory://custmers", {}, None)
    with pytest.raises(UnknownName, match="custmers") as e:
        source.schema()
    memory.withdraw("customers")
    assert e.value.hint == 'did you mean "customers"?'


def test_a_scheme_without_a_source() -> None:
    with pytest.raises(NotSupported, match="ftp://") as e:
        find_source("ftp://x/y")
    assert "file://, http://, https://, kafka://, memory://, stream://" in (e.value.hint or "")
