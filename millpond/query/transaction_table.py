"""Provides a table inside a transaction: the Table API over uncommitted rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

from millpond.changes import Changes, Position
from millpond.errors import Closed, NotSupported
from millpond.query.overlay import Overlay
from millpond.query.stats import Health
from millpond.query.table_changes import Found
from millpond.query.table_reader import Record
from millpond.tables.base import Backend, Patch, Snapshot
from millpond.tables.memory import MemoryTable
from millpond.types import Schema


class Begun(Protocol):
    """Represents an open transaction, of one table or of several."""

    @property
    def open(self) -> bool:
        """Returns whether it has not ended."""

    def snapshot(self, table: str) -> Snapshot:
        """Returns a table as the transaction sees it."""

    def stage(self, changes: Mapping[str, Changes]) -> None:
        """Adds changes that only the transaction sees."""

    def commit(self) -> None:
        """Commits the changes. Raises Conflict when another commit came first; then nothing has changed."""

    def rollback(self) -> None:
        """Discards the changes. It may be called twice."""


class StagedTable(Backend):
    """Shows a table as a transaction sees it. It also receives its changes, which go to the transaction."""

    def __init__(self, transaction: Begun, name: str, real: Backend):
        self._transaction = transaction
        self._name = name
        self._real = real
        self.schema = real.schema

    @classmethod
    def open(
        cls,
        name: str,
        schema: Schema,
        values: Mapping[str, Any],
        *,
        null_keys: bool = False,
        home: Path | None = None,
    ) -> Self:
        raise NotSupported("a table of a transaction is made by the transaction")

    def apply(self, changes: Changes, position: Position | None = None, *, commit: int | None = None) -> bool:
        self._transaction.stage({self._name: changes})
        return True

    def check(self, changes: Changes) -> Changes:
        return self._real.check(changes)

    def snapshot(self, commit: int | None = None) -> Snapshot:
        return self._transaction.snapshot(self._name)

    @property
    def version(self) -> int:
        return self.snapshot().version

    def position(self, pipeline: str) -> Position | None:
        return self._real.position(pipeline)

    def stats(self) -> dict[str, Any]:
        return self._real.stats()

    def close(self) -> None:
        """Does nothing: the transaction ends it."""

    # the writer of its changes

    def commit(self, changes: Changes) -> object:
        return self.apply(changes)

    def change(self, find: Callable[[Snapshot], Found]) -> int:
        changes, count = find(self.snapshot())
        if changes is not None:
            self.apply(changes)
        return count

    @property
    def now(self) -> StagedTable:
        return self

    def put(self, record: Record, fresh: bool) -> bool | None:
        return None

    def patch(self, key: Any, changes: Patch) -> int | None:
        return None

    def drop(self, key: Any) -> int | None:
        return None

    def begin(self) -> Begun:
        raise NotSupported("a transaction has begun already", hint="commit it, or roll it back, first")

    def health(self) -> tuple[str, Health]:
        return "program", Health("healthy", "the table of a transaction")

    def followed(self) -> dict[str, Any]:
        return {}


class LoneTransaction:
    """Represents a transaction of a table that has no app."""

    def __init__(self, name: str, backend: MemoryTable):
        self._name = name
        self._backend = backend
        self._overlay = Overlay(backend.snapshot())
        self.open = True

    def snapshot(self, table: str) -> Snapshot:
        self._check_open()
        return self._overlay

    def stage(self, changes: Mapping[str, Changes]) -> None:
        self._check_open()
        for change in changes.values():
            self._overlay.stage(self._backend.check(change))

    def commit(self) -> None:
        self._check_open()
        self.open = False
        if self._overlay.changed:
            self._backend.change(self._found)

    def _found(self, now: Snapshot) -> Found:
        if now.version != self._overlay.base.version:
            self._overlay.check_untouched(now, self._name)
        changes = self._overlay.changes()
        return (changes if len(changes) else None), len(changes)

    def rollback(self) -> None:
        self.open = False

    def _check_open(self) -> None:
        if not self.open:
            raise Closed("the transaction has ended", hint="begin another one")
