"""Gives programs the tables of an app."""

from __future__ import annotations

from collections.abc import Callable

from millpond.app.health import TableHealth
from millpond.app.table_commits import AppHome, ViewHome
from millpond.query.evaluate import Evaluator
from millpond.query.table import Table
from millpond.query.transaction import Transaction
from millpond.sql.catalog import Catalog
from millpond.store.row_edits import RowEdits
from millpond.store.store import Store


class TableHandles:
    """Gives each table as one object, for as long as it is that table."""

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

    def get(self, name: str) -> Table:
        """The table of that name."""
        backend = self._store.table(name)
        relation = self._catalog.find(name)
        if backend is None or relation is None:
            raise self._catalog.unknown(name, "table")
        known = self._known.get(relation.name)
        if known is None or not known.stands_for(relation, backend):
            kind = ViewHome if relation.live else AppHome
            health = self._health
            home = kind(self._store, self._edits, relation.name, health.of, health.followed, self._begin)
            known = Table.of(relation, backend, self._evaluator, home)
            self._known[relation.name] = known
        return known
