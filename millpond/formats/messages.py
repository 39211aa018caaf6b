"""Decodes messages: one record each, many at a time.

A format decodes an array of values to rows. A message that cannot be decoded does not affect the others: it is found by
halving, and returned with the reason.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial, reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import BadData
from millpond.formats.jsonblock import BlockReader, Records
from millpond.formats.jsontypes import discover_records
from millpond.formats.jsonvalues import DECODER
from millpond.formats.received import no_rows
from millpond.formats.text import Misfit, convert
from millpond.formats.wire import UNFRAMED, Schemas, by_schema, stripped
from millpond.types import Column, Schema, type_name, whole

SAMPLE = 1_000
"""Messages that are read to discover the columns."""
_ONE_BY_ONE = 16
"""Messages among which a bad one is searched without halving."""
_SHOWN = 200


class Decoded(NamedTuple):
    """Contains a row for each message that could be decoded, the indexes of the others, and the reasons."""

    rows: pa.RecordBatch
    bad: list[int]
    reasons: list[str]


class Messages(ABC):
    """Decodes the values of messages to the columns of a schema. Picklable.

    With ``watch`` it looks for fields that the schema does not have, if the format can have such fields. With
    ``schemas`` each message contains the number of its schema there.
    """

    name: ClassVar[str]

    def __init__(
        self,
        schema: Schema,
        values: Mapping[str, Any],
        *,
        watch: bool = False,
        schemas: Schemas | None = None,
    ):
        self.schema = schema
        self.values = dict(values)
        self.watch = watch
        self.schemas = schemas

    def fresh(self, values: pa.Array) -> Schema:
        """Returns the columns that were found so, ``values`` being the last that were decoded; VOID if the type is
        unknown.
        """
        return Schema(())

    @classmethod
    @abstractmethod
    def discover(cls, sample: list[bytes], values: Mapping[str, Any]) -> Schema:
        """Discovers the columns of a sample of messages."""

    @abstractmethod
    def read(self, values: pa.Array) -> pa.RecordBatch:
        """Returns a row for each value; none is NULL. Raises BadData if one of them cannot be decoded."""

    def decode(self, values: pa.Array) -> Decoded:
        """Decodes the rows of binary values. A NULL has a row of NULLs."""
        here = values.drop_null()
        bad: list[int] = []
        reasons: list[str] = []
        parts = list(self._read(here, bad, reasons)) if len(here) else []
        arrow = self.schema.arrow()
        rows = pa.Table.from_batches(parts, arrow).combine_chunks()
        if values.null_count:
            rows, bad = self._with_nulls(rows, values, bad)
        batches = rows.to_batches()
        return Decoded(batches[0] if batches else no_rows(arrow), bad, reasons)

    def _read(self, values: pa.Array, bad: list[int], reasons: list[str]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of all values that can be decoded; the others are recorded."""
        return self._halved(values, 0, bad, reasons)

    def _halved(
        self, values: pa.Array, first: int, bad: list[int], reasons: list[str]
    ) -> Iterator[pa.RecordBatch]:
        try:
            rows = self.read(values)
            if rows.num_rows != len(values):
                raise BadData("it is not one record")
            yield rows
            return
        except BadData as error:
            if len(values) == 1:
                bad.append(first)
                reasons.append(error.message)
                return
        step = 1 if len(values) <= _ONE_BY_ONE else (len(values) + 1) // 2
        for at in range(0, len(values), step):
            yield from self._halved(values.slice(at, step), first + at, bad, reasons)

    def _with_nulls(self, rows: pa.Table, values: pa.Array, bad: list[int]) -> tuple[pa.Table, list[int]]:
        """Adds rows of NULLs for NULL values, and returns the places of the bad ones among all."""
        place = pc.indices_nonzero(values.is_valid())
        bad = place.take(pa.array(bad, pa.int64())).to_pylist()
        mask = np.ones(len(values), dtype=bool)
        mask[bad] = False
        good = pa.array(mask)
        number = pc.subtract(pc.cumulative_sum(pc.and_(values.is_valid(), good).cast(pa.int64())), 1)
        return rows.take(pc.if_else(values.is_valid(), number, None).filter(good)), bad


def joined(values: pa.Array) -> bytes:
    """Returns all values as lines; line breaks inside them become spaces."""
    text = values.cast(pa.large_binary())
    if _has_break(text):
        text = pc.replace_substring(text, pattern=b"\n", replacement=b" ")
    ends, none = pa.scalar(b"\n", pa.large_binary()), pa.scalar(b"", pa.large_binary())
    lines = pc.binary_join_element_wise(text, ends, none)
    data = lines.buffers()[2]
    return data.to_pybytes() if data is not None else b""


def _has_break(values: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring(values, b"\n")).as_py())


