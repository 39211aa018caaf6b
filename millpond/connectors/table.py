"""Implements what all tables in databases have in common."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from millpond.changes import ROW, Changes, Position
from millpond.clock import Clock
from millpond.connectors.row_times import TIME, with_time
from millpond.errors import Closed, InvalidOption, NotSupported, UnknownName, did_you_mean
from millpond.records.checks import checked
from millpond.records.keys import key_list
from millpond.tables.base import Backend, Database, Snapshot, Writing
from millpond.types import Column, Schema

D = TypeVar("D", bound=Database)

_OPEN: dict[str, tuple[Any, int]] = {}
_OPENING = threading.Lock()


def shared(key: str, make: Callable[[], D]) -> D:
    """Returns the database of that key, created if no table of this process uses it now; each user leaves
    it when done.
    """
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


def url_of(name: str, values: Mapping[str, Any], schemes: Sequence[str], product: str, example: str) -> str:
    """Returns the option ``url`` of a table, which has one of the schemes. Raises InvalidOption."""
    url = str(values.get("url") or "")
    if not url.startswith(tuple(f"{scheme}://" for scheme in schemes)):
        raise InvalidOption(
            f'table "{name}" needs the URL of a {product} database', hint=f"WITH ('url' = '{example}')"
        )
    return url


class OutsideTable(Backend):
    """Represents a table whose rows and positions are in a database."""

    database: Database
    times: bool = False
    """Whether it stores when each row was last changed."""
    now: Callable[[], float] = staticmethod(time.time)

    def __init__(self, name: str, schema: Schema, database: Database, *, null_keys: bool = False):
        self.schema = schema
        self.database = database
        self.what = f'table "{name}"'
        self.null_keys = null_keys
        self.changed_at: float | None = None
        self._closed = False

    @contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Closes the table if what is done inside, its set-up, fails."""
        try:
            yield
        except BaseException:
            self.close()
            raise

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

    def go_by(self, clock: Clock) -> None:
        self.now = clock.seconds

    def rename(self, name: str) -> None:
        self.what = f'table "{name}"'

    @property
    def version(self) -> int:
        return self.snapshot().version

    def position(self, pipeline: str) -> Position | None:
        self.check_open()
        return self.database.position(pipeline)

    def changed(self) -> None:
        """Records that changes have been applied."""
        self.changed_at = time.time()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            leave(self.database)

    def check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self.what} is closed")

    # rows

    @property
    def identity(self) -> tuple[str, ...]:
        """Returns what identifies rows: the key, or the row number."""
        return self.schema.key or (ROW,)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Returns the columns as they are stored."""
        number = () if self.schema.key else (Column(ROW, pa.int64()),)
        time = (Column(TIME, pa.int64()),) if self.times else ()
        return (*self.schema.columns, *number, *time)

    def column(self, name: str) -> Column:
        column = next((c for c in self.columns if c.name.lower() == name.lower()), None)
        if column is None:
            raise UnknownName(
                f'column "{name}" is not in {self.what}', hint=did_you_mean(name, self.schema.names)
            )
        return column

    @abstractmethod
    def put(self, session: Any, rows: pa.Table) -> None:
        """Upserts rows, each of another identity."""

    @abstractmethod
    def end(self, session: Any, keys: pa.Table) -> None:
        """Deletes the rows of these identities."""

    @abstractmethod
    def take_numbers(self, session: Any, count: int, highest: int) -> int:
        """Returns the first of ``count`` new row numbers, higher than any used or named before; ``highest`` is named
        now.
        """

    # changes

    def change(self, session: Any, changes: Changes) -> None:
        rows = changes.rows if self.schema.key else self._numbered(session, changes.rows)
        deleted = None if changes.deleted is None else np.asarray(changes.deleted)
        keys = key_list([rows.column(name) for name in self._spelled(self.identity)])
        last = dict(zip(keys, range(len(keys)), strict=True))
        if len(last) < len(keys):
            pick = np.sort(np.fromiter(last.values(), np.int64, len(last)))
            rows = rows.take(pa.array(pick))
            deleted = None if deleted is None else deleted[pick]
        if deleted is not None:
            gone = pa.array(deleted)
            self.end(session, rows.filter(gone).select(self._spelled(self.identity)))
            rows = rows.filter(pa.array(~deleted))
        if rows.num_rows:
            self.put(session, with_time(rows, self.now()) if self.times else rows)

    def _spelled(self, names: Sequence[str]) -> list[str]:
        return [self.column(name).name for name in names]

    def _numbered(self, session: Any, rows: pa.Table) -> pa.Table:
        """Returns the rows of a table without a key, each with its number."""
        return numbered(rows, lambda count, highest: self.take_numbers(session, count, highest))


def numbered(rows: pa.Table, take: Callable[[int, int], int]) -> pa.Table:
    """Returns rows, each with its number; ``take`` gets how many new ones there are, and the highest that is given, and
    returns the first new number.
    """
    given = rows.column(ROW).combine_chunks() if ROW in rows.column_names else pa.nulls(len(rows), pa.int64())
    numbers = given.fill_null(-1).to_numpy(zero_copy_only=False).copy()
    fresh = numbers < 0
    count, highest = int(np.count_nonzero(fresh)), int(numbers.max(initial=-1))
    first = take(count, highest)
    numbers[fresh] = np.arange(first, first + count)
    plain = rows.drop_columns([ROW]) if ROW in rows.column_names else rows
    return plain.append_column(ROW, pa.array(numbers, pa.int64()))
