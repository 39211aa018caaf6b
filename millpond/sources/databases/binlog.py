"""The log of changes of a table of MySQL or MariaDB: its part of the binary log of the server.

An offset is a file of that log, a place in it where no transaction is open, and when the file was begun.
"""

from __future__ import annotations

import logging
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pymysql

from millpond.changes import Offset
from millpond.errors import (
    CaptureLost,
    CaptureRefused,
    ConnectionLost,
    Error,
    InvalidOption,
    SourceChanged,
)
from millpond.sources._captured import Log
from millpond.sources.databases import mycheck
from millpond.sources.databases.mycharsets import Charsets
from millpond.sources.databases.myevents import Dump
from millpond.sources.databases.mygather import Gather, Layout, Reading
from millpond.sources.databases.mygroups import Groups, Step
from millpond.sources.databases.mymap import TableMap
from millpond.sources.databases.mymoment import Moment, ask, end_of
from millpond.sources.databases.mystatements import TableName
from millpond.types import Column, Schema, type_name

if TYPE_CHECKING:
    from millpond.sources.databases.mysql import MysqlDatabase

log = logging.getLogger("millpond")
LOOK = 0.02
"""Seconds between two looks at the end of the log."""
FAR = 64 << 20
"""Bytes of other tables' changes after which an offset moves on, so that what is before it may be purged."""
_PLACE = re.compile(r"(?P<file>[^:]+):(?P<position>\d+)")


@dataclass(frozen=True, slots=True)
class Transaction:
    end: tuple[str, int]
    steps: list[Step]

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.steps)


def _alone(method: Callable[..., Any]) -> Any:
    """One caller at a time: whoever waits for a table looks at its log beside who follows it."""

    @wraps(method)
    def locked(self: BinLog, *given: Any) -> Any:
        with self._using:
            return method(self, *given)

    return locked


