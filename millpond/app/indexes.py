"""CREATE INDEX and DROP INDEX: an index is an entry of the catalog, and of the backend of its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.app.catalog import Saved
from millpond.app.identity import identity
from millpond.errors import NotSupported
from millpond.sql import statements as st
from millpond.sql.catalog import Index
from millpond.sql.checked import Checked

if TYPE_CHECKING:
    from millpond.app.app import App

KIND = "index"


def create_index(app: App, checked: Checked) -> None:
    index, statement = checked.index, checked.statement
    assert index is not None
    _open(app, index)
    entry = Saved(index.name, KIND, statement.text, identity(statement), None, {}, claimed=True)
    if not app._read_only:
        app._journal.put_entry(entry.entry())
    app._saved[entry.id] = entry


def restore_index(app: App, statement: st.Statement) -> None:
    """Makes an index that a state directory holds."""
    assert isinstance(statement, st.CreateIndex)
    table = app._catalog.find(statement.table)
    assert table is not None
    columns = tuple(c.name for name in statement.columns if (c := table.schema.find(name)) is not None)
    _open(app, Index(statement.name, table.name, columns))


def drop_index(app: App, index: Index) -> None:
    app._catalog.remove_index(index.name)
    backend = app._store.table(index.table)
    same = any(set(i.columns) == set(index.columns) for i in app._catalog.indexes(index.table))
    if backend is not None and not same:
        backend.drop_index(index.columns)
    entry = app._saved.pop(f"{KIND}:{index.name.lower()}", None)
    if entry is not None:
        app._unclaimed.pop(entry.id, None)
        app._journal.drop_entry(KIND, index.name)


def renew_indexes(app: App, table: str) -> None:
    """Makes the indexes of a table again whose backend is new."""
    backend = app._store.table(table)
    for index in app._catalog.indexes(table):
        if backend is not None:
            backend.create_index(index.columns)


def _open(app: App, index: Index) -> None:
    if not app._backend(index.table).create_index(index.columns):
        raise NotSupported(
            f'table "{index.table}" makes no indexes of its own',
            hint="make the index in the database that keeps its rows",
        )
    app._catalog.add_index(index)
