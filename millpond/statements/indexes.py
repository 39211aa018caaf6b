"""Creates and drops indexes: each is an entry in the catalog and in the backend of its table."""

from __future__ import annotations

import logging
from functools import partial

from millpond import faults
from millpond.errors import NotSupported
from millpond.sql import statements as st
from millpond.sql.catalog import Catalog, Index, Relation
from millpond.sql.checked_commands import CheckedIndex
from millpond.sql.identity import identity
from millpond.sql.parse import parse
from millpond.statements.saved_statements import SavedStatements
from millpond.store.catalog import SavedIndex
from millpond.store.store import Store
from millpond.store.undo import Undo, safely

KIND = "index"
log = logging.getLogger("millpond")


class Indexes:
    """Creates and drops indexes."""

    def __init__(self, catalog: Catalog, store: Store, saved: SavedStatements, *, read_only: bool):
        self._catalog = catalog
        self._store = store
        self._saved = saved
        self._read_only = read_only

    def create(self, checked: CheckedIndex, undo: Undo) -> None:
        index, statement = checked.index, checked.statement
        undo.on_failure(partial(self.drop, index))
        self._open(index)
        faults.reach("index made")
        entry = SavedIndex(index.name, statement.text, identity(statement))
        self._saved.add(entry)
        if not self._read_only:
            self._store.journal.put_entry(entry.entry())
        faults.reach("index declared")

    def restore(self, statement: st.Statement) -> None:
        """Creates an index that is in a state directory."""
        assert isinstance(statement, st.CreateIndex)
        table = self._catalog.find(statement.table)
        if table is None:
            log.warning('index "%s" is left out: there is no table "%s"', statement.name, statement.table)
            return
        columns = tuple(c.name for name in statement.columns if (c := table.schema.find(name)) is not None)
        self._open(Index(statement.name, table.name, columns))

    def table_of(self, entry: SavedIndex) -> Relation | None:
        """Returns the table of a saved index, if it is there with the columns of the index."""
        statement = parse(entry.text).require()[0]
        assert isinstance(statement, st.CreateIndex)
        table = self._catalog.find(statement.table)
        there = table is not None and all(table.schema.find(name) is not None for name in statement.columns)
        return table if there else None

    def drop(self, index: Index) -> None:
        if self._saved.get(f"{KIND}:{index.name}") is not None:
            self._store.journal.drop_entry(KIND, index.name)
        safely(lambda: faults.reach("index dropped"))
        self.let_go(index)

    def let_go(self, index: Index) -> None:
        """Removes an index that the journal no longer contains."""
        self._catalog.remove_index(index.name)
        backend = self._store.table(index.table)
        same = any(set(i.columns) == set(index.columns) for i in self._catalog.indexes(index.table))
        if backend is not None and not same:
            backend.drop_index(index.columns)
        self._saved.forget(f"{KIND}:{index.name}")

    def _open(self, index: Index) -> None:
        if not self._store.backend(index.table).create_index(index.columns):
            raise NotSupported(
                f'table "{index.table}" makes no indexes of its own',
                hint="make the index in the database that keeps its rows",
            )
        self._catalog.add_index(index)
