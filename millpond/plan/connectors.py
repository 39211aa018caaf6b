"""Describes sources, sinks and table backends to the checker, and opens sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from millpond.changelog import Style
from millpond.connectors import abilities
from millpond.connectors.divided_table import DividedTable
from millpond.connectors.sink import find_sink
from millpond.connectors.source import Source, find_source
from millpond.options import Option
from millpond.sql.catalog import Relation
from millpond.sql.options import options_of_tables
from millpond.tables.flushed_table import FlushedTable
from millpond.tables.registry import find_backend
from millpond.tables.versioned_table import VersionedTable
from millpond.types import Schema

StandIn = Callable[[str, Mapping[str, Any], Schema | None], Source | None]


def options_of_table(values: Mapping[str, Any]) -> tuple[Option, ...]:
    """Returns the options that a table with these values may have."""
    return options_of_tables(find_backend(str(values.get("extension") or "memory")).options)


class Connectors:
    """Finds the sources, sinks and table backends of this installation for the checker.

    Sources that were opened to find their columns are cached, so that running a statement does not open them again.
    """

    def __init__(self) -> None:
        self._opened: dict[tuple[str, str], Source] = {}
        self.stand_in: StandIn | None = None
        """Returns a source instead of one that a test has no server for."""
        self._patient = True
        self.found: dict[str, Schema] = {}
        """The columns of endless sources, by address, as they were when a statement first read them."""

    def source_options(self, uri: str) -> Sequence[Option]:
        return find_source(uri).options

    def backend_options(self, extension: str) -> Sequence[Option]:
        return find_backend(extension).options

    def sink_options(self, uri: str) -> Sequence[Option]:
        return find_sink(uri).options

    def sink_is_exact(self, uri: str, values: Mapping[str, Any]) -> bool:
        return find_sink(uri).is_exact(values)

    def sink_takes_changes(self, uri: str) -> Style:
        return find_sink(uri).takes_changes

    def check_sink(
        self,
        uri: str,
        values: Mapping[str, Any],
        schema: Schema,
        *,
        running: bool,
        groups: bool,
        changes: bool = False,
    ) -> None:
        sink = find_sink(uri)
        sink.check_statement(uri, values, schema, running=running)
        if groups:
            sink.check_groups(uri, values, schema)
        if changes:
            sink.check_changes(uri, values, schema)

    @property
    def stands_in(self) -> bool:
        """Returns whether a test receives what would be written to sinks."""
        return self.stand_in is not None

    def stored_in(self, values: Mapping[str, Any]) -> str | None:
        return find_backend(str(values.get("extension") or "memory")).stored_in(values)

    def times_rows(self, values: Mapping[str, Any]) -> bool:
        return "times" in find_backend(str(values.get("extension") or "memory")).abilities

    def evicts(self, values: Mapping[str, Any]) -> bool:
        return find_backend(str(values.get("extension") or "memory")).evicts

    def keeps_versions(self, values: Mapping[str, Any]) -> bool:
        return issubclass(find_backend(str(values.get("extension") or "memory")), VersionedTable)

    def flushed_by(self, values: Mapping[str, Any]) -> str | None:
        backend = find_backend(str(values.get("extension") or "memory"))
        return backend.flushed_by if issubclass(backend, FlushedTable) else None

    def divides(self, values: Mapping[str, Any], schema: Schema) -> bool:
        backend = find_backend(str(values.get("extension") or "memory"))
        return issubclass(backend, DividedTable) and backend.divides(values, schema)

    def open(self, uri: str, values: Mapping[str, Any], declared: Schema | None) -> Source:
        key = (uri, repr((sorted(values.items()), declared)))
        if key not in self._opened:
            instead = self.stand_in(uri, values, declared) if self.stand_in is not None else None
            source = self._opened[key] = instead or find_source(uri)(uri, values, declared)
            source.found = self.found.get(source.address)
            source.patient = self._patient
        return self._opened[key]

    @contextmanager
    def hasty(self) -> Iterator[None]:
        """Makes sources that are opened inside not wait for what is missing: that is retried later."""
        self._patient = False
        try:
            yield
        finally:
            self._patient = True
            for source in self._opened.values():
                source.patient = True

    def opened(self) -> frozenset[tuple[str, str]]:
        """Returns the keys of the open sources."""
        return frozenset(self._opened)

    def close(self, keep: frozenset[tuple[str, str]] = frozenset()) -> None:
        """Closes the open sources, and forgets them; not those of ``keep``."""
        for key in list(self._opened):
            if key not in keep:
                self._opened.pop(key).close()

    def find(self, address: str, columns: Schema) -> None:
        """Records columns of a source, in addition to those found before."""
        known = tuple(self.found.get(address, ()))
        names = {c.name for c in known}
        fresh = tuple(c for c in columns if not c.hidden and c.name not in names)
        self.found[address] = Schema((*known, *fresh))

    def forget(self, address: str) -> None:
        """Makes the next reader of the source discover its columns again."""
        self.found.pop(address, None)
        self._opened = {key: s for key, s in self._opened.items() if s.address != address}

    @contextmanager
    def apart(self) -> Iterator[Connectors]:
        """Provides the same connectors for one query: the sources that it opens are its own, and closed at its end."""
        made = Connectors()
        made.stand_in = self.stand_in
        made.found = dict(self.found)
        try:
            yield made
        finally:
            made.close()

    def narrowed(self, widths: Mapping[str, int]) -> Connectors:
        """Returns the same connectors, whose sources have only the first of the discovered columns, as many as
        ``widths`` has for their URIs.
        """
        return _Narrowed(self, widths)

    def describe(
        self, uri: str, values: Mapping[str, Any], declared: Schema | None, *, table: bool = False
    ) -> Relation:
        source = self.open(uri, values, declared)
        schema = source.schema()
        if source.endless and source.guesses:
            self.find(source.address, schema)
        return Relation(
            uri,
            "source",
            schema,
            running=source.endless if table else abilities.runs(source),
            uri=uri,
            follows=abilities.follows(source),
            guessed=source.guesses,
            declared=declared,
            rejects=abilities.rejects(source),
            captured=abilities.captures(source),
            spreads=isinstance(source, abilities.Spreads),
        )

    def changes(self, uri: str, values: Mapping[str, Any], declared: Schema | None) -> Schema | None:
        return abilities.enveloped(self.open(uri, values, declared))

    def keyed(self, uri: str, values: Mapping[str, Any], declared: Schema | None) -> str | None:
        return abilities.keyed(self.open(uri, values, declared), wait=True)


class _Narrowed(Connectors):
    def __init__(self, connectors: Connectors, widths: Mapping[str, int]):
        self.__dict__.update(connectors.__dict__)
        self._widths = widths

    def describe(
        self, uri: str, values: Mapping[str, Any], declared: Schema | None, *, table: bool = False
    ) -> Relation:
        return narrow(super().describe(uri, values, declared, table=table), self._widths)


def narrow(relation: Relation, widths: Mapping[str, int]) -> Relation:
    """Returns the relation with the first of its columns, as many as ``widths`` says, and the hidden ones."""
    width = widths.get(relation.name.lower())
    if width is None or not relation.guessed:
        return relation
    visible = [c for c in relation.schema if not c.hidden][:width]
    hidden = [c for c in relation.schema if c.hidden]
    return replace(relation, schema=Schema((*visible, *hidden), relation.schema.key))
