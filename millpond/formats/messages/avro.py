"""Decodes and encodes Avro messages: all of one schema, from a file, or each of the schema whose number it contains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import BadData, FileMissing, InvalidOption
from millpond.formats.avrofit import fitted, refused
from millpond.formats.avroread import read_avro
from millpond.formats.avroschema import Node, parse_avro, to_avro
from millpond.formats.avrowrite import write_avro
from millpond.formats.messages.base import RowMessages, Writer, others
from millpond.formats.wire import HEADER, UNFRAMED, Described, Schemas, by_schema
from millpond.options import Option
from millpond.types import Schema

Places = npt.NDArray[np.int64]


def schema_text(values: Mapping[str, Any], option: str = "avro.schema") -> str | None:
    """Returns the schema of 'avro.schema': the content of a file, or the option itself."""
    given = values.get(option)
    if not given or given.lstrip().startswith(("{", '"', "[")):
        return given or None
    try:
        return Path(given.removeprefix("file://")).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileMissing(
            f'the schema of Avro "{given}" cannot be read: {error}',
            hint=f"'{option}' is the path of a file",
        ) from None


class AvroWriter(Writer):
    """Encodes with the schema of 'avro.schema', else with one in which every field is nullable."""

    def __init__(self, topic: str, columns: Schema, values: Mapping[str, Any]):
        super().__init__(topic, columns, values)
        self._text = schema_text(values) or to_avro(columns, topic)
        self._node = parse_avro(self._text)
        why = refused(columns, self._node)
        if why is not None:
            raise InvalidOption(why, hint="name and cast the columns of the query as the schema has them")

    def write(self, rows: pa.Table) -> pa.Array:
        return write_avro(rows, self._node)

    def schema(self, subject: str) -> str:
        return self._text


class AvroMessages(RowMessages):
    """Decodes one record per message with the schema that it was written with, then maps its fields by name to the
    columns.
    """

    name = "avro"
    options = (
        Option("avro.schema", "text", "the Avro schema of values: the path of a file, or the JSON itself"),
    )
    registered = "AVRO"
    writer = AvroWriter

    def __init__(
        self,
        schema: Schema,
        values: Mapping[str, Any],
        *,
        watch: bool = False,
        schemas: Schemas | None = None,
    ):
        super().__init__(schema, values, watch=watch, schemas=schemas)
        self._nodes: dict[int | None, Node] = {}
        if schemas is None:
            text = schema_text(values)
            if text is None:
                raise InvalidOption(
                    "the format avro needs a schema",
                    hint="'avro.schema' = '/path/of/order.avsc', or 'schema.registry.url'",
                )
            self._nodes[None] = parse_avro(text)

    @classmethod
    def discover(cls, sample: list[bytes], values: Mapping[str, Any]) -> Schema:
        text = schema_text(values)
        assert text is not None
        return parse_avro(text).columns

    @classmethod
    def columns(cls, values: Mapping[str, Any]) -> Schema | None:
        return cls.discover([], values)

    @classmethod
    def columns_of(cls, described: Described) -> Schema:
        return parse_avro(described.text, described.references).columns

    def fresh(self, values: pa.Array) -> Schema:
        found: dict[str, Any] = {}
        for node in list(self._nodes.values()) if self.watch else ():
            found |= {c.name.lower(): c for c in others(node.columns, self.schema)}
        return Schema(tuple(found.values()))

    def read(self, values: pa.Array) -> pa.RecordBatch:
        raise AssertionError("messages of Avro are read many at a time")

    def _read(self, values: pa.Array, bad: list[int], reasons: list[str]) -> Iterator[pa.RecordBatch]:
        found: list[tuple[Places, pa.RecordBatch]] = []
        alone = [(None, np.arange(len(values)))]
        for number, places in alone if self.schemas is None else by_schema(values):
            try:
                node = self._node(number)
            except BadData as error:
                bad += places.tolist()
                reasons += [error.message] * len(places)
                continue
            some = values if len(places) == len(values) else values.take(pa.array(places))
            rows, wrong, why = read_avro(some, node, 0 if self.schemas is None else HEADER)
            bad += places[wrong].tolist()
            reasons += why
            found += self._fitted(rows, np.delete(places, wrong), bad, reasons)
        if len(found) == 1:
            yield found[0][1]
        elif found:
            rows = pa.Table.from_batches([r for _, r in found]).combine_chunks()
            yield from rows.take(pa.array(np.argsort(np.concatenate([p for p, _ in found])))).to_batches()

    def _node(self, number: int | None) -> Node:
        if number not in self._nodes:
            if self.schemas is None or number is None:
                raise BadData(UNFRAMED)
            described = self.schemas.schema(number)
            if described.kind != "AVRO":
                raise BadData(f"schema {number} is not of Avro but {described.kind}")
            try:
                self._nodes[number] = parse_avro(described.text, described.references)
            except InvalidOption as error:
                raise BadData(f"schema {number}: {error.message}") from None
        return self._nodes[number]

    def _fitted(
        self, rows: pa.RecordBatch, places: Places, bad: list[int], reasons: list[str]
    ) -> list[tuple[Places, pa.RecordBatch]]:
        """Converts the rows to our columns. One that does not fit is found by halving."""
        try:
            return [(places, fitted(rows, self.schema))]
        except BadData as error:
            if rows.num_rows == 0:
                return []
            if rows.num_rows == 1:
                bad.append(int(places[0]))
                reasons.append(error.message)
                return []
        half = rows.num_rows // 2
        return [
            *self._fitted(rows.slice(0, half), places[:half], bad, reasons),
            *self._fitted(rows.slice(half), places[half:], bad, reasons),
        ]
