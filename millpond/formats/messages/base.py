"""Defines the contract of a format of messages, such as those of a topic, and finds formats.

A format is one file in this folder with one subclass of ``Messages``, found by its name (``'format' = 'json'``): how
values are decoded, and, if it has a ``writer``, how they are encoded. A message that cannot be decoded does not affect
the others: it is returned with the reason.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import BadData, UnknownName, did_you_mean
from millpond.extensions import classes_in, offered, offered_class
from millpond.formats.read_records import no_rows
from millpond.formats.wire import Described, Schemas
from millpond.options import Option
from millpond.types import Schema

SAMPLE = 1_000
"""Messages that are read to discover the columns."""
SHOWN = 200
"""Characters of a value that a reason quotes."""
_ONE_BY_ONE = 16
"""Messages among which a bad one is searched without halving."""


class Decoded(NamedTuple):
    """Contains a row for each message that could be decoded, the indexes of the others, and the reasons."""

    rows: pa.RecordBatch
    bad: list[int]
    reasons: list[str]


class Events(NamedTuple):
    """Contains rows as they are, or as they were where ``ended``; ``places`` are the indexes of their messages. A row
    that an update replaced is deleted right before the one that replaces it, as its key may differ.
    """

    rows: pa.RecordBatch
    ended: pa.Array
    places: pa.Array
    bad: list[int]
    reasons: list[str]


class Writer(ABC):
    """Encodes rows of columns as the values of a topic's messages. Picklable: executors encode, too."""

    def __init__(self, topic: str, columns: Schema, values: Mapping[str, Any]):
        self.topic = topic
        self.columns = columns
        self.values = dict(values)

    @abstractmethod
    def write(self, rows: pa.Table) -> pa.Array:
        """Returns one value for each row, as bytes. Raises BadData."""

    def schema(self, subject: str) -> str:
        """Returns the schema for the registry, of a format that is ``registered`` there."""
        raise AssertionError(f"{type(self).__name__} has no schema")

    @classmethod
    def encoding_sql(cls, names: Sequence[str]) -> str | None:
        """Returns what ``write`` does, as an expression of Spark over columns with these quoted names; None if Spark
        cannot do it alone.
        """
        return None


class Messages(ABC):
    """Decodes the values of messages to the columns of a schema. Picklable.

    With ``watch`` it looks for fields that the schema does not have, if the format can have such fields. With
    ``schemas`` each message contains the number of its schema there; only a format that is ``registered`` gets them.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    """Its options, among those of the source or sink. One without a default has no meaning for another format."""
    registered: ClassVar[str | None] = None
    """Its name in a registry of schemas, if it has schemas there."""
    writer: ClassVar[type[Writer] | None] = None
    """Encodes rows; None if the format is only read."""

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

    @classmethod
    @abstractmethod
    def discover(cls, sample: list[bytes], values: Mapping[str, Any]) -> Schema:
        """Discovers the columns of a sample of messages."""

    @classmethod
    def columns(cls, values: Mapping[str, Any]) -> Schema | None:
        """Returns the columns, if no message is needed to find them."""
        return None

    @classmethod
    def columns_of(cls, described: Described) -> Schema:
        """Returns the columns of a schema in a registry, of a format that is ``registered`` there."""
        raise AssertionError(f"{cls.name} has no schemas")

    @abstractmethod
    def events(self, values: pa.Array) -> Events:
        """Decodes binary values. A NULL is a tombstone: it deletes a row, or has no meaning."""

    def fresh(self, values: pa.Array) -> Schema:
        """Returns the columns that were found so, ``values`` being the last that were decoded; VOID if the type is
        unknown.
        """
        return Schema(())

    @classmethod
    def decoding_sql(cls, columns: Schema) -> str | None:
        """Returns the decoding as an expression of Spark over the binary column ``value``: a struct of the columns;
        None if Spark cannot do it alone. A message that cannot be decoded stops the query.
        """
        return None


class RowMessages(Messages):
    """Decodes messages that are one row each, many at a time. A bad one is found by halving."""

    @abstractmethod
    def read(self, values: pa.Array) -> pa.RecordBatch:
        """Returns a row for each value; none is NULL. Raises BadData if one of them cannot be decoded."""

    def events(self, values: pa.Array) -> Events:
        rows, bad, reasons = self.decode(values)
        places = pa.array(np.delete(np.arange(len(values)), bad))
        return Events(rows, values.is_null().take(places), places, bad, reasons)

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


def others(columns: Schema, known: Schema) -> Schema:
    """Returns the columns that are not among the known ones."""
    return Schema(tuple(c for c in columns if c.name not in known))


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


@cache
def message_formats() -> tuple[type[Messages], ...]:
    """Returns every format of messages of this package, by name."""
    return tuple(sorted(classes_in(__package__, Messages), key=lambda m: m.name))


def find_messages(name: str) -> type[Messages]:
    """Returns the format of messages of that name, of this package or of another."""
    for known in message_formats():
        if known.name == name.lower():
            return known
    other = offered_class("message", name, Messages)
    if other is None:
        names = [*(m.name for m in message_formats()), *offered("message")]
        raise UnknownName(
            f'the format of messages "{name}" is not known',
            hint=did_you_mean(name, names, f"known: {', '.join(names)}"),
        )
    return other
