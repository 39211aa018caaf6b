"""Provides the tables of an app to programs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from millpond.app.health import TableHealth
from millpond.app.table_commits import AppHome, ViewHome
from millpond.query.evaluate import Evaluator
from millpond.query.table import Table
from millpond.query.transaction import Transaction
from millpond.sql.catalog import Catalog, Relation
from millpond.store.row_edits import RowEdits
from millpond.store.store import Store
from millpond.tables.base import Backend


class TableHandles:
    """Returns each table as one object, for as long as the table exists, also when it gets new columns."""

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        edits: RowEdits,
        evaluator: Evaluator,
        health: TableHealth,
        begin: Callable[[], Transaction],
    ):
        self._catalog = catalog
        self._store = store
        self._edits = edits
        self._evaluator = evaluator
        self._health = health
        self._begin = begin
        self._known: dict[str, Table] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> Table:
        """Returns the table of that name."""
        relation, backend = self._found(name)
        known = self._known.get(relation.name)
        if known is not None and known.stands_for(relation, backend):
            return known
        with self._lock:
            relation, backend = self._found(name)
            known = self._known.get(relation.name)
            if known is None or known.backend is not backend:
                known = self._known[relation.name] = self._made(relation, backend)
            elif not known.stands_for(relation, backend):
                known.reshape(relation, backend, self._home(relation))
            return known

    def follow(self, before: str, after: str) -> None:
        """Gives the object that programs use the columns, rows and name that the table has now."""
        with self._lock:
            known = self._known.pop(before, None)
            if known is not None:
                relation, backend = self._found(after)
                known.reshape(relation, backend, self._home(relation))
                self._known[after] = known

    def _found(self, name: str) -> tuple[Relation, Backend]:
        backend = self._store.table(name)
        relation = self._catalog.find(name)
        if backend is None or relation is None:
            raise self._catalog.unknown(name, "table")
        return relation, backend

    def _made(self, relation: Relation, backend: Backend) -> Table:
        return Table.of(relation, backend, self._evaluator, self._home(relation))

    def _home(self, relation: Relation) -> AppHome:
        kind = ViewHome if relation.live else AppHome
        health = self._health
        return kind(self._store, self._edits, relation.name, health.of, health.followed, self._begin)
