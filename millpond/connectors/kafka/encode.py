"""Encodes the values of messages: one class for each format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.kafka.formats import registry_of
from millpond.errors import InvalidOption
from millpond.formats.avrofit import refused
from millpond.formats.avromessages import schema_text
from millpond.formats.avroschema import parse_avro, to_avro
from millpond.formats.avrowrite import write_avro
from millpond.formats.jsonschema import to_jsonschema
from millpond.formats.jsontext import to_json
from millpond.formats.wire import header
from millpond.types import Schema, type_name, whole


class Values(ABC):
    """Encodes rows of columns as values for a topic. With a registry each value contains the number of its schema
    there, which the first of them registers.
    """

    kind = ""
    """The registry's name of the format."""

    def __init__(self, topic: str, columns: Schema, values: Mapping[str, Any]):
        self.columns = columns
        self.name: str = values["format"]
        self._subject = f"{topic}-value"
        self._registry = registry_of(values, self.name)
        self._header: bytes | None = None

    def encode(self, rows: pa.Table) -> pa.Array:
        values = self.write(rows)
        if self._registry is None:
            return values
        if self._header is None:
            self._header = header(self._registry.register(self._subject, self.kind, self.schema()))
        lead, none = pa.scalar(self._header, pa.binary()), pa.scalar(b"", pa.binary())
        return pc.binary_join_element_wise(lead, values, none)

    @abstractmethod
    def write(self, rows: pa.Table) -> pa.Array:
        """Returns one value for each row, as bytes. Raises BadData."""

    def schema(self) -> str:
        """Returns the schema for a registry."""
        raise AssertionError(f"{self.name} has no schema")


class JsonValues(Values):
    kind = "JSON"

    def write(self, rows: pa.Table) -> pa.Array:
        return to_json(rows)

    def schema(self) -> str:
        return to_jsonschema(self.columns, self._subject)


class AvroValues(Values):
    """Encodes with the schema of 'avro.schema', else with one in which every field is nullable."""

    kind = "AVRO"

    def __init__(self, topic: str, columns: Schema, values: Mapping[str, Any]):
        super().__init__(topic, columns, values)
        self._text = schema_text(values) or to_avro(columns, topic)
        self._node = parse_avro(self._text)
        why = refused(columns, self._node)
        if why is not None:
            raise InvalidOption(why, hint="name and cast the columns of the query as the schema has them")

    def write(self, rows: pa.Table) -> pa.Array:
        return write_avro(rows, self._node)

    def schema(self) -> str:
        return self._text


class OneValue(Values):
    """Encodes one column as it is."""

    def __init__(self, topic: str, columns: Schema, values: Mapping[str, Any]):
        super().__init__(topic, columns, values)
        wanted = pa.string() if self.name == "text" else pa.binary()
        if [c.type for c in columns] != [wanted]:
            raise InvalidOption(
                f"the format {self.name} writes one column of type {type_name(wanted)}, and the query has"
                f" {', '.join(f'{c.name} {type_name(c.type)}' for c in columns) or 'none'}",
                hint="columns named _key, _partition and _timestamp do not count",
            )

    def write(self, rows: pa.Table) -> pa.Array:
        return whole(rows.column(0)).cast(pa.binary())


WRITERS: Mapping[str, type[Values]] = {
    "json": JsonValues,
    "avro": AvroValues,
    "text": OneValue,
    "raw": OneValue,
}
