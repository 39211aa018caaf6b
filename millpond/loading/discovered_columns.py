"""Stores discovered columns of sources in the journal, so that a restart sees the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from millpond.connectors import abilities
from millpond.journal.catalog import Entry
from millpond.journal.journal import Journal
from millpond.loading.open_sources import OpenSource
from millpond.plan.connectors import Connectors
from millpond.sql.catalog import Relation
from millpond.sql.resolve import Resolved
from millpond.store.catalog import dump_schema, load_schema
from millpond.types import NUMBER, Schema

COLUMNS = "columns"
"""The kind of journal entries that contain them; the name is the address of the source."""


def take_doubles(open_source: OpenSource, connectors: Connectors, query: Resolved) -> bool:
    """Uses DOUBLE for numbers that were discovered in the sources of a query, as in earlier versions, unless the
    columns of a source are stored. Returns whether there are any.
    """
    found = False
    for relation in (i.relation for i in query.inputs):
        if relation.uri is None or not relation.guessed:
            continue
        source = open_source(relation)
        schema = as_doubles(source.schema())
        if source.found is None and schema != source.schema():
            connectors.forget(source.address)
            connectors.found[source.address] = schema
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
    """Stores discovered columns in the journal. ``in_use`` returns which streams and URIs are read, None while that is
    not known.
    """

    def __init__(
        self,
        journal: Journal,
        connectors: Connectors,
        open_source: OpenSource,
        in_use: Callable[[], Iterable[Relation] | None],
        *,
        read_only: bool,
    ):
        self._journal = journal
        self._connectors = connectors
        self._open_source = open_source
        self._in_use = in_use
        self._read_only = read_only
        self._kept: dict[str, Schema] = {}
        self._first: dict[str, int] = {}
        """How many there were when a source was first read."""

    def restore(self, entry: Entry) -> None:
        self.note(entry)
        self._connectors.found[entry.name] = self._kept[entry.name]

    def keep(self, relations: Sequence[Relation]) -> None:
        """Stores the columns of the sources behind streams and URIs that a statement reads from now on."""
        for entry in self.gather(relations):
            self.note(entry)
            self._journal.put_entry(entry)

    def gather(self, relations: Sequence[Relation]) -> list[Entry]:
        """Returns the journal entries for ``keep``."""
        if self._read_only:
            return []
        for relation in relations:
            self._discover(relation)
        found = []
        for address in sorted(self._addresses(relations)):
            columns = self._connectors.found.get(address)
            if columns is not None and self._kept.get(address) != columns:
                first = self._first.get(address, len(columns))
                found.append(Entry(address, COLUMNS, "", (dump_schema(columns) or {}) | {"first": first}))
        return found

    def note(self, entry: Entry) -> None:
        """Records what the journal contains, or is about to contain."""
        schema = load_schema(entry.data)
        assert schema is not None
        self._kept[entry.name] = schema
        self._first[entry.name] = entry.data.get("first", len(schema))

    def _discover(self, relation: Relation) -> None:
        """Records the columns of files when a statement continues to read them."""
        source = self._open_source(relation) if relation.uri is not None else None
        if source is not None and abilities.drifts(source):
            self._connectors.find(source.address, source.schema())

    def added(self, relation: Relation) -> list[str]:
        """Returns the columns of a stream that were added later."""
        address = self._open_source(relation).address
        return list(self._kept[address].names[self._first[address] :]) if address in self._kept else []

    def forget_unused(self) -> None:
        """Removes what no statement reads any more: the next reader discovers again."""
        relations = self._in_use()
        if relations is None:
            return
        used = self._addresses(relations)
        for address in self._kept.keys() - used:
            self._journal.drop_entry(COLUMNS, address)
            del self._kept[address], self._first[address]
            self._connectors.forget(address)

    def forget_found(self, keep: frozenset[str]) -> None:
        """Removes columns that were discovered for statements that failed."""
        for address in self._connectors.found.keys() - self._kept.keys() - keep:
            self._connectors.forget(address)

    def _addresses(self, relations: Iterable[Relation]) -> set[str]:
        return {self._open_source(r).address for r in relations if r.uri is not None}
