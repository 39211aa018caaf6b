"""Implements ``mongodb``: a document for each row, in a collection of a MongoDB database.

A row is identified by ``_id``: the key itself if it is one integer, text or day, else the texts of its columns as JSON;
without a key the number of the row. Every other column is a field.

millpond_tables        the tables, with what they are, and the numbers of rows without a key
millpond_positions     how far running statements were applied
millpond_state, …      the commits: see commits.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from millpond.alterations import TableChange
from millpond.changes import ROW, Changes
from millpond.connectors.databases.records import quick_reads
from millpond.connectors.mongodb.commits import TABLES
from millpond.connectors.mongodb.database import MongoDatabase, MongoWriting
from millpond.connectors.mongodb.fields import changed_fields
from millpond.connectors.mongodb.names import check_collection, collection_name
from millpond.connectors.mongodb.rows import MongoRows
from millpond.connectors.mongodb.snapshot import MongoSnapshot
from millpond.connectors.mongodb.trouble import driver, place_of
from millpond.connectors.mongodb.values import encoded
from millpond.connectors.row_times import TIME, refuse_hidden, with_time, without_times
from millpond.connectors.table import shared, url_of
from millpond.errors import Error, InvalidRecord, TypeMismatch
from millpond.options import Option
from millpond.records import to_rows
from millpond.retry import for_connections
from millpond.tables.base import Get, Has, Snapshot
from millpond.tables.ttl import goes_by_changes
from millpond.types import Column, Schema, type_name, whole

_LARGEST = 15 << 20
"""Bytes of a document; MongoDB has 16 MB for it, and for what a commit stores it in."""


class MongoTable(MongoRows):
    """Represents a table of a MongoDB database. Other programs may read its collection, and must not write it."""

    schemes = ("mongodb+srv",)
    abilities = frozenset({"lasting", "null_keys", "every_key", "every_float", "alter", "times"})
    options = (
        Option("url", "secret", "The database: `mongodb://user:password@host:27017/database`."),
        Option("table", "text", "The name of its collection. By default its name here."),
        Option(
            "pool.size",
            "int",
            "The number of connections that may be open at a time.",
            default=100,
            aliases=("connection.pool.size",),
        ),
        Option("connect.timeout", "duration", "The time to open a connection.", default=10.0),
        Option("retry.timeout", "duration", "How long a lost connection is retried.", default=30.0),
    )

    database: MongoDatabase

    @classmethod
    def open(
        cls,
        name: str,
        schema: Schema,
        values: Mapping[str, Any],
        *,
        null_keys: bool = False,
        home: Path | None = None,
    ) -> Self:
        url = url_of(name, values, ("mongodb", "mongodb+srv"), "MongoDB", "mongodb://host:27017/database")
        driver()
        timeout = float(values.get("retry.timeout") or 0)
        database = shared(
            url,
            lambda: MongoDatabase(
                url,
                connections=max(1, int(values.get("pool.size") or 100)),
                retry_timeout=timeout,
                connect_timeout=float(values.get("connect.timeout") or 10),
            ),
        )
        database.patience = for_connections(max(database.patience.timeout, timeout))
        table = cls(name, schema, database, null_keys=null_keys)
        table.times = goes_by_changes(values)
        with table.closed_on_error():
            given = str(values.get("table") or "")
            table.name = check_collection(given, table.what) if given else collection_name(name)
            table._set_up()
        return table

    @classmethod
    def stored_in(cls, values: Mapping[str, Any]) -> str | None:
        return place_of(str(values.get("url") or ""))

    def _set_up(self) -> None:
        self.indexed: set[tuple[str, ...]] = set()
        self.refused: set[tuple[str, ...]] = set()
        refuse_hidden(self)
        wanted = self.times

        def work(writing: MongoWriting) -> None:
            there = writing.document(TABLES, self.name)
            if there is not None:
                self.times = TIME in json.loads(there["about"])["columns"]
                if wanted and not self.times:
                    raise without_times(self.what, "database")
            about = self.about()
            if there is None and self.name in self.database.connection.names():
                raise TypeMismatch(
                    f'{self.what}: the collection "{self.name}" in {self.database.name} belongs to others',
                    hint="give the table another collection, with 'table'",
                )
            if there is None:
                writing.changes.put(TABLES, {"_id": self.name, "about": about, "next": 0})
            elif there["about"] != about:
                raise TypeMismatch(
                    f'{self.what}: the collection "{self.name}" in {self.database.name} holds another table:'
                    f" {there['about']}",
                    hint="declare the same columns and key, or give it another collection, with 'table'",
                )

        self.database.write(work)
        if self.times:
            self.create_index([TIME])

    def about(self) -> str:
        """Returns what the table is, as MongoDB stores it."""
        return json.dumps(
            {
                "columns": {c.name.lower(): type_name(c.type) for c in self.columns},
                "key": [k.lower() for k in self.schema.key],
                "null_keys": self.null_keys,
            },
            sort_keys=True,
        )

    @property
    def stored_name(self) -> str:
        return self.name

    # changes

    def check(self, changes: Changes) -> Changes:
        found = super().check(changes)
        # Else none of its rows can be too large; a value in another one takes more than here by any factor.
        if found.put.nbytes > _LARGEST // 4 or any(pa.types.is_nested(c.type) for c in self.columns):
            self._check_sizes(found)
        return found

    def _check_sizes(self, changes: Changes) -> None:
        from bson import encode

        rows = changes.put
        if ROW not in rows.column_names and not self.schema.key:
            rows = rows.append_column(ROW, pa.array(range(rows.num_rows), pa.int64()))
        for number, document in enumerate(
            self.documents(with_time(rows, self.now()) if self.times else rows)
        ):
            if len(encode(document)) > _LARGEST:
                raise InvalidRecord(
                    f"row {number} of {self.what} has more than {_LARGEST >> 20} MB, as a document",
                    row=number,
                )

    def put(self, session: Any, rows: pa.Table) -> None:
        for document in self.documents(rows):
            session.changes.put(self.name, document)

    def end(self, session: Any, keys: pa.Table) -> None:
        for id_ in self.ids([whole(keys.column(self.column(n).name)) for n in self.identity]):
            session.changes.end(self.name, id_)

    def take_numbers(self, session: Any, count: int, highest: int) -> int:
        about = session.document(TABLES, self.name) or {"_id": self.name, "about": self.about(), "next": 0}
        first = max(int(about["next"]), highest + 1)
        session.changes.put(TABLES, {**about, "next": encoded(pa.array([first + count]), pa.int64())[0]})
        return first

    def alter(self, change: TableChange) -> MongoTable:
        made = copy(self)
        made.schema = change.schema(self.schema)
        refuse_hidden(made)
        made.indexed, made.refused = set(), set()
        update = changed_fields(self, made, change)

        def work(writing: MongoWriting) -> None:
            there = writing.document(TABLES, self.name) or {"_id": self.name, "next": 0}
            writing.changes.put(TABLES, {**there, "about": made.about()})
            if update is not None:
                writing.changes.of(self.name).updates.append(update)

        if update is not None:
            for columns in [*self.indexed]:
                if getattr(change, "name", None) in columns:
                    self.drop_index(columns)
        self.database.write(work)
        return made

    def remove(self) -> None:
        def work(writing: MongoWriting) -> None:
            writing.changes.of(self.name).dropped = True
            writing.changes.end(TABLES, self.name)

        self.database.write(work)

    # reading

    def quick_reads(self, step: Iterator[int], get: Get, has: Has) -> tuple[Get, Has]:
        if self.null_keys or not self.schema.key:
            return get, has
        key = [self.column(k) for k in self.schema.key]

        def fetch(parts: tuple[Any, ...]) -> Sequence[Any] | None:
            self.check_open()
            arrays = [pa.array([part], c.type) for part, c in zip(parts, key, strict=True)]
            found = self.database.one(self.name, self.ids(arrays)[0])
            if found is None:
                return None
            (record,) = to_rows(MongoSnapshot.decoded(self, list(self.schema.names), [found]))
            return list(record.values())

        return quick_reads(self.schema, [None] * len(self.schema), fetch, step, get, has)

    def reader(self, version: int) -> Snapshot:
        self.check_open()
        return MongoSnapshot(self, version)

    def stats(self) -> dict[str, Any]:
        return {
            "rows": len(self.snapshot()),
            "bytes": self.database.connection.size(self.name),
            "changed_at": self.changed_at,
            "indexes": [list(columns) for columns in sorted(self.indexed)],
            "where": f"{self.database.name}, collection {self.name}",
        }

    # indexes

    def want_index(self, columns: Sequence[Column]) -> None:
        names = tuple(c.name for c in columns)
        nested = any(pa.types.is_nested(c.type) for c in columns)
        if nested or names in self.indexed or names in self.refused or self.natural in names:
            return
        try:
            self.database.when_free(lambda: self.create_index(names))  # else the next lookup tries again
        except Error:
            self.refused.add(names)

    def create_index(self, columns: Sequence[str]) -> bool:
        fields = [(self.field(self.column(name)), 1) for name in columns]
        collection = self.database.collection(self.name)
        self.database.tried(lambda: collection.create_index(fields, name=_index_name(fields)))
        self.indexed.add(tuple(self.column(name).name for name in columns))
        return True

    def drop_index(self, columns: Sequence[str]) -> bool:
        name = _index_name([(self.field(self.column(c)), 1) for c in columns])
        collection = self.database.collection(self.name)

        def work() -> None:
            if name in collection.index_information():
                collection.drop_index(name)

        self.database.tried(work)
        self.indexed.discard(tuple(self.column(name).name for name in columns))
        return True


def _index_name(fields: Sequence[tuple[str, int]]) -> str:
    return f"millpond {hashlib.sha256(repr(list(fields)).encode()).hexdigest()[:24]}"


BACKEND = MongoTable
