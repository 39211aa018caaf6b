"""Columns of sources that were discovered: kept in the journal, so that a restart sees the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.journal.catalog import Entry
from millpond.sql.catalog import Relation
from millpond.store.catalog import dump_schema, load_schema
from millpond.types import NUMBER, Schema

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.sql.checked import Checked

COLUMNS = "columns"
"""The kind of journal entries that hold them; the name is the address of the source."""


def take_doubles(app: App, checked: Checked) -> bool:
    """Lets numbers be DOUBLE that were discovered in the sources of a statement, as they were in earlier versions,
    unless the columns of a source are kept. Answers whether there are such."""
    found = False
    for relation in (i.relation for i in checked.resolved.inputs) if checked.resolved is not None else ():
        if relation.uri is None or not relation.guessed:
            continue
        source = app._source(relation)
        schema = as_doubles(source.schema())
        if source.found is None and schema != source.schema():
            app._rooms.forget(source.address)
            app._rooms.found[source.address] = schema
            found = True
    return found


def as_doubles(schema: Schema) -> Schema:
    return Schema(tuple(replace(c, type=_as_double(c.type)) for c in schema), schema.key)


def _as_double(dtype: pa.DataType | None) -> pa.DataType | None:
    if dtype == NUMBER:
        return pa.float64()
    if dtype is not None and pa.types.is_list(dtype):
        return pa.list_(dtype.value_field.with_type(_as_double(dtype.value_type)))
    if dtype is not None and pa.types.is_struct(dtype):
        return pa.struct([f.with_type(_as_double(f.type)) for f in dtype])
    return dtype


class KeptColumns:
    """What the journal holds of them."""

    def __init__(self, app: App):
        self._app = app
        self._kept: dict[str, Schema] = {}
        self._first: dict[str, int] = {}
        """How many there were when a source was first looked at."""

    def restore(self, entry: Entry) -> None:
        self.note(entry)
        self._app._rooms.found[entry.name] = self._kept[entry.name]

    def keep(self, relations: Sequence[Relation]) -> None:
        """Keeps those of the sources behind streams and URIs that a statement reads from now on."""
        for entry in self.gather(relations):
            self.note(entry)
            self._app._journal.put_entry(entry)

    def gather(self, relations: Sequence[Relation]) -> list[Entry]:
        """What the journal has to have for ``keep``."""
        if self._app._read_only:
            return []
        for relation in relations:
            self._discover(relation)
        found = []
        for address in sorted(self._addresses(relations)):
            columns = self._app._rooms.found.get(address)
            if columns is not None and self._kept.get(address) != columns:
                first = self._first.get(address, len(columns))
                found.append(Entry(address, COLUMNS, "", (dump_schema(columns) or {}) | {"first": first}))
        return found

    def note(self, entry: Entry) -> None:
        """Notes what the journal has, or is about to have."""
        schema = load_schema(entry.data)
        assert schema is not None
        self._kept[entry.name] = schema
        self._first[entry.name] = entry.data.get("first", len(schema))

    def _discover(self, relation: Relation) -> None:
        """Of files the columns are noted when a statement reads them on."""
        source = self._app._source(relation) if relation.uri is not None else None
        if source is not None and source.drifts:
            self._app._rooms.find(source.address, source.schema())

    def added(self, relation: Relation) -> list[str]:
        """The columns of a stream that came up later."""
        address = self._app._source(relation).address
        return list(self._kept[address].names[self._first[address] :]) if address in self._kept else []

    def forget_unused(self) -> None:
        """Lets go of what no statement reads any more: who reads it next looks again."""
        if self._app._runner.starter.stalled:
            return  # what these read is known when they start
        relations = [r for r in self._app._catalog if r.kind == "stream"]
        relations += [stream for p in self._app._runner for stream in p.plan.streams]
        relations += [stream for w in self._app._runner.starter for stream in w.plan.streams]
        relations += self._app._living.reads()
        used = self._addresses(relations)
        for address in self._kept.keys() - used:
            self._app._journal.drop_entry(COLUMNS, address)
            del self._kept[address], self._first[address]
            self._app._rooms.forget(address)

    def forget_found(self, besides: frozenset[str]) -> None:
        """Lets go of columns that were discovered for statements that failed."""
        for address in self._app._rooms.found.keys() - self._kept.keys() - besides:
            self._app._rooms.forget(address)

    def _addresses(self, relations: Iterable[Relation]) -> set[str]:
        return {self._app._source(r).address for r in relations if r.uri is not None}
