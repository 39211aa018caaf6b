"""Replaces topics in tests, without Kafka. The messages that a case sends are stored in the journal of its app. They
are decoded as those of Kafka are, and determine the columns where the SQL declares none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from millpond.connectors.abilities import Keyed, Rejects
from millpond.connectors.kafka.source import KafkaSource
from millpond.connectors.source import DELETED, SEQ, Source, Split
from millpond.connectors.stream.source import StreamSource, stream_uri
from millpond.errors import BadData, Error, SourceEmpty
from millpond.formats.received import Received
from millpond.options import Option
from millpond.records import to_arrow
from millpond.records.text import to_json
from millpond.sql.parse import parse
from millpond.sql.statements import CreateStream
from millpond.testing.cases import Case, Step
from millpond.testing.values import parse_cell
from millpond.types import TIMESTAMP, Column, Schema

SCHEME = "kafka://"
_MESSAGES = Schema(
    (
        Column("key", pa.binary()),
        Column("value", pa.binary()),
        Column("partition", pa.int32()),
        Column("offset", pa.int64()),
        Column("timestamp", TIMESTAMP),
        Column("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    )
)
_OWN = ("_key", "_timestamp", DELETED)
"""The fields of a row that describe its message, in addition to its value."""


@dataclass(frozen=True, slots=True)
class Message:
    key: bytes | None
    value: bytes | None
    timestamp: str | None


def topic_of(uri: str) -> str:
    """Returns the topic that a URI names."""
    return uri.removeprefix(SCHEME).partition("?")[0].strip("/").rpartition("/")[2]


def are_envelopes(messages: Sequence[Message]) -> bool:
    """Returns whether a case sends Debezium's envelopes to a topic, and not the rows themselves."""
    found = []
    for message in messages:
        with suppress(ValueError):
            found.append(json.loads(message.value or b"null"))
    rows = [value for value in found if isinstance(value, dict)]
    return bool(rows) and all("op" in row or "payload" in row for row in rows)


def stream_of(topic: str) -> str:
    """Returns the stream in the journal that has the messages of a topic."""
    return f"topic {topic}"


def messages_of(step: Step) -> list[Message]:
    """Returns the messages of a step that sends rows: lines of JSON unchanged, or the rows of a table as JSON."""
    if step.grid is None:
        return [_of_line(line) for line in step.text.splitlines() if line.strip()]
    names = step.grid.names
    cells = ([_cell(c, n) for n, c in zip(names, row, strict=True)] for row in step.grid.rows)
    return [_of_record(dict(zip(names, row, strict=True))) for row in cells]


def _cell(text: str, name: str) -> Any:
    value = parse_cell(text, pa.string() if name in _OWN[:2] else None)
    # A number keeps the digits that it is written with.
    return Decimal(text) if isinstance(value, float) and text[0].isdigit() else value


def _of_line(line: str) -> Message:
    with suppress(ValueError):
        record = json.loads(line, parse_float=Decimal)
        if isinstance(record, dict) and any(name in record for name in _OWN):
            return _of_record(record)
    return Message(None, line.encode(), None)


def _of_record(record: dict[str, Any]) -> Message:
    key, timestamp, deleted = (record.pop(name, None) for name in _OWN)
    value = None if deleted in (True, "true") else to_json(record).encode()
    return Message(None if key is None else str(key).encode(), value, timestamp)


