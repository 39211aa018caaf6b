"""Encodes small changes of tables for the log: single rows as their cells, others as Arrow.

A cell is the number or text that a table in memory stores: the days of a date, the microseconds of a timestamp, the
digits of a decimal. Many rows of a table become one blob when the database gets them.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from millpond.journal.blob_rows import Rows, Schemas, write_changes
from millpond.journal.blobs import Blob, encode
from millpond.journal.commit_cache import Facts

LARGEST = 1 << 16
"""The bytes of a commit above which it goes to the database at once."""

_LENGTH = struct.Struct("<I")
_to_json = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


class RowForm:
    """Converts the cells of rows with one schema to Arrow."""

    def __init__(self, schema: pa.Schema):
        self._schema = schema
        self.schema = schema.serialize().to_pybytes()

    @staticmethod
    def fits(schema: pa.Schema) -> bool:
        """Returns whether rows of the schema can be stored as cells."""
        t = pa.types
        return all(
            t.is_string(f.type)
            or t.is_decimal128(f.type)
            or (t.is_primitive(f.type) and not t.is_float16(f.type) and f.type.bit_width <= 64)
            for f in schema
        )

    def rows(self, rows: Sequence[Sequence[Any]], deleted: Sequence[bool]) -> tuple[Rows, bool]:
        """Returns the rows as they are stored, and whether a column says which of them are deletes."""
        columns = [
            _column(f.type, cells) for f, cells in zip(self._schema, zip(*rows, strict=True), strict=True)
        ]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        if not any(deleted):
            return Rows(self.schema, tuple(encode(table))), False
        table = table.append_column("", pa.array(deleted, pa.bool_()))
        return Rows(table.schema.serialize().to_pybytes(), tuple(encode(table))), True


def _column(dtype: pa.DataType, cells: Sequence[Any]) -> pa.Array:
    t = pa.types
    if t.is_decimal128(dtype):
        words = b"".join([(cell or 0).to_bytes(16, "little", signed=True) for cell in cells])
        there = np.packbits([cell is not None for cell in cells], bitorder="little")
        valid = None if None not in cells else pa.py_buffer(there)
        return pa.Array.from_buffers(dtype, len(cells), [valid, pa.py_buffer(words)])
    if t.is_temporal(dtype):
        return pa.array(cells, pa.int32() if dtype.bit_width == 32 else pa.int64()).view(dtype)
    return pa.array(cells, dtype)


class RowChange(NamedTuple):
    """Describes a change of one row: its cells, of a deleted row those of the key."""

    table: str
    form: RowForm
    deleted: bool
    cells: Sequence[Any]


@dataclass(frozen=True, slots=True)
class BlobChange:
    """Describes a change of a few rows."""

    table: str
    rows: Rows
    deletes: bool


SmallChange = RowChange | BlobChange
Pending = dict[int, list[tuple[int, SmallChange]]]
"""The changes that are in the log and not in the database, with the numbers of their commits, by revision."""


def to_record(changes: Sequence[tuple[int, SmallChange]], schemas: Schemas) -> bytes:
    """Returns the changes, with the numbers of their commits, as the content of a record. Their schemas are known."""
    facts: list[Any] = []
    blobs: list[bytes] = []
    for number, change in changes:
        if isinstance(change, RowChange):
            table, form, deleted, cells = change
            facts.append((table, number, schemas.known(form.schema), int(deleted), cells))
        else:
            (blob,) = change.rows.blobs
            assert blob.data is not None
            shape = (blob.rows, blob.length, blob.crc)
            facts.append(
                (change.table, number, schemas.known(change.rows.schema), int(change.deletes), None, shape)
            )
            blobs.append(blob.data)
    text = _to_json(facts).encode()
    return b"".join((_LENGTH.pack(len(text)), text, *blobs))


def from_record(
    content: bytes, schemas: Schemas, connection: sqlite3.Connection, forms: dict[int, RowForm]
) -> Iterator[tuple[int, SmallChange]]:
    """Yields what ``to_record`` was given; ``forms`` keeps those that were made."""
    (length,) = _LENGTH.unpack_from(content)
    at = _LENGTH.size + length
    for table, number, schema, deleted, cells, *shape in json.loads(content[_LENGTH.size : at]):
        if cells is not None:
            if schema not in forms:
                forms[schema] = RowForm(schemas.read(connection, schema))
            yield number, RowChange(table, forms[schema], bool(deleted), cells)
        else:
            rows, size, crc = shape[0]
            blob = Blob(rows, size, crc, content[at : at + size])
            at += size
            yield number, BlobChange(table, Rows(schemas.data(connection, schema), (blob,)), bool(deleted))


def write_pending(pending: Pending, connection: sqlite3.Connection, after: Facts, schemas: Schemas) -> None:
    """Writes the changes to the database, neighbours together."""
    for table, changes in by_table(pending).items():
        for number, rows, deletes in merged(changes):
            schema = schemas.number(connection, rows.schema)
            seals = write_changes(connection, table, number, rows, schema, snapshot=False, deletes=deletes)
            after.add_blobs(connection, table, seals, sum(b.length for b in rows.blobs))


def by_table(pending: Pending) -> dict[str, list[tuple[int, SmallChange]]]:
    found: dict[str, list[tuple[int, SmallChange]]] = {}
    for changes in pending.values():
        for number, change in changes:
            found.setdefault(change.table, []).append((number, change))
    return found


def merged(changes: Sequence[tuple[int, SmallChange]]) -> Iterator[tuple[int, Rows, bool]]:
    """Yields the changes of one table as they are stored, with the number of the last commit in each."""
    for form, run in groupby(changes, key=lambda c: c[1].form if isinstance(c[1], RowChange) else None):
        if form is None:
            for number, change in run:
                assert isinstance(change, BlobChange)
                yield number, change.rows, change.deletes
        else:
            some = list(run)
            rows = [change for _, change in some if isinstance(change, RowChange)]
            yield some[-1][0], *form.rows([r.cells for r in rows], [r.deleted for r in rows])
