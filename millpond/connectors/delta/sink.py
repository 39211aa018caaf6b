"""Writes rows to a Delta table: appends, or upserts and deletes by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from millpond.changes import Position
from millpond.connectors.databases.rows_sink import ROWS_OPTIONS, TableSink
from millpond.connectors.delta.client import STORAGE, exists, library, location, storage_options
from millpond.connectors.named_columns import named_columns
from millpond.errors import InvalidOption, NotSupported, TypeMismatch
from millpond.options import Option
from millpond.types import Schema, type_name

if TYPE_CHECKING:
    from millpond.connectors.delta.written_table import WrittenTable  # noqa: F401  (named as text in the base)

_FORBIDDEN = frozenset(" ,;{}()\n\t=")
"""Characters that Spark refuses in the names of columns of Delta tables."""


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
            if wrong := _FORBIDDEN & set(column.name):
                raise InvalidOption(
                    f'column "{column.name}": Delta allows no {sorted(wrong)[0]!r} in names',
                    hint="name it: … AS name",
                )
            if column.type is not None and not _has_form(column.type):
                raise TypeMismatch(
                    f'column "{column.name}": Delta has no {type_name(column.type)}',
                    hint=f"CAST({column.name} AS STRING)",
                )
        partitions_of(values, columns)

    def open(self, name: str) -> Position | None:
        library()
        from millpond.connectors.delta.written_table import WrittenTable

        self.close()
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


def _has_form(dtype: pa.DataType) -> bool:
    """Returns whether Delta has the type."""
    t = pa.types
    if t.is_struct(dtype):
        return dtype.num_fields > 0 and all(_has_form(f.type) for f in dtype)
    if t.is_list(dtype):
        return _has_form(dtype.value_type)
    if t.is_map(dtype):
        return _has_form(dtype.key_type) and _has_form(dtype.item_type)
    return bool(
        t.is_boolean(dtype)
        or t.is_signed_integer(dtype)
        or t.is_floating(dtype)
        or t.is_decimal(dtype)
        or t.is_string(dtype)
        or t.is_binary(dtype)
        or t.is_date(dtype)
        or t.is_timestamp(dtype)
    )