class BinLog(Log):
    def __init__(self, database: MysqlDatabase, owner: str, schema: Schema):
        self.schema = schema
        self._database = database
        self._owner = owner
        # Replicas are told apart by a number: ours are random, out of the way of those that people give.
        self._server_id = 0x80000000 | random.SystemRandom().getrandbits(31)
        self._asking: pymysql.Connection[Any] | None = None
        self._dump: Dump | None = None
        self._moment: Moment | None = None
        self._named: TableName | None = None
        self._charsets = Charsets(self._ask)
        self._natural: Schema | None = None
        self._layouts: dict[tuple[int, int], tuple[TableMap, Layout]] = {}
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
            if isinstance(found, ConnectionLost):
                self._drop_asking()
            raise mycheck.refused(error, found, self._database.login.user) from None

    def _status(self) -> tuple[str, int]:
        return end_of(self._ask)

    def _drop_asking(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            with suppress(Exception):
                asking._force_close()

    @property
    def _name(self) -> TableName:
        if self._named is None:
            self._named = mycheck.name_of(self._ask, self._database)
        return self._named

    @_alone
    def check(self) -> None:
        mycheck.check(self._ask, self._database, self._name, self.schema)
        Dump(self._database.login, self._server_id, *self._status()).close()

    # where to begin

    @_alone
    def begin(self) -> tuple[Offset, str | None]:
        self.begun()
        self._moment = self._database.hold()
        return self._offset(*self._moment.place), self._moment.name

    def begun(self) -> None:
        moment, self._moment = self._moment, None
        if moment is not None:
            self._database.let_go(moment)

    @_alone
    def start(self, where: str) -> Offset:
        file = self._database.values["binlog.file"]
        if file != "auto":
            return self._offset(file, self._database.values["binlog.position"])
        if where.lower() == "latest":
            return self._offset(*self._status())
        if where.lower() == "earliest":
            return self._offset(str(self._ask("SHOW BINARY LOGS")[0][0]), 4)
        found = _PLACE.fullmatch(where)
        if found is None:
            raise InvalidOption(
                f'option "cdc.start" cannot be "{where}"',
                hint="earliest, latest, or a file of the log and a place in it: binlog.000003:4711",
            )
        return self._offset(found["file"], int(found["position"]))

    def _offset(self, file: str, position: int) -> Offset:
        """The offset of a place, which is there."""
        dump = Dump(self._database.login, self._server_id, file, position)
        dump.close()
        return {"file": file, "position": position, "made": dump.made}

    # what is there

    def _forget(self, start: Offset | None) -> None:
        dump, self._dump = self._dump, None
        if dump is not None:
            dump.close()
        self._base = self._done = _place(start) if start is not None else None
        self._files: dict[str, int] = {start["file"]: start["made"]} if start is not None else {}
        self._transactions: list[Transaction] = []
        self._groups: Groups | None = None

    def _from(self, start: Offset) -> None:
        """What is kept begins at an offset."""
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
        try:
            event = self._dump.next()
            self._files[self._dump.file] = self._dump.made
            steps = self._groups.take(event)
        except Error:
            self._forget(None)
            raise
        if not self._groups.open:
            self._done = (self._dump.file, self._dump.position)
            if steps:
                self._transactions.append(Transaction(self._done, steps))

    def _reached(self, goal: tuple[str, int]) -> bool:
        assert self._dump is not None
        return _order((self._dump.file, self._dump.position)) >= _order(goal)

    @_alone
    def latest(self, start: Offset, rows: int) -> Offset:
        self._from(start)
        goal = self._status()
        count = sum(t.rows for t in self._transactions)
        while count < rows and not self._reached(goal):
            before = len(self._transactions)
            self._step()
            count += sum(t.rows for t in self._transactions[before:])
        taken, end = 0, None
        for transaction in self._transactions:
            taken, end = taken + transaction.rows, transaction.end
            if taken >= rows:
                break
        if end is None:
            assert self._done is not None
            moved = self._done[0] != start["file"] or self._done[1] - start["position"] > FAR
            end = self._done if moved else _place(start)
        return {"file": end[0], "position": end[1], "made": self._files[end[0]]}

    @_alone
    def _between(self, start: Offset, end: Offset) -> list[Step]:
        goal, at = _place(end), _place(start)
        kept = self._base is not None and self._done is not None and self._dump is not None
        if not (kept and _order(self._base) <= _order(at) and _order(goal) <= _order(self._done)):  # type: ignore[arg-type]
            self._from(start)
            while _order(self._done or at) < _order(goal):
                self._step()
        return [
            step for t in self._transactions if _order(at) < _order(t.end) <= _order(goal) for step in t.steps
        ]

    # rows

    def read(self, start: Offset, end: Offset) -> Iterator[pa.RecordBatch]:
        return Gather(self.schema, self._layout).all(self._between(start, end))

    @_alone
    def fresh(self, start: Offset, end: Offset) -> Schema:
        maps = {id(s.map): s.map for s in self._between(start, end) if s.map is not None}.values()
        natural = self._natural or self._discovered()
        new: dict[str, Column] = {}
        for table in maps:
            mycheck.refuse_unnamed(table)
            for field in table.fields:
                known = self.schema.find(field.name)
                if known is None:
                    new.setdefault(field.name.lower(), Column(field.name, None))
                elif (before := natural.find(field.name)) is None or before.type != self._type(
                    table, field.name
                ):
                    self._refuse_other(known, self._type(table, field.name))
        if not new:
            return Schema(())
        natural = self._discovered()
        return Schema(tuple(c for c in natural if c.name.lower() in new))

    def _type(self, table: TableMap, name: str) -> pa.DataType:
        reading = self._reading(table, name)
        assert reading is not None
        return pa.string() if reading.made in mycheck.AS_TEXT else reading.field.arrow

    def _refuse_other(self, known: Column, found: pa.DataType) -> None:
        assert known.type is not None
        if not mycheck.holds(known.type, found):
            raise SourceChanged(
                f'column "{known.name}" of "{self._name}" has become {type_name(found)};'
                f" here it is {type_name(known.type)}",
                hint="make the table anew, so that it is loaded again",
            )

    def _discovered(self) -> Schema:
        with self._database.connected() as connection:
            self._natural = self._database.discover(connection)
        return self._natural

    @_alone
    def _layout(self, table: TableMap) -> Layout:
        known = self._layouts.get((id(table), id(self.schema)))
        if known is not None and known[0] is table:
            return known[1]
        mycheck.refuse_unnamed(table)
        columns = tuple(self._reading(table, c.name) for c in self.schema)
        at = {f.name.lower(): i for i, f in enumerate(table.fields)}
        places = tuple(at[c.field.name.lower()] for c in columns if c is not None)
        keys = tuple(at[k.lower()] for k in self.schema.key if k.lower() in at)
        whole = len(keys) == len(self.schema.key) and set(keys) <= set(places)
        found = Layout(table, columns, places, keys if whole else ())
        self._layouts = {(id(table), id(self.schema)): (table, found)}
        return found

    def _reading(self, table: TableMap, name: str) -> Reading | None:
        field = next((f for f in table.fields if f.name.lower() == name.lower()), None)
        if field is None:
            return None
        made = mycheck.made_of(self._ask, self._name, field)
        return Reading(field, made, self._charsets.decoder(field))

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
                        driver._force_close()
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
                driver._force_close()

    def drop(self) -> None:
        """The server keeps nothing for us."""
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


def _order(place: tuple[str, int]) -> tuple[int, int]:
    """The files of a log are numbered."""
    number = place[0].rpartition(".")[2]
    if not number.isdigit():
        raise CaptureRefused(f'"{place[0]}" is no file of a binary log')
    return int(number), place[1]
