"""Encodes the values of messages, with the number of their schema if a registry has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.kafka.formats import registry_of
from millpond.connectors.kafka.registry import Registry
from millpond.errors import InvalidOption, NotSupported
from millpond.formats.avroschema import Node, key_to_avro, parse_type
from millpond.formats.avrowrite import write_keys
from millpond.formats.messages.avro import schema_text
from millpond.formats.messages.base import find_messages, message_formats
from millpond.formats.wire import header
from millpond.types import Column, Schema


class Keys:
    """Encodes the keys of messages for a topic: text as UTF-8, bytes as they are, and anything else as its text, or,
    with 'key.format' = 'avro', as Avro. With a registry each key then contains the number of its schema there.
    """

    def __init__(self, topic: str, column: Column | None, values: Mapping[str, Any]):
        given, url = values["avro.key.schema"], values["schema.registry.url"]
        self._subject = f"{topic}-key"
        self._node: Node | None = None
        self._registry: Registry | None = None
        self._header: bytes | None = None
        if values["key.format"] != "avro":
            if given:
                raise InvalidOption("'avro.key.schema' is for 'key.format' = 'avro'")
            return
        if column is None or column.type is None:
            raise InvalidOption("'key.format' = 'avro' needs a key", hint="give one: SELECT …, … AS _key")
        self._text = schema_text(values, "avro.key.schema") or key_to_avro(column.type, self._subject)
        self._node = parse_type(self._text)
        self._registry = Registry(values) if url else None

    @property
    def plain(self) -> bool:
        """Returns whether Spark can encode them."""
        return self._node is None

    def encode(self, keys: pa.Array) -> pa.Array:
        if self._node is None:
            return keys if pa.types.is_binary(keys.type) else keys.cast(pa.string()).cast(pa.binary())
        written = write_keys(keys, self._node)
        if self._registry is None:
            return written
        if self._header is None:
            self._header = header(self._registry.register(self._subject, "AVRO", self._text))
        lead, none = pa.scalar(self._header, pa.binary()), pa.scalar(b"", pa.binary())
        return pc.binary_join_element_wise(lead, written, none)


class Values:
    """Encodes rows of columns as values for a topic. With a registry each value contains the number of its schema
    there, which the first of them registers.
    """

    def __init__(self, topic: str, columns: Schema, values: Mapping[str, Any]):
        self.columns = columns
        self._kind = find_messages(values["format"])
        if self._kind.writer is None:
            able = ", ".join(m.name for m in message_formats() if m.writer)
            raise InvalidOption(
                f"the format {self._kind.name} cannot be written", hint=f"formats that can: {able}"
            )
        self._subject = f"{topic}-value"
        self._registry = registry_of(values, self._kind)
        self._writer = self._kind.writer(topic, columns, values)
        self._header: bytes | None = None

    def encode(self, rows: pa.Table) -> pa.Array:
        values = self._writer.write(rows)
        if self._registry is None:
            return values
        if self._header is None:
            kind, text = str(self._kind.registered), self._writer.schema(self._subject)
            self._header = header(self._registry.register(self._subject, kind, text))
        lead, none = pa.scalar(self._header, pa.binary()), pa.scalar(b"", pa.binary())
        return pc.binary_join_element_wise(lead, values, none)

    def sql(self, names: Sequence[str]) -> str:
        """Returns the encoding as an expression of Spark over columns with these quoted names."""
        value = None if self._registry is not None else self._writer.encoding_sql(names)
        if value is None:
            able = {m.name: m for m in message_formats() if m.writer and m.writer.encoding_sql(["x"])}
            said = ", ".join(f"{n} without a registry" if m.registered else n for n, m in able.items())
            raise NotSupported(
                f"the format {self._kind.name} with its schema cannot be written by Spark alone",
                hint=f"formats that can: {said}",
            )
        return value
