"""Reads the changelog of a MySQL or MariaDB table: its part of the binary log of the server.

An offset is a file of that log, a position in it where no transaction is open, when the file was started, and the key
that the table had.
"""

from __future__ import annotations

import logging
import random
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Protocol

import pyarrow as pa
import pymysql

from millpond.changes import Offset
from millpond.connectors.cdc.log import Log, LogPosition
from millpond.connectors.databases.selects import Rows
from millpond.connectors.mysql import capture_check
from millpond.connectors.mysql.events import Dump
from millpond.connectors.mysql.gather import Gather, Layout
from millpond.connectors.mysql.internals import close_now
from millpond.connectors.mysql.layout import Layouts
from millpond.connectors.mysql.login import Login
from millpond.connectors.mysql.snapshot import SharedSnapshot, ask, end_of
from millpond.connectors.mysql.statements import TableName
from millpond.connectors.mysql.table_map import TableMap
from millpond.connectors.mysql.transactions import Groups, Step
from millpond.errors import (
    CaptureLost,
    CaptureRefused,
    ConnectionLost,
    Error,
    InvalidOption,
    TimedOut,
)
from millpond.types import Schema

BEGINNING = 4
"""The position of the first event of a file."""
log = logging.getLogger("millpond")
LOOK = 0.02
"""Seconds between two checks of the end of the log."""
FAR = 64 << 20
"""Bytes of other tables' changes after which an offset moves on, so that the log before it may be purged."""
_PLACE = re.compile(r"(?P<file>[^:]+):(?P<position>\d+)")


@dataclass(frozen=True, slots=True)
class Transaction:
    end: tuple[str, int]
    steps: list[Step]

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.steps)


def _alone(method: Callable[..., Any]) -> Any:
    """Serializes callers: whoever waits for a table checks its log while a follower uses it."""

    @wraps(method)
    def locked(self: BinLog, *given: Any) -> Any:
        with self._using:
            return method(self, *given)

    return locked


class TableDatabase(Protocol):
    """Represents the database of the table whose log is read."""

    login: Login
    values: Mapping[str, Any]

    @property
    def name(self) -> str: ...
    @property
    def home(self) -> str | None: ...
    @property
    def rows(self) -> Rows: ...

    def discovered(self) -> Schema: ...
    def hold(self) -> SharedSnapshot: ...
    def let_go(self, snapshot: SharedSnapshot) -> None: ...


