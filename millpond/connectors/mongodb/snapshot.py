"""Reads the rows of a table from its collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW
from millpond.connectors.databases.texts import equal_rows
from millpond.connectors.mongodb.filters import Filter, written
from millpond.connectors.mongodb.rows import MongoRows
from millpond.connectors.mongodb.values import decoded, encoded, rest_field
from millpond.connectors.row_times import TIME, micros
from millpond.errors import BadData, NotSupported
from millpond.predicates import Predicate
from millpond.records.lookup_keys import fitting_keys
from millpond.tables.base import Snapshot
from millpond.types import Column, type_name

if TYPE_CHECKING:
    from pymongo.collection import Collection

_KEYS = 5_000
"""Keys in one request."""
_PAIRS = 200
"""Keys of several columns in one request."""


class MongoSnapshot(Snapshot):
    """Represents the current table: each read sees one commit, and two reads may see two."""

    remote = True

    def __init__(self, table: MongoRows, version: int):
        self.schema = table.schema
        self.version = version
        self._table = table

    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        table = self._table
        wanted = [table.column(name) for name in columns]
        fitting = fitting_keys([c.type for c in wanted], keys, nulls=nulls)
        names = self._names(None, rows)
        if not fitting or not len(fitting[0]):
            table.check_open()
            return self.decoded(table, names, [])
        identity = [table.column(n).name for n in table.identity]
        if {c.name for c in wanted} == set(identity):
            by_name = dict(zip((c.name for c in wanted), fitting, strict=True))
            ids = table.ids([by_name[n] for n in identity])
            asked = [{"_id": {"$in": ids[at : at + _KEYS]}} for at in range(0, len(ids), _KEYS)]
            return self._read(names, asked, only=set(ids))
        table.want_index(wanted)
        return equal_rows(self._read(names, _equal(table, wanted, fitting)), wanted, fitting)

    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        return self._read(self._names(columns, rows), [{}])

    def filtered(self, where: Predicate, *, rows: bool = False) -> pa.Table:
        keys = self.keys_in(where) if self.schema.key else None
        if keys is not None:
            return self.get(keys.column_names, keys)
        asked = written(where, self._table.field_of)
        return self._read(self._names(None, rows), [asked or {}])

    def changed_before(self, time: float, most: int) -> pa.Table:
        names, limit = self._names(None, not self.schema.key), micros(time)[0]
        asked = {self._table.field_of(TIME)[1]: {"$lt": encoded(micros(time), pa.int64())[0]}}
        found = self.decoded(self._table, [*names, TIME], self._documents([*names, TIME], [asked], most=most))
        old = pc.fill_null(
            pc.less(found[TIME], limit), False
        )  # a commit that is not applied yet has others too
        return found.filter(old).select(names).slice(0, most)

    def _names(self, columns: Sequence[str] | None, rows: bool) -> list[str]:
        if rows and self.schema.key:
            raise NotSupported(f"{self._table.what} has a primary key: its rows have no numbers")
        names = list(self.schema.names) if columns is None else [self._table.column(n).name for n in columns]
        return [*names, ROW] if rows else names

    def _read(self, names: Sequence[str], asked: Sequence[Filter], only: set[Any] | None = None) -> pa.Table:
        return self.decoded(self._table, names, self._documents(names, asked, only))

    def _documents(
        self,
        names: Sequence[str],
        asked: Sequence[Filter],
        only: set[Any] | None = None,
        most: int = 0,
    ) -> list[dict[str, Any]]:
        """Returns the documents of rows that match one of the filters, each of another part of the rows; in their
        order if they have no key; of each filter at the ``most`` some. Of a commit that is not applied yet it returns
        all rows, or ``only`` some.
        """
        table = self._table
        table.check_open()
        fields = self._fields(names)

        def work(collection: Collection[dict[str, Any]]) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            for each in asked:
                cursor = collection.find(each, fields, limit=most)
                found += cursor if table.schema.key else cursor.sort([("_id", 1)])
            return found

        found, changes = table.database.consistent(table.name, work)
        if changes is not None:
            there = {document["_id"]: document for document in found}
            for id_, document in changes.documents.items():
                there.pop(id_, None)
                if document is not None and (only is None or id_ in only):
                    there[id_] = document
            found = list(there.values())
            if not table.schema.key:
                found.sort(key=lambda document: int(document["_id"]))
        return found

    def _fields(self, names: Sequence[str]) -> dict[str, int]:
        """Returns the fields that are read."""
        fields = {"_id": 1}
        for name in names:
            column, field = self._table.field_of(name)
            fields[field] = 1
            if pa.types.is_timestamp(column.type):
                fields[rest_field(field)] = 1
        return fields

    @staticmethod
    def decoded(table: MongoRows, names: Sequence[str], found: Sequence[dict[str, Any]]) -> pa.Table:
        """Returns documents as rows."""
        columns = [table.column(name) for name in names]
        arrays = []
        for column in columns:
            field = table.field(column)
            rests = None
            if pa.types.is_timestamp(column.type):
                beside = rest_field(field)
                rests = [d.get(beside) for d in found]
            try:
                arrays.append(decoded([d.get(field) for d in found], column.type, rests))
            except (pa.ArrowException, ValueError, TypeError, AttributeError, ArithmeticError) as error:
                raise _unreadable(table, column, error) from error
        return pa.table(arrays, schema=pa.schema([pa.field(c.name, c.type) for c in columns]))

    def __len__(self) -> int:
        table = self._table
        table.check_open()
        count, changes = table.database.consistent(table.name, lambda c: c.count_documents({}))
        return count if changes is None else len(self._documents([], [{}]))


def _equal(table: MongoRows, columns: Sequence[Column], keys: Sequence[pa.Array]) -> list[Filter]:
    """Returns filters for the rows whose columns equal one of the keys, and perhaps some more."""
    plain = [(c, k) for c, k in zip(columns, keys, strict=True) if not pa.types.is_nested(c.type)]
    if not plain:
        return [{}]
    cells = [encoded(k, c.type) for c, k in plain]
    fields = [table.field(c) for c, _ in plain]
    if len(fields) == 1:
        values = list({repr(v): v for v in cells[0]}.values())
        return [{fields[0]: {"$in": values[at : at + _KEYS]}} for at in range(0, len(values), _KEYS)]
    pairs = list({repr(row): row for row in zip(*cells, strict=True)}.values())
    return [
        {"$or": [dict(zip(fields, row, strict=True)) for row in pairs[at : at + _PAIRS]]}
        for at in range(0, len(pairs), _PAIRS)
    ]


def _unreadable(table: MongoRows, column: Column, error: Exception) -> BadData:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return BadData(
        f'column "{column.name}" of {table.what} holds a value that is no {type_name(column.type)}: {reason}',
        hint="others have written into its collection",
    )
