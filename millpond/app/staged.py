"""A table inside a transaction: the Table API over rows that nobody else sees yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from millpond.changes import Changes, Position
from millpond.errors import NotSupported
from millpond.query.changing import Found
from millpond.query.reading import Record
from millpond.query.stats import Health
from millpond.tables._single import Patch
from millpond.tables.base import Backend, Snapshot
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.app.transaction import Transaction


class StagedTable(Backend):
    """What a transaction sees of a table. It is also the home of its changes, which go to the transaction."""

    def __init__(self, transaction: Transaction, name: str, real: Backend):
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
        return self._transaction.moment().snapshot(self._name)

    @property
    def version(self) -> int:
        return self._transaction.moment().version(self._name)

    def position(self, pipeline: str) -> Position | None:
        return self._real.position(pipeline)

    def stats(self) -> dict[str, Any]:
        return self._real.stats()

    def close(self) -> None:
        """The transaction ends it."""

    # the home of its changes

    def commit(self, changes: Changes) -> object:
        return self.apply(changes)

    def change(self, find: Callable[[Snapshot], Found]) -> int:
        changes, count = find(self.snapshot())
        if changes is not None:
            self.apply(changes)
        return count

    def put(self, record: Record, fresh: bool) -> bool | None:
        return None

    def patch(self, key: Any, changes: Patch) -> int | None:
        return None

    def drop(self, key: Any) -> int | None:
        return None

    def health(self) -> tuple[str, Health]:
        return "program", Health("healthy", "the table of a transaction")

    def followed(self) -> dict[str, Any]:
        return {}
