"""Writes rows to a Delta table: appends, or upserts and deletes by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from millpond.changes import Position
from millpond.connectors.databases.rows_sink import ROWS_OPTIONS, TableSink
from millpond.connectors.delta.client import STORAGE, exists, library, location, storage_options
from millpond.connectors.delta.columns import check_column
from millpond.connectors.delta.places import check_free
from millpond.connectors.named_columns import named_columns
from millpond.errors import NotSupported
from millpond.options import Option
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.connectors.delta.written_table import WrittenTable  # noqa: F401  (named as text in the base)


class DeltaSink(TableSink["WrittenTable"]):
    """Writes with delta-rs, in the driver."""

    kind: ClassVar[str] = "delta"
    schemes: ClassVar[tuple[str, ...]] = ("delta",)
    options: ClassVar[tuple[Option, ...]] = (
        *(o for o in ROWS_OPTIONS if o.name in ("key", "mode", "delivery")),
        Option(
            "partition.by",
            "text",
            "the columns that a table is partitioned by when it is created, separated by commas",
        ),
        STORAGE,
    )

    @classmethod
    def target(cls, uri: str, values: Mapping[str, Any]) -> tuple[str, str]:
        place = location(uri)
        return place, place

    @classmethod
    def check_statement(cls, uri: str, values: Mapping[str, Any], schema: Schema, *, running: bool) -> None:
        super().check_statement(uri, values, schema, running=running)
        values = {**values, **cls.named_in(uri)}
        columns = cls.columns_of(values, schema)
        for column in columns:
            check_column(column)
        partitions_of(values, columns)

    def open(self, name: str) -> Position | None:
        library()
        from millpond.connectors.delta.written_table import WrittenTable

        self.close()
        check_free(self.table)
        partitions = partitions_of(self.values, self.columns)
        self._table = WrittenTable(self.table, storage_options(self.values), self.columns, partitions)
        if not self.exact:
            self._is_open = True
            return None
        self._write_for(name)
        with self._whoever_tries_again_takes_over():
            found = self._table.take_over(name, self.known_batch, self._owner)
        self._owner, self._is_open = self._table.owner, True
        return found

    def check(self, rows: pa.Table) -> None:
        self._opened().fitting(rows)

    def write(self, rows: pa.Table, position: Position | None) -> None:
        check_free(self.table)
        with self._writing() as table:
            table.write(rows, position)

    def forget(self, name: str) -> None:
        if not self.exact:
            return
        library()
        from millpond.connectors.delta.written_table import WrittenTable

        self.close()
        self._owner = None
        storage = storage_options(self.values)
        if exists(self.table, storage):
            WrittenTable(self.table, storage, Schema(())).forget(name)

    @property
    def guarantee(self) -> str:
        if self.exact:
            return "exactly once: the rows of a batch and the position are one commit of the Delta table"
        return super().guarantee

    @property
    def writer(self) -> str:
        return f"{super().writer}, with delta-rs"


def partitions_of(values: Mapping[str, Any], columns: Schema) -> tuple[str, ...]:
    """Returns the columns that a new table is partitioned by."""
    named = named_columns("partition.by", values.get("partition.by"), columns.names)
    if named and len(named) == len(columns):
        raise NotSupported("a Delta table needs a column that it is not partitioned by")
    return named