class JsonMessages(Messages):
    """Decodes one JSON object per message."""

    name = "json"
    _reader: BlockReader | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_reader": None}

    def fresh(self, values: pa.Array) -> Schema:
        names = {path[0] for path in self.seen() if len(path) == 1}
        if self.schemas is not None and names:
            values = values.drop_null()
            framed = [places for number, places in by_schema(values) if number is not None]
            if not framed:
                return Schema(())
            values = stripped(values.take(pa.array(np.concatenate(framed))))
        return others(discover_records(map(json_object, having(values, names))), self.schema)

    def seen(self) -> set[tuple[str, ...]]:
        """Returns the fields that were found since the last call and are not in the schema, nested ones too."""
        if self._reader is None:
            return set()
        found, self._reader.unknown = self._reader.unknown, set()
        return found

    @classmethod
    def discover(cls, sample: list[bytes], values: Mapping[str, Any]) -> Schema:
        # For a sample that is not JSON at all the reason is reported.
        return discover_records(map(json_object, readable(sample) or sample))

    def _read(self, values: pa.Array, bad: list[int], reasons: list[str]) -> Iterator[pa.RecordBatch]:
        if self.schemas is None:
            return super()._read(values, bad, reasons)
        return self._unframed(values, bad, reasons)

    def _unframed(self, values: pa.Array, bad: list[int], reasons: list[str]) -> Iterator[pa.RecordBatch]:
        """Yields what comes after the numbers of schemas that the registry knows."""
        assert self.schemas is not None
        fine = np.zeros(len(values), dtype=bool)
        for number, places in by_schema(values):
            try:
                if number is None:
                    raise BadData(UNFRAMED)
                self.schemas.schema(number)
                fine[places] = True
            except BadData as error:
                bad += places.tolist()
                reasons += [error.message] * len(places)
        here = np.flatnonzero(fine)
        wrong: list[int] = []
        inner = stripped(values.take(pa.array(here)))
        yield from self._halved(inner, 0, wrong, reasons) if len(here) else ()
        bad += here[wrong].tolist()

    def read(self, values: pa.Array) -> pa.RecordBatch:
        if self._reader is None:
            self._reader = BlockReader(self.schema, declared=not self.watch, watch=self.watch)
        if not _are_enclosed(values):
            raise BadData("not a JSON object")
        block = joined(values)
        try:
            block.decode()
        except UnicodeDecodeError as error:
            raise BadData(f"not UTF-8: {error}") from None
        rows = self._reader.read(block, partial(_parse, values))
        if rows.num_rows != len(values):
            raise BadData("it is not one JSON object")
        return rows


def _are_enclosed(values: pa.Array) -> bool:
    """Returns whether each value begins and ends like an object. Then, as Arrow's reader treats a line break like any
    other space, as many objects as values are one object in each value.
    """
    simple = pc.and_(pc.starts_with(values, pattern=b"{"), pc.ends_with(values, pattern=b"}"))
    if pc.all(simple).as_py():
        return True
    return bool(pc.all(pc.match_substring_regex(values, pattern=rb"(?s)^\s*\{.*\}\s*$")).as_py())


def _parse(values: pa.Array) -> Records:
    return Records([json_object(v) for v in values.to_pylist()], lambda index: "")


def json_object(text: bytes) -> dict[str, Any]:
    """Parses the object of one message. Raises BadData."""
    try:
        record = DECODER.decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise BadData(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise BadData("not a JSON object")
    return record


_NAMES = 100
"""New fields that are reported in one batch; others are found later."""


def having(values: pa.Array, names: set[str]) -> list[bytes]:
    """Returns some JSON objects that have a field of one of the names."""
    if not names:
        return []
    spelled = {json.dumps(n, ensure_ascii=a) for n in sorted(names)[:_NAMES] for a in (True, False)}
    some = [pc.match_substring(values, text.encode()) for text in sorted(spelled)]
    found = values.filter(reduce(pc.or_, some)).slice(0, SAMPLE).to_pylist()
    return readable(found)


def readable(sample: list[bytes]) -> list[bytes]:
    """Returns those of a sample that are JSON objects."""
    found = []
    for text in sample:
        with suppress(BadData):
            json_object(text)
            found.append(text)
    return found


def others(columns: Schema, known: Schema) -> Schema:
    """Returns the columns that are not among the known ones."""
    return Schema(tuple(c for c in columns if c.name not in known))


class CsvMessages(Messages):
    """Decodes one line of CSV per message, without a header: columns by their place."""

    name = "csv"

    @classmethod
    def discover(cls, sample: list[bytes], values: Mapping[str, Any]) -> Schema:
        raise BadData("messages of CSV have no names for their columns")

    def read(self, values: pa.Array) -> pa.RecordBatch:
        from pyarrow import csv

        arrow = self.schema.arrow()
        block = joined(values)
        try:
            table = csv.read_csv(
                pa.BufferReader(block),
                csv.ReadOptions(
                    use_threads=False, column_names=arrow.names, block_size=max(len(block), 16) + 1
                ),
                csv.ParseOptions(delimiter=self.values.get("delimiter") or ",", newlines_in_values=False),
                csv.ConvertOptions(
                    column_types={n: pa.string() for n in arrow.names},
                    strings_can_be_null=True,
                    null_values=[""],
                    quoted_strings_can_be_null=False,
                ),
            ).combine_chunks()
        except pa.ArrowInvalid as error:
            raise BadData(f"not a line of CSV: {error}") from None
        arrays = []
        for field, column in zip(arrow, table.columns, strict=True):
            try:
                arrays.append(convert(whole(column), field.type))
            except Misfit as error:
                value = error.value[:_SHOWN]
                raise BadData(
                    f'"{value}" in column "{field.name}" is not a {type_name(field.type)}'
                ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=arrow)


class TextMessages(Messages):
    """Decodes the text of each message, in one column."""

    name = "text"
    _type: ClassVar[pa.DataType] = pa.string()

    @classmethod
    def discover(cls, sample: list[bytes], values: Mapping[str, Any]) -> Schema:
        return Schema((Column("value", cls._type),))

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
    _type = pa.binary()


MESSAGES: Mapping[str, type[Messages]] = {
    m.name: m for m in (JsonMessages, CsvMessages, TextMessages, RawMessages)
}