class Topics:
    """Contains the topics of a case, with all that it sends to them."""

    def __init__(self, case: Case, state: Path):
        self._state = state
        self._streams = dict(_streams(case))
        self._given: dict[str, list[Message]] = {}
        self._offsets: dict[str, int] = {}
        for step in case.steps:
            topic = self.find(step.argument) if step.kind == "send" else None
            if topic is not None:
                self._given.setdefault(topic, []).extend(messages_of(step))

    def find(self, name: str) -> str | None:
        """Returns the topic that a step sends to, by its URI or by a stream over it; None for an embedded stream."""
        return topic_of(name) if name.startswith(SCHEME) else self._streams.get(name.lower())

    def open(self, uri: str, values: Mapping[str, Any], declared: Schema | None) -> Source | None:
        """Returns the source that is read in place of a topic."""
        if not uri.startswith(SCHEME):
            return None
        return GivenTopic(uri, values, declared, self._state, tuple(self._given.get(topic_of(uri), ())))

    def rows(self, topic: str, messages: Sequence[Message], now: datetime) -> pa.Table:
        """Returns messages as the journal stores them, with the next offsets."""
        first = self._offsets.get(topic, 0)
        self._offsets[topic] = first + len(messages)
        records = [
            {
                "key": m.key,
                "value": m.value,
                "partition": 0,
                "offset": first + i,
                "timestamp": m.timestamp or now,
            }
            for i, m in enumerate(messages)
        ]
        return to_arrow(_MESSAGES, records, what=f'topic "{topic}"')


def _streams(case: Case) -> Iterator[tuple[str, str]]:
    """Yields the streams over topics that the SQL of a case declares."""
    for step in case.steps:
        if step.kind in ("app", "sql"):
            for statement in _parsed(step.text):
                uris = [x.value for x in getattr(statement, "settings", ()) if x.name.lower() == "connector"]
                if isinstance(statement, CreateStream) and uris and uris[0].startswith(SCHEME):
                    yield statement.name.lower(), topic_of(uris[0])


def _parsed(text: str) -> Iterable[object]:
    try:
        return parse(text).statements
    except Error:
        return ()  # the error is reported when it runs


class GivenTopic(StreamSource, Rejects, Keyed):
    """Reads a topic whose messages a case sends."""

    kind: ClassVar[str] = "kafka"
    options: ClassVar[tuple[Option, ...]] = (*KafkaSource.options, *StreamSource.options)

    def __init__(
        self,
        uri: str,
        values: Mapping[str, Any],
        declared: Schema | None,
        state: Path,
        given: tuple[Message, ...],
    ):
        known = KafkaSource(uri, values, declared)
        # Rows are sent as JSON, whatever the app will read; a registry is a server that tests do not use.
        name = "debezium" if known.values["format"] == "debezium" and are_envelopes(given) else "json"
        plain = {"format": name, "schema.registry.url": None, "avro.schema": None, "key.format": "text"}
        self._topic = KafkaSource(uri.partition("?")[0], {**known.values, **plain}, declared)
        if declared is None and not known.values["schema.registry.url"]:
            self._topic.found = known.value_format.columns()
        super().__init__(stream_uri(state, stream_of(known.topic)), {"start": known.reset}, _MESSAGES)
        self.uri = uri
        self._given = given

    @property
    def guesses(self) -> bool:
        return self._topic.declared is None

    @property
    def address(self) -> str:
        return self._topic.address

    def keyed(self, *, wait: bool) -> str | None:
        keys = [m.key for m in self._given]
        return "its messages have keys" if keys and None not in keys else None

    def schema(self) -> Schema:
        if self.guesses and self._topic.found is None:
            values = [m.value for m in self._given if m.value is not None]
            if not values:
                raise SourceEmpty(
                    f'the case sends no rows to "{self.uri}", and its columns are not declared',
                    hint=f"send it some: --- send {self.uri}",
                )
            self._topic.found = self._topic.value_format.discover(values)
        return self._topic.schema()

    def receive(self, split: Split) -> Iterator[Received]:
        self.schema()
        for batch in super().read(split):
            raw = pa.Table.from_batches([batch])
            first = batch.column(SEQ)[0].as_py() if batch.num_rows else 0
            yield self._topic.decode(raw).after(first)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for rows, places, rejected in self.receive(split):
            if rejected.num_rows:
                raise BadData(f"a message cannot be decoded: {rejected['reason'][0].as_py()}")
            yield rows.append_column(pa.field(SEQ, pa.int64()), places)
