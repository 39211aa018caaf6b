"""Decodes and encodes messages that are JSON objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import BadData
from millpond.formats.jsonblock import BlockReader, Records
from millpond.formats.jsonschema import columns_of, to_jsonschema
from millpond.formats.jsontext import to_json
from millpond.formats.jsontypes import discover_records
from millpond.formats.jsonvalues import DECODER
from millpond.formats.messages.base import SAMPLE, RowMessages, Writer, joined, others
from millpond.formats.wire import UNFRAMED, Described, by_schema, stripped
from millpond.types import Schema, quote, type_name

_AS_WE_WRITE = (
    "map('ignoreNullFields', 'false', 'timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSX',"
    " 'timestampNTZFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS')"
)
"""Options that make Spark's JSON equal to ours: NULL is null, times with microseconds."""
_NAMES = 100
"""New fields that are reported in one batch; others are found later."""


class JsonWriter(Writer):
    """Encodes each row as a JSON object."""

    def write(self, rows: pa.Table) -> pa.Array:
        return to_json(rows)

    def schema(self, subject: str) -> str:
        return to_jsonschema(self.columns, subject)

    @classmethod
    def encoding_sql(cls, names: Sequence[str]) -> str | None:
        return f"to_json(struct({', '.join(names)}), {_AS_WE_WRITE})" if names else "'{}'"


class JsonMessages(RowMessages):
    """Decodes one JSON object per message."""

    name = "json"
    registered = "JSON"
    writer = JsonWriter
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

    @classmethod
    def columns_of(cls, described: Described) -> Schema:
        return columns_of(described.text, described.references)

    @classmethod
    def decoding_sql(cls, columns: Schema) -> str | None:
        fields = ", ".join(f"{quote(c.name)} {type_name(c.type)}" for c in columns)
        ddl = fields.replace("\\", "\\\\").replace("'", "\\'")
        return f"from_json(CAST(value AS STRING), '{ddl}', map('mode', 'FAILFAST'))"

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
