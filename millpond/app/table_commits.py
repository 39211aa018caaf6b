"""Commits the changes of a table handle to the store of its app."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Self

from millpond.changes import Changes
from millpond.query.stats import Health
from millpond.query.transaction_table import Begun
from millpond.sql.materialized_view import follows_its_query
from millpond.store.row_edits import RowEdits
from millpond.store.store import Store
from millpond.tables.base import Patch, Snapshot


class AppHome:
    """Commits the changes of one table of an app."""

    def __init__(
        self,
        store: Store,
        edits: RowEdits,
        table: str,
        health: Callable[[str], tuple[str, Health]],
        followed: Callable[[str], dict[str, Any]],
        begin: Callable[[], Begun],
    ):
        self._store = store
        self._edits = edits
        self._edit = edits.commit
        self._table = table
        self._health = health
        self._followed = followed
        self.begin = begin

    def commit(self, changes: Changes) -> object:
        return self._store.commit({self._table: changes})

    def change(self, find: Callable[[Snapshot], tuple[Changes | None, int]]) -> int:
        return self._store.change(self._table, find)

    @property
    def now(self) -> Self:
        made: Self = copy(self)
        made._edit = self._edits.commit_now
        return made

    def put(self, record: Mapping[str, Any], fresh: bool) -> bool | None:
        return None if self._edit(self._table, lambda t: t.edits.put(record, fresh)) is None else True

    def patch(self, key: Any, changes: Patch) -> int | None:
        return self._edit(self._table, lambda t: t.edits.patch(key, changes))

    def drop(self, key: Any) -> int | None:
        return self._edit(self._table, lambda t: t.edits.drop(key))

    def health(self) -> tuple[str, Health]:
        return self._health(self._table)

    def followed(self) -> dict[str, Any]:
        return self._followed(self._table)


class ViewHome(AppHome):
    """Refuses changes of a table that follows a query."""

    def commit(self, changes: Changes) -> object:
        raise follows_its_query(self._table)

    def change(self, find: Callable[[Snapshot], tuple[Changes | None, int]]) -> int:
        raise follows_its_query(self._table)

    def put(self, record: Mapping[str, Any], fresh: bool) -> bool | None:
        raise follows_its_query(self._table)

    def patch(self, key: Any, changes: Patch) -> int | None:
        raise follows_its_query(self._table)

    def drop(self, key: Any) -> int | None:
        raise follows_its_query(self._table)
