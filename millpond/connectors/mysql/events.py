"""Reads the events of a binary log, as a server sends them to a replica.

``mysql-replication`` would return a dict of Python values for each row, skip unknown events, and reconnect silently.
Here the rows stay bytes, and what is not understood is an error.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.constants.COMMAND import COM_BINLOG_DUMP

from millpond.connectors.mysql.internals import close_now, read_packet, send_command
from millpond.connectors.mysql.login import Login
from millpond.connectors.mysql.snapshot import ask, is_mariadb
from millpond.errors import BadData, CaptureLost, CaptureRefused, ConnectionLost

QUERY, STOP, ROTATE, FORMAT, XID, TABLE_MAP, HEARTBEAT = 2, 3, 4, 15, 16, 19, 27
XA_PREPARE, PARTIAL_UPDATE, TRANSACTION_PAYLOAD, MARIADB_GTID = 38, 39, 40, 162
INSERTS, UPDATES, DELETES = (23, 30), (24, 31, PARTIAL_UPDATE), (25, 32)
_COMPRESSED = {165: QUERY, 166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
_ARTIFICIAL = 0x20
_PURGED = 1236
_WAIT = 30.0
"""Seconds in which a server sends what its log contains."""


@dataclass(frozen=True, slots=True)
class Event:
    """Represents an event. ``end`` is the place after it in its file, 0 if it is not in the file."""

    kind: int
    time: int
    end: int
    body: bytes


class Dump:
    """Represents a connection on which a server sends its log from a place on. ``made`` says when the file was started:
    another server, or one that restarted its log, has files of the same names.
    """

    def __init__(self, login: Login, server_id: int, file: str, position: int):
        self.file, self.position = file, position
        self.made = 0
        self._login = login
        try:
            self._driver = login.open(database=None, patience=login.patience or _WAIT)
        except pymysql.Error as error:
            raise login.explained(error) from None
        try:
            self._ask_for(server_id)
            while not self.made:
                self.next()
        except pymysql.Error as error:
            self.close()
            raise self._explained(error) from None
        except BaseException:
            self.close()
            raise

    def _ask_for(self, server_id: int) -> None:
        driver: Any = self._driver
        kind = "@@global.binlog_checksum"
        ask(driver, f"SET @master_binlog_checksum = {kind}, @source_binlog_checksum = {kind}")
        self._summed = ask(driver, f"SELECT {kind}")[0][0] != "NONE"
        if is_mariadb(driver):
            ask(driver, "SET @mariadb_slave_capability = 4")
        place = struct.pack("<IHI", self.position, 0, server_id) + self.file.encode()
        send_command(driver, COM_BINLOG_DUMP, place)

    def next(self) -> Event:
        """Waits for the next event, and returns it."""
        try:
            data = read_packet(self._driver)
        except pymysql.Error as error:
            raise self._explained(error) from None
        except (OSError, AttributeError, ValueError) as error:  # closed meanwhile
            raise ConnectionLost(f"{self._login.name}: {error}") from None
        if data[0] == 0xFE:
            raise ConnectionLost(f"{self._login.name}: the server has ended its log")
        event = _parsed(data, self._summed)
        if event.kind == ROTATE:
            self.position = int.from_bytes(event.body[:8], "little")
            self.file = event.body[8:].decode()
        elif event.kind == FORMAT:
            self.made = event.time
            self._summed = bool(event.body[-5])
        if event.end:
            self.position = event.end if event.kind != ROTATE else self.position
        return event

    def _explained(self, error: pymysql.Error) -> Exception:
        code = error.args[0] if error.args else 0
        if code == _PURGED and "same server" in str(error.args[1]):  # another replica has taken our number
            return ConnectionLost(f"{self._login.name}: {error.args[1]}")
        if code == _PURGED:
            return CaptureLost(
                f'{self._login.name} does not have its log from "{self.file}:{self.position}" on any more:'
                f" {error.args[1]}",
                hint="the table must be loaded again; binlog_expire_logs_seconds is how long the server keeps its log",
            )
        if code in (1227, 1045):
            return CaptureRefused(
                f"{self._login.name}: {error.args[1]}",
                hint=f"GRANT REPLICATION SLAVE ON *.* TO '{self._login.user}'",
            )
        return self._login.explained(error)

    def close(self) -> None:
        close_now(self._driver)


def _parsed(data: bytes, summed: bool) -> Event:
    """Returns an event without its checksum; that of a FORMAT event, which describes all others, always exists."""
    time, kind, _, size, end, flags = struct.unpack_from("<IBIIIH", data, 1)
    body = data[20 : size + 1 - (4 if summed and kind != FORMAT else 0)]
    if kind in _COMPRESSED:
        kind, body = _COMPRESSED[kind], _unpacked(kind, body)
    if kind == TRANSACTION_PAYLOAD:
        raise CaptureRefused(
            "the server compresses transactions in its log",
            hint="SET GLOBAL binlog_transaction_compression = OFF, then load the table again",
        )
    return Event(kind, time, 0 if flags & _ARTIFICIAL else end, body)


def _unpacked(kind: int, body: bytes) -> bytes:
    """Decompresses an event of MariaDB: what is before its compressed part does not change."""
    if kind == 165:
        before = 13 + int.from_bytes(body[11:13], "little") + body[8] + 1
    else:
        at = 8 if kind < 169 else 8 + int.from_bytes(body[8:10], "little")
        count, at = lenenc(body, at)
        before = at + (count + 7) // 8 * (2 if _COMPRESSED[kind] in UPDATES else 1)
    head = body[before]
    if head & 0xF0 != 0x80:
        raise BadData("an event of the log is compressed in a way that is not known")
    return body[:before] + zlib.decompress(body[before + 1 + (head & 0x07) :])


def lenenc(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number of variable length, and the place after it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width


def statement_of(body: bytes) -> tuple[str, str]:
    """Returns the database and the text of a QUERY event."""
    named, variables = body[8], int.from_bytes(body[11:13], "little")
    at = 13 + variables
    return body[at : at + named].decode(errors="replace"), body[at + named + 1 :].decode(errors="replace")
