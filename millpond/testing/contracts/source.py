"""Tests what every source promises; the tests run over any source.

A package that has a source of its own runs them with pytest, over a place that it can write to:

    class WeatherPlace(SourcePlace):
        def __init__(self, directory: Path):
            super().__init__(directory)
            self.uri = f"weather://{directory}"

        def add(self, table: pa.Table) -> None: ...

    class TestWeather(SourceContract):
        @pytest.fixture
        def place(self, tmp_path: Path) -> WeatherPlace:
            return WeatherPlace(tmp_path)
"""

from __future__ import annotations

import json
import pickle
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors import abilities
from millpond.connectors.source import SEQ, NativeSource, Source, Split, find_source
from millpond.types import Column, Schema

SCHEMA = Schema((Column("id", pa.int64()), Column("name", pa.string())))
"""The columns of the rows that the tests add."""


def rows(first: int, count: int) -> pa.Table:
    """Makes rows of which every seventh has no name."""
    names = [None if i % 7 == 0 else f"n{i}" for i in range(first, first + count)]
    return pa.table({"id": range(first, first + count), "name": names}, SCHEMA.arrow())


class SourcePlace(ABC):
    """Says where a source reads from."""

    uri: str
    values: Mapping[str, Any] = {}
    """The options of the source, with the types that they are declared with."""
    replaces = False
    """Whether ``replace`` is there."""
    numbers = True
    """Whether the sequence numbers of rows that come later are those that they have in the whole."""

    def __init__(self, directory: Path):
        self.directory = directory

    @abstractmethod
    def add(self, table: pa.Table) -> None:
        """Adds rows that come after those that are there. It may be called with none, and then makes an empty table."""

    def replace(self, table: pa.Table) -> None:
        """Puts rows there in place of those that are there."""
        raise NotImplementedError

    def close(self) -> None:
        """Removes what the place holds."""
        return


def open_source(place: SourcePlace, declared: Schema | None = SCHEMA, **values: Any) -> Source:
    return find_source(place.uri)(place.uri, {**place.values, **values}, declared)


def through_json(offset: Offset) -> Offset:
    loaded: Offset = json.loads(json.dumps(offset))
    assert loaded == offset
    return loaded


def read(source: Source, start: Offset | None, end: Offset) -> pa.Table:
    """Returns the rows of a range; splits and source travel as to an executor. What Spark reads, it reads."""
    if isinstance(source, NativeSource):
        return read_by_spark(pickle.loads(pickle.dumps(source)), start, end)
    splits: list[Split] = pickle.loads(pickle.dumps(source.splits(start, end)))
    reader = source if source.local else pickle.loads(pickle.dumps(source))
    schema = source.schema().arrow().append(pa.field(SEQ, pa.int64()))
    batches: list[pa.RecordBatch] = []
    for split in splits:
        found = list(reader.read(split))
        assert all(b.schema == schema for b in found)
        estimated = split.rows is None or not abilities.stands(source, end)
        assert estimated or split.rows == sum(b.num_rows for b in found)
        batches += found
    table = pa.Table.from_batches(batches, schema)
    table.validate(full=True)
    seqs = table.column(SEQ).to_pylist()
    assert seqs == sorted(set(seqs)) and None not in seqs
    return table


def read_by_spark(source: NativeSource, start: Offset | None, end: Offset) -> pa.Table:
    from millpond.engine.batch import Batch
    from millpond.engine.carrier import Sessions
    from millpond.engine.session import get_session

    batch = Batch(source, start, end, carrier=Sessions(source, get_session))
    table = batch.read()
    assert batch.size == table.num_rows
    assert table.schema == source.schema().arrow().append(pa.field(SEQ, pa.int64()))
    return table.select([*visible(source.schema()).names, SEQ])


def visible(schema: Schema) -> Schema:
    return Schema(tuple(c for c in schema if not c.hidden))


