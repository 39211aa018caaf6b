"""Reports what an upgrade has to know of what is stored: whether there are rows, how many, and where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.errors import Error
from millpond.options import Option, find_option, read_options
from millpond.plan.connectors import Connectors
from millpond.sql import statements as st
from millpond.sql.checked import Checked, CheckedRunnable, CheckedStream, CheckedTable
from millpond.sql.errortables import error_table
from millpond.sql.options import STREAM_OPTIONS, named
from millpond.sql.parse import parse
from millpond.store.catalog import Saved, SavedRelation
from millpond.store.store import Store
from millpond.tables.flushed_table import FlushedTable


@dataclass(frozen=True, eq=False, repr=False)
class Facts:
    """Reports facts about the state directory ``home``, whose tables are open."""

    store: Store
    connectors: Connectors
    home: Path

    def rows(self, entry: Saved) -> int | None:
        """Returns how many rows a table or stream has; None for anything else, or if that is not known."""
        if not isinstance(entry, SavedRelation):
            return None
        return self._rows(entry.name, entry.kind)

    def rows_of(self, name: str) -> int | None:
        """Returns how many rows the table or stream of a name has; None if there is none, or that is not known."""
        rows = self._rows(name, "table")
        return self._rows(name, "stream") if rows is None else rows

    def _rows(self, name: str, kind: str) -> int | None:
        if kind == "stream":
            journal = self.store.journal
            return journal.stream_end(name) - journal.stream_first(name)
        table = self.store.table(name) if kind == "table" else None
        try:
            return len(table) if table is not None else None
        except Error:
            return None

    def has_rows(self, entry: SavedRelation) -> bool:
        """Returns whether there are rows, or, of a stream, whether there ever were."""
        if entry.kind == "stream":
            return bool(self.store.journal.stream_end(entry.name))
        return self._rows(entry.name, entry.kind) != 0

    def is_outside(self, entry: SavedRelation) -> bool:
        """Returns whether a database has the rows of a table."""
        table = self.store.table(entry.name) if entry.kind == "table" else None
        return table is not None and (table.database is not None or isinstance(table, FlushedTable))

    def input_rows(self, checked: Checked) -> int | None:
        """Returns how many rows a statement reads that begins again; None if that is not known."""
        if begins_late(checked):
            return 0
        total = 0
        for i in checked.inputs:
            relation = i.relation
            known = relation.uri is None and relation.kind in ("stream", "table")
            rows = self._rows(relation.rows_of or relation.name, relation.kind) if known else None
            if rows is None:
                return None
            total += rows
        return total

    def trimmed(self, checked: Checked) -> str | None:
        """Returns what a statement that begins again does not find any more; None if all rows are there."""
        if begins_late(checked):
            return "it reads only rows that come from now on"
        for i in checked.inputs:
            name = i.relation.rows_of or i.relation.name
            first = self.store.journal.stream_first(name) if i.relation.kind == "stream" else 0
            if first:
                return f'"{name}" has rows only from position {first:,} on'
        return None

    def has_failed(self, entry: SavedRelation, errors_into: str | None) -> bool:
        """Returns whether rows of the query that fills a table have failed, or may have: they are not in its state."""
        errors = error_table(f"{entry.kind}:{entry.name}")
        return errors_into is not None or self.store.journal.has_table(errors.lower())

    def source_options(self, uri: str) -> tuple[Option, ...]:
        return tuple(self.connectors.source_options(uri))

    def stream_options(self, entries: Iterable[Saved]) -> dict[str, dict[str, Any]]:
        """Returns the values of the options of the streams that read a connector, by their names in lower case."""
        found = {}
        for entry in entries:
            if not isinstance(entry, SavedRelation) or not entry.connected:
                continue
            statement = parse(entry.text).require()[0]
            uri = named(statement.settings, "connector") if isinstance(statement, st.CreateStream) else None
            if uri is not None and isinstance(statement, st.CreateStream):
                rest = [x for x in statement.settings if not find_option(STREAM_OPTIONS, x.name)]
                declared = self.connectors.source_options(uri.value)
                found[entry.name.lower()] = read_options(f'stream "{entry.name}"', declared, rest)
        return found


def is_empty(checked: Checked) -> bool:
    """Returns whether what is rebuilt has no rows: only then is a table or stream that programs fill."""
    plain = isinstance(checked, CheckedTable | CheckedStream)
    return plain and (checked.declares is None or checked.declares.uri is None)


def begins_late(checked: Checked) -> bool:
    """Returns whether a statement that begins again reads no row that is there already."""
    return isinstance(checked, CheckedRunnable) and checked.query_options.get("start") == "latest"
