"""What tables that live in a database have in common, whatever the database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from millpond.changes import Changes, Position
from millpond.errors import Closed, NotSupported
from millpond.tables._checks import checked
from millpond.tables.base import Backend, Database, Snapshot, Writing
from millpond.types import Schema

D = TypeVar("D", bound=Database)

_OPEN: dict[str, tuple[Any, int]] = {}
_OPENING = threading.Lock()


def shared(key: str, make: Callable[[], D]) -> D:
    """The database of that key, made if no table of this process uses it now; each user leaves it when done."""
    with _OPENING:
        found, users = _OPEN.get(key) or (make(), 0)
        _OPEN[key] = found, users + 1
        database: D = found
        return database


def leave(database: Database) -> None:
    """Closes the database if nobody else in this process uses it."""
    with _OPENING:
        for key, (found, users) in list(_OPEN.items()):
            if found is database:
                if users > 1:
                    _OPEN[key] = found, users - 1
                else:
                    del _OPEN[key]
                    database.close()


class OutsideTable(Backend):
    """A table whose rows and positions are in a database."""

    database: Database

    def __init__(self, name: str, schema: Schema, database: Database, *, null_keys: bool = False):
        self.schema = schema
        self.database = database
        self.what = f'table "{name}"'
        self.null_keys = null_keys
        self.changed_at: float | None = None
        self._closed = False

    def apply(self, changes: Changes, position: Position | None = None, *, commit: int | None = None) -> bool:
        self.check_open()
        fitting = self.check(changes)

        def work(writing: Writing) -> bool:
            if position is not None and not writing.advance(position):
                return False
            writing.apply(self, fitting)
            return True

        return self.database.write(work)

    def check(self, changes: Changes) -> Changes:
        return checked(self.schema, changes, what=self.what, null_keys=self.null_keys)

    def snapshot(self, commit: int | None = None) -> Snapshot:
        self.check_open()
        if commit is not None:
            raise NotSupported(f"{self.what} does not keep earlier commits")
        return self.database.read().snapshot(self)

    @property
    def version(self) -> int:
        return self.snapshot().version

    def position(self, pipeline: str) -> Position | None:
        self.check_open()
        return self.database.position(pipeline)

    def changed(self) -> None:
        """Called when changes have been applied."""
        self.changed_at = time.time()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            leave(self.database)

    def check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self.what} is closed")
