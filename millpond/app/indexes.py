"""CREATE INDEX and DROP INDEX: an index is an entry of the catalog, and of the backend of its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond import faults
from millpond.errors import NotSupported
from millpond.sql import statements as st
from millpond.sql.catalog import Index
from millpond.sql.checked import Checked
from millpond.sql.identity import identity
from millpond.store.catalog import Saved
from millpond.store.undo import Unit, safely

if TYPE_CHECKING:
    from millpond.app.app import App

KIND = "index"


def create_index(app: App, checked: Checked, unit: Unit) -> None:
    index, statement = checked.index, checked.statement
    assert index is not None
    unit.on_failure(lambda: drop_index(app, index))
    _open(app, index)
    faults.reach("index made")
    entry = Saved(index.name, KIND, statement.text, identity(statement), None, {}, claimed=True)
    app._saved[entry.id] = entry
    if not app._read_only:
        app._journal.put_entry(entry.entry())
    faults.reach("index declared")


def restore_index(app: App, statement: st.Statement) -> None:
    """Makes an index that a state directory holds."""
    assert isinstance(statement, st.CreateIndex)
    table = app._catalog.find(statement.table)
    assert table is not None
    columns = tuple(c.name for name in statement.columns if (c := table.schema.find(name)) is not None)
    _open(app, Index(statement.name, table.name, columns))


def drop_index(app: App, index: Index) -> None:
    if f"{KIND}:{index.name.lower()}" in app._saved:
        app._journal.drop_entry(KIND, index.name)
    safely(lambda: faults.reach("index dropped"))
    let_go_index(app, index)


def let_go_index(app: App, index: Index) -> None:
    """Takes an index away that the journal does not have any more."""
    app._catalog.remove_index(index.name)
    backend = app._store.table(index.table)
    same = any(set(i.columns) == set(index.columns) for i in app._catalog.indexes(index.table))
    if backend is not None and not same:
        backend.drop_index(index.columns)
    app._saved.pop(f"{KIND}:{index.name.lower()}", None)
    app._unclaimed.pop(f"{KIND}:{index.name.lower()}", None)


def renew_indexes(app: App, table: str) -> None:
    """Makes the indexes of a table again whose backend is new."""
    backend = app._store.table(table)
    for index in app._catalog.indexes(table):
        if backend is not None:
            backend.create_index(index.columns)


def _open(app: App, index: Index) -> None:
    if not app._store.backend(index.table).create_index(index.columns):
        raise NotSupported(
            f'table "{index.table}" makes no indexes of its own',
            hint="make the index in the database that keeps its rows",
        )
    app._catalog.add_index(index)