class BinLog(Log):
    def __init__(self, database: TableDatabase, owner: str, schema: Schema):
        self.schema = schema
        self._database = database
        self._owner = owner
        # Replicas are distinguished by a number: ours are random, far from those that people choose.
        self._server_id = 0x80000000 | random.SystemRandom().getrandbits(31)
        self._asking: pymysql.Connection[Any] | None = None
        self._dump: Dump | None = None
        self._snapshot: SharedSnapshot | None = None
        self._named: TableName | None = None
        self._layouts = Layouts(database.discovered, self._ask, lambda: self._name)
        self._lock = threading.Lock()
        self._using = threading.RLock()
        self._closed = False
        self._forget(None)

    # connections

    def _ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            if self._asking is None:
                self._asking = self._database.login.open(autocommit=True)
            return ask(self._asking, query, *values)
        except (OSError, ValueError, AttributeError) as error:  # closed meanwhile
            raise ConnectionLost(f"{self._database.name}: {error}") from None
        except pymysql.Error as error:
            found = self._database.login.explained(error)
            if isinstance(found, ConnectionLost | TimedOut):
                self._drop_asking()
            raise capture_check.refused(error, found, self._database.login.user) from None

    def _status(self) -> tuple[str, int]:
        return end_of(self._ask)

    def _drop_asking(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            with suppress(Exception):
                close_now(asking)

    @property
    def _name(self) -> TableName:
        if self._named is None:
            self._named = capture_check.name_of(self._ask, self._database.home, self._database.rows.table)
        return self._named

    @_alone
    def check(self) -> None:
        database = self._database
        capture_check.check(self._ask, database.name, self._name, self.schema, database.rows.what)
        Dump(self._database.login, self._server_id, *self._status()).close()

    # where to begin

    @_alone
    def begin(self) -> tuple[Offset, str | None]:
        self.begun()
        self._snapshot = self._database.hold()
        return self._offset(*self._snapshot.place), self._snapshot.name

    def begun(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            self._database.let_go(snapshot)

    @_alone
    def start(self, where: str) -> Offset:
        file = self._database.values["binlog.file"]
        if file != "auto":
            position = self._database.values["binlog.position"]
            return self._offset(file, BEGINNING if position == "auto" else position)
        if where.lower() == "latest":
            return self._offset(*self._status())
        if where.lower() == "earliest":
            return self._offset(str(self._ask("SHOW BINARY LOGS")[0][0]), BEGINNING)
        found = _PLACE.fullmatch(where)
        if found is None:
            raise InvalidOption(
                f'option "cdc.start" cannot be "{where}"',
                hint="earliest, latest, or a file of the log and a position in it: binlog.000003:4711",
            )
        return self._offset(found["file"], int(found["position"]))

    def _offset(self, file: str, position: int) -> Offset:
        """Returns the offset of an existing position."""
        dump = Dump(self._database.login, self._server_id, file, position)
        dump.close()
        return {"file": file, "position": position, "made": dump.made, "key": list(self.schema.key)}

    # what is available

    def _forget(self, start: Offset | None) -> None:
        dump, self._dump = self._dump, None
        if dump is not None:
            dump.close()
        self._base = self._done = _place(start) if start is not None else None
        self._files: dict[str, int] = {start["file"]: start["made"]} if start is not None else {}
        self._transactions: list[Transaction] = []
        self._groups: Groups | None = None
        self._failed: Error | None = None

    def _from(self, start: Offset) -> None:
        """Makes the stored changes begin at an offset."""
        at = _place(start)
        known = (
            self._base is not None
            and self._done is not None
            and self._files.get(start["file"]) == start["made"]
        )
        if not known or not _order(self._base) <= _order(at) <= _order(self._done):  # type: ignore[arg-type]
            self._forget(start)
        self._transactions = [t for t in self._transactions if _order(t.end) > _order(at)]
        self._base = at
        if self._dump is None:
            self._forget(start)
            self._open(start)

    def _open(self, start: Offset) -> None:
        file, position = _place(start)
        dump = Dump(self._database.login, self._server_id, file, position)
        if dump.made != start["made"]:
            dump.close()
            raise CaptureLost(
                f'the log of {self._database.name} was begun anew: its "{file}" is not the one that was read',
                hint="the table must be loaded again",
            )
        with self._lock:
            if self._closed:
                dump.close()
                raise ConnectionLost("the log was closed")
            self._dump = dump
        self._groups = Groups(self._name)

    def _step(self) -> None:
        assert self._dump is not None and self._groups is not None
        if self._failed is not None:
            raise self._failed
        try:
            event = self._dump.next()
            self._files[self._dump.file] = self._dump.made
            steps = self._groups.take(event)
        except ConnectionLost:
            self._forget(None)
            raise
        except Error as error:  # what lies before it can still be read
            self._failed = error
            raise
        if not self._groups.open:
            self._done = (self._dump.file, self._dump.position)
            if steps:
                self._transactions.append(Transaction(self._done, steps))

    def _reached(self, goal: tuple[str, int]) -> bool:
        assert self._dump is not None
        return _order((self._dump.file, self._dump.position)) >= _order(goal)

    @_alone
    def horizon(self, start: Offset, rows: int) -> LogPosition:
        self._from(start)
        goal = self._status()
        count = sum(t.rows for t in self._transactions)
        while count < rows and (self._failed is not None or not self._reached(goal)):
            before = len(self._transactions)
            try:
                self._step()
            except Error:
                if self._transactions:
                    break
                self._forget(None)
                raise
            count += sum(t.rows for t in self._transactions[before:])
        taken = 0
        for transaction in self._transactions:
            taken += transaction.rows
            if taken >= rows:
                return _order(transaction.end)
        assert self._done is not None
        return _order(self._done)

    @_alone
    def until(self, start: Offset, position: LogPosition) -> Offset:
        found = self._upto(start, position)
        end = found[-1].end if found else _place(start)
        done = self._done
        if not found and done is not None and _order(done) <= position:
            moved = done[0] != start["file"] or done[1] - start["position"] > FAR
            end = done if moved else end
        return {**start, "file": end[0], "position": end[1], "made": self._files[end[0]]}

    def _upto(self, start: Offset, position: LogPosition) -> list[Transaction]:
        """Returns the transactions after an offset and not after a position."""
        at = _order(_place(start))
        kept = self._base is not None and self._done is not None and start["file"] in self._files
        if not (kept and _order(self._base) <= at and position <= _order(self._done)):  # type: ignore[arg-type]
            self._from(start)
            while (_order(self._done) if self._done is not None else at) < position:
                self._step()
        return [t for t in self._transactions if at < _order(t.end) <= position]

    @_alone
    def _between(self, start: Offset, end: Offset) -> list[Step]:
        return [step for t in self._upto(start, _order(_place(end))) for step in t.steps]

    # rows

    def read(self, start: Offset, end: Offset) -> Iterator[pa.RecordBatch]:
        return Gather(self.schema, self._layout).all(self._between(start, end))

    @_alone
    def _layout(self, table: TableMap) -> Layout:
        return self._layouts.of(self.schema, table)

    @_alone
    def fresh(self, start: Offset, end: Offset) -> Schema:
        maps = {id(s.map): s.map for s in self._between(start, end) if s.map is not None}
        for table in maps.values():
            capture_check.refuse_key(table, start.get("key", self.schema.key))
        return self._layouts.fresh(self.schema, maps.values())

    # what is new

    def news(self, stop: threading.Event) -> Iterator[None]:
        driver: pymysql.Connection[Any] | None = None
        seen: tuple[str, int] | None = None
        try:
            while not stop.wait(LOOK):
                try:
                    driver = driver or self._database.login.open(autocommit=True)
                    now = end_of(partial(ask, driver))
                except (pymysql.Error, Error, OSError):
                    if driver is not None:
                        close_now(driver)
                    driver = seen = None
                    if stop.wait(0.5):
                        return
                    yield
                    continue
                if now != seen:
                    seen = now
                    yield
        finally:
            if driver is not None:
                close_now(driver)

    def drop(self) -> None:
        """Closes connections: the server stores nothing for us."""
        self.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            dump = self._dump
        if dump is not None:
            dump.close()
        self._drop_asking()
        self.begun()


def _place(offset: Offset) -> tuple[str, int]:
    return offset["file"], offset["position"]


def _order(position: tuple[str, int]) -> tuple[int, int]:
    """Returns a key to sort positions by: the files of a log are numbered."""
    number = position[0].rpartition(".")[2]
    if not number.isdigit():
        raise CaptureRefused(f'"{position[0]}" is no file of a binary log')
    return int(number), position[1]
