"""Tests what every format of messages promises; the tests run over any of them.

A package that has such a format runs them with pytest; it says how a message of the format is written:

    class PipesPlace(MessagesPlace):
        name = "pipes"

        def encode(self, table: pa.Table) -> list[bytes | None]: ...

    class TestPipes(MessagesContract):
        @pytest.fixture
        def place(self) -> PipesPlace:
            return PipesPlace()
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.formats.merge import settle_schema
from millpond.formats.messages.base import Events, Messages, Writer, find_messages
from millpond.options import defaults
from millpond.testing.contracts.source import SCHEMA, rows
from millpond.types import Schema


class MessagesPlace(ABC):
    """Says how messages of a format are written."""

    name: str
    values: Mapping[str, Any] = {}
    """The options that the format knows."""
    schema: Schema = SCHEMA
    rejected: bytes | None = b"\xff{"
    """A message that cannot be decoded; None if all can be."""
    discovers = True
    """Whether the columns can be discovered from messages."""
    widens = True
    """Whether a message can have a field that is no column, and is found."""

    def table(self, first: int, count: int) -> pa.Table:
        """Makes rows of the schema."""
        return rows(first, count)

    @abstractmethod
    def encode(self, table: pa.Table) -> list[bytes]:
        """Returns the message of each row. For a format that widens, the table may have one column more."""


def make_messages(place: MessagesPlace, *, watch: bool = False, schema: Schema | None = None) -> Messages:
    """Returns the format, as it travels to another process."""
    kind = find_messages(place.name)
    made = kind(schema or place.schema, defaults(kind.options) | dict(place.values), watch=watch)
    again: Messages = pickle.loads(pickle.dumps(made))
    return again


def events(messages: Messages, values: Sequence[bytes | None]) -> Events:
    found = messages.events(pa.array(values, pa.binary()))
    assert found.rows.schema == messages.schema.arrow()
    assert len(found.rows) == len(found.ended) == len(found.places)
    assert len(found.bad) == len(found.reasons) and all(found.reasons)
    assert found.places.to_pylist() == sorted(found.places.to_pylist())
    assert not set(found.bad) & set(found.places.to_pylist())
    found.rows.validate(full=True)
    return found


class MessagesContract:
    """Contains the tests. A subclass has a fixture ``place``."""

    def test_it_is_found_by_name_and_its_options_have_help(self, place: MessagesPlace) -> None:
        kind = find_messages(place.name.upper())
        assert kind.name == place.name
        assert all(o.help and o.help[0].islower() and not o.help.endswith(".") for o in kind.options)

    def test_messages_are_decoded(self, place: MessagesPlace) -> None:
        table = place.table(0, 50)
        found = events(make_messages(place), place.encode(table))
        assert found.rows.to_pylist() == table.to_pylist()
        assert found.places.to_pylist() == list(range(50)) and not found.bad
        assert not any(found.ended.to_pylist())

    def test_no_messages(self, place: MessagesPlace) -> None:
        assert events(make_messages(place), []).rows.num_rows == 0

    def test_part_of_an_array_is_decoded(self, place: MessagesPlace) -> None:
        table = place.table(0, 20)
        some = pa.array(place.encode(table), pa.binary()).slice(5, 10)
        assert make_messages(place).events(some).rows.to_pylist() == table.slice(5, 10).to_pylist()

    def test_a_message_without_a_value_is_no_row_that_stays(self, place: MessagesPlace) -> None:
        first, last = place.encode(place.table(1, 2))
        found = events(make_messages(place), [first, None, last])
        assert not found.bad
        stays = [
            r for r, ended in zip(found.rows.to_pylist(), found.ended.to_pylist(), strict=True) if not ended
        ]
        assert stays == place.table(1, 2).to_pylist()

    def test_a_bad_message_does_not_affect_the_others(self, place: MessagesPlace) -> None:
        if place.rejected is None:
            return
        table = place.table(0, 60)
        values: list[bytes | None] = [*place.encode(table)]
        for at in (0, 17, 18, 61):
            values.insert(at, place.rejected)
        values.insert(30, None)
        found = events(make_messages(place), values)
        assert sorted(found.bad) == [0, 17, 18, 62]
        ended = found.ended.to_pylist()
        stays = [r for r, end in zip(found.rows.to_pylist(), ended, strict=True) if not end]
        assert stays == table.to_pylist()

    def test_columns_are_discovered(self, place: MessagesPlace) -> None:
        kind = find_messages(place.name)
        values = defaults(kind.options) | dict(place.values)
        known = kind.columns(values)
        if known is None and not place.discovers:
            return
        table = place.table(1, 20)
        found = settle_schema(known if known is not None else kind.discover(place.encode(table), values))
        assert found.names == place.schema.names
        messages = make_messages(place, schema=found)
        assert events(messages, place.encode(table)).rows.to_pylist() == table.to_pylist()

    def test_a_new_field_is_found(self, place: MessagesPlace) -> None:
        if not place.widens:
            return
        table = place.table(0, 5)
        values = place.encode(table.append_column("more", pa.array(range(5))))
        messages = make_messages(place, watch=True)
        assert events(messages, values).rows.to_pylist() == table.to_pylist()
        assert messages.fresh(pa.array(values, pa.binary())).names == ("more",)

    def test_what_is_written_is_read(self, place: MessagesPlace) -> None:
        kind = find_messages(place.name)
        if kind.writer is None:
            return
        table = place.table(1, 30)
        made = kind.writer("topic", place.schema, defaults(kind.options) | dict(place.values))
        writer: Writer = pickle.loads(pickle.dumps(made))
        written = writer.write(table)
        assert written.type == pa.binary() and not written.null_count
        assert events(make_messages(place), written.to_pylist()).rows.to_pylist() == table.to_pylist()
