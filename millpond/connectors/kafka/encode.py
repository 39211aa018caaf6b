"""Encodes the values of messages, with the number of their schema if a registry has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.kafka.formats import registry_of
from millpond.errors import InvalidOption, NotSupported
from millpond.formats.messages.base import find_messages, message_formats
from millpond.formats.wire import header
from millpond.types import Schema


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
