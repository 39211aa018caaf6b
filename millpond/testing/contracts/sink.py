"""Tests what every sink promises; the tests run over any sink.

A package that has a sink of its own runs them with pytest, over a place that it can read back:

    class PostPlace(SinkPlace):
        def __init__(self, directory: Path):
            self.uri = f"post://{directory}"

        def written(self) -> list[dict[str, Any]]: ...

    class TestPost(SinkContract):
        @pytest.fixture
        def place(self, tmp_path: Path) -> PostPlace:
            return PostPlace(tmp_path)
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from millpond.changes import Position
from millpond.connectors.sink import Sink, find_sink
from millpond.errors import Error
from millpond.testing.contracts.reads import MAPS, TYPED
from millpond.testing.contracts.source import SCHEMA, rows
from millpond.types import Column, Schema

NAME = "contract"


class SinkPlace(ABC):
    """Says where a sink writes to."""

    uri: str
    values: Mapping[str, Any] = {}
    """The options of the sink, with the types that they are declared with."""
    refused: pa.Table | None = None
    """Rows, with the columns ``id`` and ``name``, of which one cannot be written; None if everything can be."""

    @abstractmethod
    def written(self) -> list[dict[str, Any]]:
        """Returns the rows that a reader finds, in the order in which they were written."""

    def close(self) -> None:
        """Removes what the place holds."""
        return


def make_sink(place: SinkPlace, schema: Schema = SCHEMA) -> Sink:
    return find_sink(place.uri)(place.uri, place.values, schema)


def open_sink(place: SinkPlace, name: str = NAME) -> Sink:
    sink = make_sink(place)
    sink.open(name)
    return sink


def position(batch: int) -> Position:
    return Position(NAME, "checkpoint", batch, {"s": {"0": batch * 10, "id": "x"}})


def write(sink: Sink, table: pa.Table, batch: int = 0) -> None:
    """Writes rows as a running statement does: what Spark writes, it writes."""
    from millpond.streaming.sink_statement import deliver

    deliver(_spark, sink, table, position(batch))


def _spark(*formats: str) -> Any:
    from millpond.engine.session import get_session

    return get_session()


class SinkContract:
    """Contains the tests. A subclass has a fixture ``place``: a new one for each test."""

    def test_options_are_declared_with_help(self, place: SinkPlace) -> None:
        sink = find_sink(place.uri)
        assert sink.kind and sink.schemes
        names = [o.name for o in sink.options]
        assert len(set(names)) == len(names)
        assert all(o.help for o in sink.options)

    def test_it_says_what_it_guarantees(self, place: SinkPlace) -> None:
        assert make_sink(place).guarantee

    def test_what_is_not_opened_writes_nothing(self, place: SinkPlace) -> None:
        """Checks a sink as a statement makes it that is only explained."""
        make_sink(place).close()
        assert place.written() == []

    def test_rows_are_there_when_write_returns(self, place: SinkPlace) -> None:
        sink = open_sink(place)
        for batch in range(3):
            write(sink, rows(batch * 10, 10), batch)
            assert place.written() == rows(0, batch * 10 + 10).to_pylist()
        sink.close()

    def test_a_batch_without_rows(self, place: SinkPlace) -> None:
        sink = open_sink(place)
        write(sink, rows(0, 0))
        write(sink, rows(0, 3), 1)
        assert place.written() == rows(0, 3).to_pylist()
        sink.close()

    def test_checking_writes_nothing(self, place: SinkPlace) -> None:
        sink = open_sink(place)
        sink.check(rows(0, 10))
        assert place.written() == []
        sink.close()

    def test_a_batch_that_cannot_be_written_is_refused_as_a_whole(self, place: SinkPlace) -> None:
        if place.refused is None:
            return
        sink = open_sink(place)
        with pytest.raises(Error):
            sink.check(place.refused)
        with pytest.raises(Error):
            write(sink, place.refused)
        assert place.written() == []
        if not sink.is_open:
            sink.open(NAME)
        write(sink, rows(0, 3))
        assert place.written() == rows(0, 3).to_pylist()
        sink.close()

    def test_values_of_every_type_are_taken_or_refused_by_an_error(self, place: SinkPlace) -> None:
        for dtype, values in [*TYPED, MAPS]:
            schema = Schema((Column("v", dtype),))
            try:
                sink = make_sink(place, schema)
                sink.open(NAME)
                sink.check(pa.table({"v": pa.array([*values, None], dtype)}))
                sink.close()
            except Error as error:
                assert error.message
        assert place.written() == []

    def test_another_sink_goes_on(self, place: SinkPlace) -> None:
        for batch in range(2):
            sink = open_sink(place)
            write(sink, rows(batch * 5, 5), batch)
            sink.close()
        assert place.written() == rows(0, 10).to_pylist()

    def test_an_exact_sink_stores_the_position_with_the_rows(self, place: SinkPlace) -> None:
        sink = make_sink(place)
        assert sink.open(NAME) is None
        if not sink.exact:
            return
        for batch in range(2):
            write(sink, rows(batch * 5, 5), batch)
            again = make_sink(place)
            found, wanted = again.open(NAME), position(batch)
            assert found is not None
            assert (found.pipeline, found.batch) == (wanted.pipeline, wanted.batch)
            assert json.loads(json.dumps(found.offsets)) == wanted.offsets
            sink.close()
            sink = again
        other = make_sink(place)
        assert other.open(f"{NAME} of another") is None
        other.close()
        sink.close()

    def test_an_exact_sink_shuts_out_those_that_were_opened_before(self, place: SinkPlace) -> None:
        """Checks that one of a process that was thought dead writes nothing more."""
        before = open_sink(place)
        if not before.exact:
            return
        write(before, rows(0, 5), 0)
        now = open_sink(place)
        with pytest.raises(Error):
            write(before, rows(5, 5), 1)
        assert not before.is_open
        write(now, rows(5, 5), 1)
        assert place.written() == rows(0, 10).to_pylist()
        before.close()
        now.close()

    def test_the_position_of_a_dropped_query_is_forgotten(self, place: SinkPlace) -> None:
        sink = open_sink(place)
        if not sink.exact:
            return
        write(sink, rows(0, 5))
        sink.close()
        sink.forget(NAME)
        assert make_sink(place).open(NAME) is None
        assert place.written() == rows(0, 5).to_pylist()

    def test_closing_twice_is_no_error(self, place: SinkPlace) -> None:
        for sink in (make_sink(place), open_sink(place)):
            sink.close()
            sink.close()
