"""Replaces topics in tests. Messages are decoded as those of Kafka, and determine columns that are not declared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import pyarrow as pa

from millpond.connectors.abilities import Keyed, Rejects
from millpond.connectors.kafka.source import KafkaSource
from millpond.connectors.source import SEQ, Split
from millpond.connectors.stand_in import GivenTopic, Message
from millpond.connectors.stream.source import StreamSource
from millpond.errors import BadData, SourceEmpty
from millpond.formats.read_records import Received
from millpond.options import Option
from millpond.types import Schema


class GivenKafkaTopic(GivenTopic, Rejects, Keyed):
    """Decodes messages as those of Kafka are."""

    kind: ClassVar[str] = "kafka"
    schemes: ClassVar[tuple[str, ...]] = ("kafka",)
    options: ClassVar[tuple[Option, ...]] = (*KafkaSource.options, *StreamSource.options)

    def prepare_topic(
        self, uri: str, values: Mapping[str, Any], declared: Schema | None, given: tuple[Message, ...]
    ) -> tuple[str, str]:
        known = KafkaSource(uri, values, declared)
        # Rows are sent as JSON, whatever the app will read; a registry is a server that tests do not use.
        name = "debezium" if known.values["format"] == "debezium" and are_envelopes(given) else "json"
        plain = {"format": name, "schema.registry.url": None, "avro.schema": None, "key.format": "text"}
        self._topic = KafkaSource(uri.partition("?")[0], {**known.values, **plain}, declared)
        if declared is None and not known.values["schema.registry.url"]:
            self._topic.found = known.value_format.columns()
        return known.topic, known.reset

    @property
    def guesses(self) -> bool:
        return self._topic.declared is None

    @property
    def address(self) -> str:
        return self._topic.address

    def keyed(self, *, wait: bool) -> str | None:
        keys = [m.key for m in self.given]
        return "its messages have keys" if keys and None not in keys else None

    def schema(self) -> Schema:
        if self.guesses and self._topic.found is None:
            values = [m.value for m in self.given if m.value is not None]
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


def are_envelopes(messages: Sequence[Message]) -> bool:
    """Returns whether a case sends Debezium's envelopes to a topic, and not the rows themselves."""
    found = []
    for message in messages:
        with suppress(ValueError):
            found.append(json.loads(message.value or b"null"))
    rows = [value for value in found if isinstance(value, dict)]
    return bool(rows) and all("op" in row or "payload" in row for row in rows)
