"""Groups the events of a binary log to transactions of one table."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from typing import IO

from millpond.connectors.mysql.events import (
    DELETES,
    INSERTS,
    MARIADB_GTID,
    QUERY,
    ROTATE,
    TABLE_MAP,
    UPDATES,
    XA_PREPARE,
    XID,
    Event,
    statement_of,
)
from millpond.connectors.mysql.statements import LOST, TableName
from millpond.connectors.mysql.table_map import TableMap, map_of, number_of, whose
from millpond.connectors.source import BYTES_OF_A_ROW
from millpond.errors import BadData, CaptureLost

IN_MEMORY = 32 << 20
"""Bytes of a transaction that are in memory until it is read."""
GTIDS = (33, 34, MARIADB_GTID)
_STANDALONE = 1
_ROWS = (*INSERTS, *UPDATES, *DELETES)
_SAVEPOINT = re.compile(r"SAVEPOINT\s+(\S+)", re.IGNORECASE)
_BACK_TO = re.compile(r"ROLLBACK\s+TO\s+(?:SAVEPOINT\s+)?(\S+)", re.IGNORECASE)


class Spool:
    """Stores the events of one transaction: as many as allowed in memory, the others in a temporary file."""

    def __init__(self) -> None:
        self._in_memory = 0
        self._file: IO[bytes] | None = None

    def step(self, event: Event, table: TableMap | None) -> Step:
        size = len(event.body)
        if self._in_memory + size <= IN_MEMORY:
            self._in_memory += size
            return Step(event.kind, size, table, event.body)
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="millpond-")  # noqa: SIM115
        at = self._file.seek(0, 2)
        self._file.write(event.body)
        return Step(event.kind, size, table, None, self, at)

    def body(self, at: int, size: int) -> bytes:
        assert self._file is not None
        self._file.seek(at)
        return self._file.read(size)


@dataclass(frozen=True, slots=True)
class Step:
    """Contains an event with rows of the table; one without a map truncates it."""

    kind: int
    size: int
    map: TableMap | None
    _body: bytes | None
    _spool: Spool | None = None
    _at: int = 0

    @property
    def body(self) -> bytes:
        if self._body is not None:
            return self._body
        assert self._spool is not None
        return self._spool.body(self._at, self.size)

    @property
    def rows(self) -> int:
        """Returns its approximate number of rows."""
        return max(1, self.size // BYTES_OF_A_ROW)


@dataclass(slots=True)
class Groups:
    """Takes events one by one. ``open`` says whether a transaction has begun and not ended."""

    name: TableName
    open: bool = False
    _begun: bool = False
    _steps: list[Step] = field(default_factory=list)
    _spool: Spool = field(default_factory=Spool)
    _maps: dict[int, TableMap | None] = field(default_factory=dict)
    _parsed: dict[bytes, TableMap] = field(default_factory=dict)
    _savepoints: dict[str, int] = field(default_factory=dict)

    def take(self, event: Event) -> list[Step]:
        """Returns what a transaction did to the table, if one ended with the event."""
        kind = event.kind
        if kind in _ROWS:
            self._rows(event)
        elif kind == TABLE_MAP:
            self._maps[number_of(event.body)] = self._map(event.body)
        elif kind == XID:
            return self._end()
        elif kind == QUERY:
            return self._query(event)
        elif kind in GTIDS:
            self._begin(kind == MARIADB_GTID and not event.body[12] & _STANDALONE)
        elif kind == ROTATE:
            self._forget()
            self._maps.clear()
        elif kind == XA_PREPARE:
            if self._steps and not event.body[0]:
                raise self._lost("was changed in an XA transaction, which ends elsewhere in the log")
            return self._end()
        return []

    def _map(self, body: bytes) -> TableMap | None:
        if not self.name.is_at(*whose(body)):
            return None
        if body[6:] not in self._parsed:
            self._parsed = {body[6:]: map_of(body)}
        return self._parsed[body[6:]]

    def _rows(self, event: Event) -> None:
        number = number_of(event.body)
        if number not in self._maps:
            raise BadData(
                "the place in the log from which it is read is in the middle of a transaction",
                hint="begin at the end of one: SHOW BINLOG EVENTS lists them",
            )
        found = self._maps[number]
        if found is not None:
            self._steps.append(self._spool.step(event, found))

    def _query(self, event: Event) -> list[Step]:
        database, text = statement_of(event.body)
        word = text[:9].upper().strip()
        if word == "BEGIN" or word.startswith("XA START"):
            self._begin(True)
        elif word == "COMMIT" or word.startswith(("XA COMMIT", "XA ROLLBA")):
            return self._end()
        elif word == "ROLLBACK" and (back := _BACK_TO.match(text)) is not None:
            del self._steps[self._savepoints.get(back[1], len(self._steps)) :]
        elif word == "ROLLBACK":
            self._forget()
        elif word == "SAVEPOINT" and (point := _SAVEPOINT.match(text)) is not None:
            self._savepoints[point[1]] = len(self._steps)
        else:
            effect = self.name.effect(database, text)
            if effect is not None and effect.kind == LOST:
                raise self._lost(effect.why)
            if effect is not None:
                self._steps.append(self._spool.step(event, None))
            if not self._begun:
                return self._end()
        return []

    def _lost(self, why: str) -> CaptureLost:
        return CaptureLost(
            f'table "{self.name}" {why}', hint="make the table anew, so that it is loaded again"
        )

    def _begin(self, begun: bool) -> None:
        self.open, self._begun = True, begun
        self._steps, self._spool = [], Spool()
        self._savepoints.clear()

    def _end(self) -> list[Step]:
        steps = self._steps
        self._forget()
        return steps

    def _forget(self) -> None:
        self.open = self._begun = False
        self._steps, self._spool = [], Spool()
