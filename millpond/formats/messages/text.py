"""Decodes and encodes messages that are the value of one column: text, or bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from millpond.errors import BadData, InvalidOption
from millpond.formats.messages.base import RowMessages, Writer
from millpond.types import Column, Schema, quote, type_name, whole


class TextWriter(Writer):
    """Encodes one column as it is."""

    name: ClassVar[str] = "text"
    type: ClassVar[pa.DataType] = pa.string()

    def __init__(self, topic: str, columns: Schema, values: Mapping[str, Any]):
        super().__init__(topic, columns, values)
        if [c.type for c in columns] != [self.type]:
            raise InvalidOption(
                f"the format {self.name} writes one column of type {type_name(self.type)}, and the query has"
                f" {', '.join(f'{c.name} {type_name(c.type)}' for c in columns) or 'none'}",
                hint="columns named _key, _partition and _timestamp do not count",
            )

    def write(self, rows: pa.Table) -> pa.Array:
        return whole(rows.column(0)).cast(pa.binary())

    @classmethod
    def encoding_sql(cls, names: Sequence[str]) -> str | None:
        return names[0]


class RawWriter(TextWriter):
    name = "raw"
    type = pa.binary()


class TextMessages(RowMessages):
    """Decodes the text of each message, in one column."""

    name = "text"
    writer: ClassVar[type[Writer] | None] = TextWriter
    _type: ClassVar[pa.DataType] = pa.string()
    _sql: ClassVar[str] = "CAST(value AS STRING)"

    @classmethod
    def discover(cls, sample: list[bytes], values: Mapping[str, Any]) -> Schema:
        return Schema((Column("value", cls._type),))

    @classmethod
    def columns(cls, values: Mapping[str, Any]) -> Schema | None:
        return cls.discover([], values)

    @classmethod
    def decoding_sql(cls, columns: Schema) -> str | None:
        return f"struct({cls._sql} AS {quote(columns.columns[0].name)})"

    def read(self, values: pa.Array) -> pa.RecordBatch:
        arrow = self.schema.arrow()
        if len(arrow) != 1 or arrow.field(0).type != self._type:
            raise BadData(f"the format {self.name} has one column of type {type_name(self._type)}")
        try:
            return pa.RecordBatch.from_arrays([values.cast(self._type)], schema=arrow)
        except pa.ArrowInvalid as error:
            raise BadData(f"not UTF-8: {error}") from None


class RawMessages(TextMessages):
    """Decodes the bytes of each message, in one column."""

    name = "raw"
    writer = RawWriter
    _type = pa.binary()
    _sql = "value"