def content(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.drop_columns([SEQ]).to_pylist()
    return found


class SourceContract:
    """Contains the tests. A subclass has a fixture ``place``: a new one for each test."""

    def test_options_are_declared_with_help(self, place: SourcePlace) -> None:
        source = find_source(place.uri)
        assert source.kind and source.schemes
        names = [o.name for o in source.options]
        assert len(set(names)) == len(names)
        assert all(o.help and o.help[0].islower() and not o.help.endswith(".") for o in source.options)

    def test_the_bulk_is_everything_as_of_an_offset(self, place: SourcePlace) -> None:
        place.add(rows(0, 10))
        source = open_source(place)
        assert visible(source.schema()) == SCHEMA
        end = through_json(source.latest(None))
        place.add(rows(10, 5))
        assert content(read(source, None, end)) == rows(0, 10).to_pylist()

    def test_a_range_read_twice_gives_the_same_rows(self, place: SourcePlace) -> None:
        for first in range(0, 40, 8):
            place.add(rows(first, 8))
        source = open_source(place)
        end = source.latest(None)
        once = read(source, None, end)
        assert content(once) == rows(0, 40).to_pylist()
        assert read(source, None, through_json(end)).equals(once)
        if not source.local:
            assert read(open_source(place), None, end).equals(once)

    def test_what_is_received_is_what_is_read(self, place: SourcePlace) -> None:
        """Checks that nothing is put aside where nothing is wrong; the places are the sequence numbers."""
        place.add(rows(0, 20))
        source = open_source(place)
        splits = [] if isinstance(source, NativeSource) else source.splits(None, source.latest(None))
        for split in splits:
            parts = list(abilities.receive(source, split))
            found = [p.rows.append_column(SEQ, p.places) for p in parts]
            assert pa.Table.from_batches(found).equals(pa.Table.from_batches(source.read(split)))
            assert not any(p.rejected.num_rows for p in parts)

    def test_ranges_continue_one_another(self, place: SourcePlace) -> None:
        """Checks that rows and sequence numbers of the parts are those of the whole; or the whole is another one each
        time.
        """
        source = open_source(place)
        place.add(rows(0, 8))
        ends: list[Offset] = [source.latest(None)]
        for first in range(8, 40, 8):
            place.add(rows(first, 8))
            ends.append(through_json(source.latest(ends[-1])))
            if abilities.replaced(source, *ends[-2:]):
                assert content(read(source, None, ends[-1])) == rows(0, first + 8).to_pylist()
        if abilities.replaced(source, *ends[-2:]):
            return
        starts = [None, *ends[:-1]]
        parts = [read(source, a, b) for a, b in zip(starts, ends, strict=True)]
        whole, together = read(source, None, ends[-1]), pa.concat_tables(parts)
        assert together.equals(whole) if place.numbers else content(together) == content(whole)
        numbers = together[SEQ].to_pylist()
        assert numbers == sorted(set(numbers))
        assert [len(p) for p in parts] == [8] * len(ends)

    def test_what_is_replaced_is_read_again(self, place: SourcePlace) -> None:
        if not place.replaces:
            return
        place.add(rows(0, 8))
        place.add(rows(8, 8))
        source = open_source(place)
        before = source.latest(None)
        assert content(read(source, None, before)) == rows(0, 16).to_pylist()
        assert not abilities.replaced(source, before, source.latest(before)) and abilities.settled(
            source, before
        )
        place.replace(rows(4, 8))
        after = through_json(source.latest(before))
        assert abilities.replaced(source, before, after) and not abilities.reached(source, before, after)
        assert content(read(source, None, after)) == rows(4, 8).to_pylist()
        assert abilities.settled(source, after) and not abilities.settled(source, before)
        # Another process, after a restart, goes on with the same offset.
        again = open_source(place)
        now = again.latest(after)
        assert abilities.reached(again, after, now) or abilities.replaced(again, after, now)
        assert content(read(again, None, again.latest(after))) == rows(4, 8).to_pylist()

    def test_news_come_until_they_are_stopped(self, place: SourcePlace) -> None:
        place.add(rows(0, 8))
        source = open_source(place)
        at = source.latest(None)
        stop = threading.Event()
        news = abilities.changes(source, stop)
        place.add(rows(8, 8))
        for _ in news:
            if not abilities.reached(source, at, source.latest(at)):
                break
        stop.set()
        assert next(news, "stopped") == "stopped"

    def test_nothing_lies_between_equal_offsets(self, place: SourcePlace) -> None:
        place.add(rows(0, 10))
        source = open_source(place)
        end = source.latest(None)
        assert source.splits(end, through_json(end)) == []
        assert source.latest(end) == end
        assert abilities.reached(source, end, through_json(end)) and not abilities.reached(source, None, end)

    def test_a_range_is_walked_in_steps(self, place: SourcePlace) -> None:
        for first in range(0, 40, 8):
            place.add(rows(first, 8))
        source = open_source(place)
        end = source.latest(None)
        at: Offset | None = None
        parts: list[pa.Table] = []
        while at is None or not abilities.reached(source, at, end):
            to = through_json(abilities.clip(source, at, end, 7))
            parts.append(read(source, at, to))
            at = to
        assert pa.concat_tables(parts).equals(read(source, None, end))

    def test_an_empty_table_is_read(self, place: SourcePlace) -> None:
        place.add(rows(0, 0))
        source = open_source(place)
        assert len(read(source, None, source.latest(None))) == 0

    def test_a_declared_column_that_is_not_there_is_null(self, place: SourcePlace) -> None:
        place.add(rows(0, 3))
        wider = Schema((Column("NAME", pa.string()), Column("more", pa.float64()), Column("Id", pa.int64())))
        source = open_source(place, wider)
        found = content(read(source, None, source.latest(None)))
        assert found == [{"NAME": r["name"], "more": None, "Id": r["id"]} for r in rows(0, 3).to_pylist()]

    def test_closing_twice_is_no_error(self, place: SourcePlace) -> None:
        place.add(rows(0, 1))
        source = open_source(place)
        source.latest(None)
        source.close()
        source.close()
