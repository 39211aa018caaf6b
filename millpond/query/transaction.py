"""Runs transactions: changes of several tables that become one commit, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self

from millpond.changes import Changes
from millpond.errors import Closed, Conflict
from millpond.query.overlay import Overlay
from millpond.query.result import Result
from millpond.query.table import Table
from millpond.query.transaction_table import StagedTable
from millpond.sql.bind import Params
from millpond.sql.catalog import Catalog
from millpond.sql.materialized_view import follows_its_query
from millpond.store.external import one_database
from millpond.store.snapshot import StoreSnapshot
from millpond.store.store import Store
from millpond.tables.base import Backend, Snapshot
from millpond.types import Schema

Run = Callable[["Transaction", str, Params], Result]
"""Runs the statements of a text in a transaction."""


class View(StoreSnapshot):
    """Replaces some tables of a snapshot: in a transaction, those that it changed."""

    def __init__(self, base: StoreSnapshot, overlays: Mapping[str, Snapshot]):
        self._base = base
        self._overlays = overlays

    def snapshot(self, table: str) -> Snapshot:
        overlay = self._overlays.get(table.lower())  # a snapshot without rows is false
        return self._base.snapshot(table) if overlay is None else overlay

    def at(self, table: str, version: int | datetime) -> Snapshot:
        return self._base.at(table, version)

    def version(self, table: str) -> int:
        return self.snapshot(table).version


class Transaction:
    """Represents a transaction: reads see the tables as of its beginning, and its own changes. ``commit`` makes all
    changes visible at once; if another commit has changed one of the rows in between it raises Conflict, and nothing is
    changed.

        with app.begin_transaction() as tx:
            tx.sql("UPDATE accounts SET balance = balance - 10 WHERE id = ?", [1])
            tx.sql("UPDATE accounts SET balance = balance + 10 WHERE id = ?", [2])

    As a context manager it commits at the end, and rolls back when the block raises. One thread uses it.
    """

    def __init__(self, store: Store, catalog: Catalog, run: Run, table: Callable[[str], Table]):
        self._store = store
        self._catalog = catalog
        self._run = run
        self._table = table
        self.version, self._base = catalog.version, store.snapshots(steady=True)
        """What names mean in it, and the rows of its beginning: as they are at one time."""
        while catalog.version is not self.version:
            self.version, self._base = catalog.version, store.snapshots(steady=True)
        self._overlays: dict[str, Overlay] = {}
        self.open = True

    def snapshots(self) -> StoreSnapshot:
        return View(self._base, self._overlays)

    def snapshot(self, table: str) -> Snapshot:
        """Returns a table as the transaction sees it."""
        return self.snapshots().snapshot(table)

    def stage(self, changes: Mapping[str, Changes]) -> None:
        """Adds changes that only this transaction sees."""
        self._check_open()
        for name in changes:
            relation = self._catalog.find(name)
            if relation is not None and relation.live:
                raise follows_its_query(relation.name)
        backends = {name: self._backend(name) for name in changes}
        others = (self._backend(name) for name in self._overlays)
        one_database((*backends.values(), *others))
        for name, backend in backends.items():
            self._check_columns(name, backend.schema)
        checked = {name: backends[name].check(change) for name, change in changes.items()}
        for name, change in checked.items():
            key = name.lower()
            if key not in self._overlays:
                self._overlays[key] = Overlay(self._base.snapshot(name))
            self._overlays[key].stage(change)

    def sql(self, text: str, params: Params = None) -> Result:
        """Runs statements inside the transaction."""
        self._check_open()
        return self._run(self, text, params)

    def table(self, name: str) -> Table:
        """Returns a table as the transaction sees it; changes of it are committed with the transaction."""
        self._check_open()
        table = self._table(name)
        staged = StagedTable(self, table.name, self._backend(name))
        relation = Catalog(self.version).find(table.name)
        return table.with_rows_of(staged, staged, table.relation if relation is None else relation)

    def commit(self, done: tuple[str, ...] = ()) -> None:
        """Commits the changes. Raises Conflict when another commit came first; then nothing has changed."""
        self._check_open()
        self.open = False
        overlays = {n: o for n, o in self._overlays.items() if o.changed}
        for name in overlays:
            self._backend(name)  # it may be dropped
        self._store.write(lambda now: (self._changes(overlays, now), None), done=done, into=overlays)

    def _changes(self, overlays: Mapping[str, Overlay], now: StoreSnapshot) -> dict[str, Changes]:
        for name, overlay in overlays.items():
            self._check_columns(name, now.snapshot(name).schema)
            if now.version(name) != self._base.version(name):
                overlay.check_untouched(now.snapshot(name), name)
        return {name: changes for name, o in overlays.items() if len(changes := o.changes())}

    def _check_columns(self, table: str, now: Schema) -> None:
        if now != self._base.snapshot(table).schema:
            raise Conflict(
                f'table "{table}" has new columns since the transaction began',
                hint="run the transaction again",
            )

    def rollback(self) -> None:
        """Discards the changes. It may be called twice."""
        self.open = False
        self._overlays.clear()

    def _backend(self, name: str) -> Backend:
        found = self._store.table(name)
        if found is None:
            raise self._catalog.unknown(name, "table")
        return found

    def _check_open(self) -> None:
        if not self.open:
            raise Closed("the transaction has ended", hint="begin another one")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.open:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()
