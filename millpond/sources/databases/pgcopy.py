"""Rows of a query by COPY, as CSV that Arrow reads: no value passes through Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pyarrow as pa
from pyarrow import csv

from millpond.sources.databases.pglogin import Connected
from millpond.sources.databases.pgtext import from_texts
from millpond.sources.databases.pgtypes import PgType
from millpond.types import Schema

_AT_ONCE = frozenset("bool int2 int4 int8 float4 float8 oid xid cid date timestamp timestamptz text".split())
_ALL_DIGITS = 38


def _at_once(kind: PgType) -> bool:
    """Whether Arrow reads the values right as it reads CSV: decimals only where the column cannot have more digits."""
    return kind.form in _AT_ONCE or (kind.form == "numeric" and kind.arrow.precision < _ALL_DIGITS)


def copied(
    connection: Connected,
    query: str,
    values: Mapping[str, Any],
    schema: Schema,
    kinds: Sequence[PgType],
    size: int,
) -> Iterator[pa.RecordBatch]:
    """The rows of a SELECT of the columns of ``schema``, so many at a time."""
    reader = _Reader(schema, kinds)
    # COPY has no parameters: the driver quotes the values.
    whole = psycopg.ClientCursor(connection).mogrify(
        f"COPY ({query}\n) TO STDOUT (FORMAT csv)".encode(), values
    )
    with connection.cursor() as cursor, cursor.copy(whole.encode()) as copy:
        lines: list[Any] = []
        for line in copy:
            lines.append(line)
            if len(lines) >= size:
                yield reader.read(b"".join(lines))
                lines = []
        if lines:
            yield reader.read(b"".join(lines))


class _Reader:
    """Reads CSV as COPY writes it: NULL is nothing, an empty text has quotes."""

    def __init__(self, schema: Schema, kinds: Sequence[PgType]):
        self._schema = schema
        self._arrow = schema.arrow()
        self._kinds = kinds
        names = [str(i) for i in range(len(schema))]
        self._plain = dict.fromkeys(names, pa.string())
        self._typed = {
            n: c.type if c.type == k.arrow and _at_once(k) else pa.string()
            for n, c, k in zip(names, schema, kinds, strict=True)
        }
        self._reading = csv.ReadOptions(column_names=names, block_size=1 << 30)
        self._parsing = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)

    def read(self, data: bytes) -> pa.RecordBatch:
        try:
            found = self._columns(data, self._typed)
        except pa.ArrowInvalid:
            # The texts tell which value of which column it was.
            found = self._columns(data, self._plain)
        arrays = []
        for column, kind, array in zip(self._schema, self._kinds, found, strict=True):
            assert column.type is not None
            typed = array.type == column.type and not pa.types.is_string(array.type)
            arrays.append(array if typed else from_texts(array, kind, column.type, column.name))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)

    def _columns(self, data: bytes, types: Mapping[str, pa.DataType]) -> list[pa.Array]:
        options = csv.ConvertOptions(
            column_types=dict(types),
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        table = csv.read_csv(pa.BufferReader(data), self._reading, self._parsing, options)
        return [c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in table.columns]
