"""Describes changes of a table's columns: what they do to its schema, and to rows that were stored before."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millpond.types import Column, Schema


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """Adds a column at the end. ``value`` is an array with the one value that it has in the rows before it."""

    column: Column
    value: pa.Array

    @property
    def name(self) -> str:
        return self.column.name

    def schema(self, before: Schema) -> Schema:
        return Schema((*before.columns, self.column), before.key)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.value[0].is_valid:
            return batch  # a missing column is NULL
        if _at(batch, self.name) is not None:
            return batch
        # The first: the last column of a batch may say which rows are deletes.
        return batch.add_column(0, self.name, pa.repeat(self.value[0], batch.num_rows))


@dataclass(frozen=True, slots=True)
class RenamedColumn:
    """Gives a column another name."""

    old: str
    new: str

    @property
    def name(self) -> str:
        return self.old

    def schema(self, before: Schema) -> Schema:
        columns = (replace(c, name=self.new) if _same(c.name, self.old) else c for c in before)
        return Schema(tuple(columns), tuple(self.new if _same(k, self.old) else k for k in before.key))

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = [self.new if _same(name, self.old) else name for name in batch.schema.names]
        return batch.rename_columns(names)


@dataclass(frozen=True, slots=True)
class DroppedColumn:
    """Removes a column with its values."""

    name: str

    def schema(self, before: Schema) -> Schema:
        return Schema(tuple(c for c in before if not _same(c.name, self.name)), before.key)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        at = _at(batch, self.name)
        return batch if at is None else batch.remove_column(at)


@dataclass(frozen=True, slots=True)
class RetypedColumn:
    """Gives a column a wider type, which has all of its values."""

    name: str
    type: pa.DataType

    def schema(self, before: Schema) -> Schema:
        columns = (replace(c, type=self.type) if _same(c.name, self.name) else c for c in before)
        return Schema(tuple(columns), before.key)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        at = _at(batch, self.name)
        if at is None:
            return batch
        return batch.set_column(at, batch.schema.names[at], batch.column(at).cast(self.type))


@dataclass(frozen=True, slots=True)
class DefaultedColumn:
    """Gives a column another DEFAULT, or none; its values stay."""

    name: str
    default: str | None

    def schema(self, before: Schema) -> Schema:
        columns = (replace(c, default=self.default) if _same(c.name, self.name) else c for c in before)
        return Schema(tuple(columns), before.key)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


@dataclass(frozen=True, slots=True)
class WidenedColumns:
    """Adds columns anywhere, which are NULL in the rows before; ``wide`` has those of the table and others."""

    wide: Schema

    def schema(self, before: Schema) -> Schema:
        return self.wide

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


ColumnChange = AddedColumn | RenamedColumn | DroppedColumn | RetypedColumn | DefaultedColumn
TableChange = ColumnChange | WidenedColumns


@dataclass(frozen=True, slots=True)
class Alterations:
    """Contains the changes of a table's columns, each with the number of its commit. Rows of the journal from before
    such a commit have the columns of that time.
    """

    changes: tuple[tuple[int, ColumnChange], ...] = ()

    def and_then(self, number: int, change: ColumnChange) -> Alterations:
        return Alterations((*self.changes, (number, change)))

    def adapt(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows that were stored in that commit with the current columns."""
        for at, change in self.changes:
            if number < at:
                batch = change.rows(batch)
        return batch

    def dump(self) -> list[list[Any]]:
        return [[number, dump_change(change)] for number, change in self.changes]

    @staticmethod
    def load(data: Sequence[Sequence[Any]]) -> Alterations:
        return Alterations(tuple((number, load_change(change)) for number, change in data))


def dump_change(change: ColumnChange) -> dict[str, Any]:
    """Returns a change as JSON."""
    match change:
        case AddedColumn(column, value):
            about = {"name": column.name, "nullable": column.nullable, "default": column.default}
            return {"add": about, "value": _dump(column.name, value)}
        case RenamedColumn(old, new):
            return {"rename": old, "to": new}
        case DroppedColumn(name):
            return {"drop": name}
        case RetypedColumn(name, dtype):
            return {"retype": name, "type": _dump(name, pa.nulls(1, dtype))}
        case DefaultedColumn(name, default):
            return {"default": name, "value": default}


def load_change(data: Mapping[str, Any]) -> ColumnChange:
    if "add" in data:
        about, value = data["add"], _load(data["value"])
        column = Column(about["name"], value.type, about["nullable"], default=about["default"])
        return AddedColumn(column, value)
    if "rename" in data:
        return RenamedColumn(data["rename"], data["to"])
    if "drop" in data:
        return DroppedColumn(data["drop"])
    if "default" in data:
        return DefaultedColumn(data["default"], data["value"])
    return RetypedColumn(data["retype"], _load(data["type"]).type)


def _dump(name: str, value: pa.Array) -> str:
    table = pa.table({name: value})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def _load(text: str) -> pa.Array:
    with pa.ipc.open_stream(pa.py_buffer(base64.b64decode(text))) as reader:
        return reader.read_all().column(0).combine_chunks()


def _at(batch: pa.RecordBatch, name: str) -> int | None:
    return next((at for at, n in enumerate(batch.schema.names) if _same(n, name)), None)


def _same(one: str, other: str) -> bool:
    return one.lower() == other.lower()
