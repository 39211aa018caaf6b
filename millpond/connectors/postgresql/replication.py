"""Receives the changes of a table from PostgreSQL, on a replication connection.

The server sends whole transactions, each once, as soon as it is committed. They are stored here until they are stored
elsewhere; then they are confirmed, and only then the server removes them. One that is too large for memory waits in a
file.
"""

from __future__ import annotations

import selectors
import socket
import struct
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

import numpy as np
import psycopg

from millpond.connectors.postgresql.login import Connected
from millpond.connectors.postgresql.pgoutput import Piece, Relation, relation_of
from millpond.errors import Error

MOST_KEPT = 64 << 20
"""Bytes of whole transactions that are buffered before no more are taken from the server."""
LARGE = 8 << 20
"""Bytes above which a transaction goes to a file."""
_PIECE = 2 << 20
_REPORT_INTERVAL = 5.0
"""Seconds between two status messages to the server: it closes a silent connection."""
_PRESSING = 1.0
_PART = 0.02
"""Seconds to wait at first for the rest of a record."""
_SILENCE = 120.0
"""Seconds without a message of the server after which it is treated as gone."""
_EPOCH = 946_684_800
_DATA, _ALIVE = b"wk"
_BEGIN, _COMMIT, _RELATION = b"BCR"
_CHANGES = b"IUD"
_TRUNCATE = ord("T")


@dataclass(slots=True)
class Stored:
    """Stores a piece of a transaction: in memory, or as a part of a file."""

    relation: Relation
    lengths: np.ndarray
    data: bytes | None
    file: IO[bytes] | None = None
    at: int = 0
    size: int = 0

    def piece(self) -> Piece:
        if self.file is None:
            assert self.data is not None
            return Piece(self.relation, self.data, self.lengths)
        self.file.seek(self.at)
        return Piece(self.relation, self.file.read(self.size), self.lengths)


@dataclass(slots=True)
class Transaction:
    """Contains changes up to ``end``, the place in the log after its commit."""

    end: int = 0
    pieces: list[Stored] = field(default_factory=list)
    changes: int = 0
    in_memory: int = 0


class Stream:
    """Receives what comes after a place in the log. A thread reads it from the server; ``ended`` says why it has
    stopped. ``explained`` translates the driver's errors.
    """

    def __init__(self, connection: Connected, table: int, at: int, explained: Callable[[Exception], Error]):
        self.at = at
        self.received = at
        """The place up to which everything was received."""
        self.ended: Error | None = None
        self._connection = connection
        self._table = table
        self._explained = explained
        self._flushed = at
        self._news = threading.Condition()
        self._waiting: deque[Transaction] = deque()
        self._in_memory = 0
        self._pending = 0
        self._open = Transaction()
        self._messages: list[bytes] = []
        self._size = 0
        self._relation: Relation | None = None
        self._file: IO[bytes] | None = None
        self._asked = False
        self._closing = False
        self._commits = 0
        self._heard = time.monotonic()
        self._pressed = 0.0
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="millpond-postgresql", daemon=True)
        self._thread.start()

    # what was received

    def forget(self, end: int) -> None:
        """Confirms that everything up to a place is stored elsewhere."""
        with self._news:
            while self._waiting and self._waiting[0].end <= end:
                gone = self._waiting.popleft()
                self._in_memory -= gone.in_memory
                self._pending -= gone.changes
            self._flushed = max(self._flushed, end)
            self.at = max(self.at, end)

    def between(self, start: int, end: int) -> list[Transaction]:
        with self._news:
            return [t for t in self._waiting if start < t.end <= end]

    def horizon(self, rows: int) -> int:
        """Returns the end of the last of the first transactions that have about so many changes; the place up to which
        everything was received if all have fewer.
        """
        with self._news:
            changes, end = 0, None
            for transaction in self._waiting:
                if end is not None and changes + transaction.changes > rows:
                    return end
                changes, end = changes + transaction.changes, transaction.end
            return max(self.received, end or 0)

    def last_until(self, place: int) -> int | None:
        """Returns the end of the last transaction that is not after a place; None if there is none."""
        with self._news:
            return max((t.end for t in self._waiting if t.end <= place), default=None)

    def has_some(self) -> bool:
        return bool(self._waiting)

    def catch_up(self, place: int, rows: int, push: Callable[[], None]) -> None:
        """Waits until everything up to a place was received, or so many changes were. Raises if the server has ended.
        ``push`` makes the server flush its log to disk: it sends whole records only, and the last one may be there in
        part, as long as nobody commits.
        """
        began, patience = time.monotonic(), _PART
        while not self._has_come(place, rows):
            if time.monotonic() - began > patience:
                push()
                patience *= 4

    def _has_come(self, place: int, rows: int) -> bool:
        with self._news:
            if (
                self.received >= place
                or self._pending >= rows
                or (self._waiting and self._in_memory >= MOST_KEPT)
            ):
                return True
            if self.ended is not None:
                raise self.ended
            if time.monotonic() - self._heard > _SILENCE:
                raise self._explained(ConnectionError(f"nothing heard for {_SILENCE:g} s"))
            self._ring()
            self._news.wait(_PART)
            return False

    def wait(self, seen: int, seconds: float) -> int:
        """Waits until there are other transactions than those that were ``seen``; returns how many were received."""
        with self._news:
            if self._commits == seen and self.ended is None:
                self._news.wait_for(lambda: self._commits != seen or self.ended is not None, seconds)
            return self._commits

    def close(self) -> None:
        self._closing = True
        with suppress(OSError):
            self._bell.send(b".")
        self._thread.join(10)
        for end in (self._ear, self._bell):
            end.close()

    def _ring(self) -> None:
        """Makes the thread query the progress of the server."""
        self._asked = True
        with suppress(OSError):
            self._bell.send(b".")

    # the thread that receives it

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                self._receive(selector)
        except Exception as error:
            failed = self._explained(error)
        else:
            failed = self._explained(ConnectionError("the server has ended the log"))
        with self._news:
            self.ended = failed
            self._news.notify_all()
        with suppress(Exception):
            self._connection.close()

    def _receive(self, selector: selectors.BaseSelector) -> None:
        pgconn, reported = self._connection.pgconn, 0.0
        wire, ear = pgconn.socket, self._ear.fileno()
        for end in (wire, ear):
            selector.register(end, selectors.EVENT_READ)
        while not self._closing:
            now = time.monotonic()
            asked, self._asked = self._asked, False
            if asked or now - reported > _REPORT_INTERVAL:
                self._tell()
                reported = now
            if self._in_memory >= MOST_KEPT and not self._open.changes:
                time.sleep(0.005)
                continue
            size, message = pgconn.get_copy_data(1)
            while size > 0:
                self._take(bytes(message))
                size, message = pgconn.get_copy_data(1)
            if size < 0:
                result = pgconn.get_result()
                if result is not None and result.error_message:
                    raise psycopg.errors.error_from_result(result)
                raise ConnectionError("it has ended the log")
            ready = {key.fd for key, _ in selector.select(1.0)}
            if ear in ready:
                self._ear.recv(4096)
            if wire in ready:
                pgconn.consume_input()
                self._heard = time.monotonic()

    def _tell(self) -> None:
        """Sends our progress, and requests that of the server."""
        now = int((time.time() - _EPOCH) * 1_000_000)
        place = self._flushed
        pgconn = self._connection.pgconn
        pgconn.put_copy_data(struct.pack(">cQQQqB", b"r", place, place, place, now, 1))
        pgconn.flush()

    def _answer(self) -> None:
        """Replies to the server's request for a status. If it repeats it at once it wants to shut down, and waits until
        we have stored everything, which only ``forget`` may confirm: it need not wait.
        """
        now = time.monotonic()
        if now - self._pressed < _PRESSING:
            raise ConnectionError("it shuts down")
        self._pressed = now
        self._tell()

    def _take(self, message: bytes) -> None:
        if message[0] == _ALIVE:
            (place,) = struct.unpack_from(">Q", message, 1)
            if not self._open.changes:
                self._arrived(place)
            if message[17]:
                self._answer()
            return
        kind = message[25]
        if kind in _CHANGES:
            if int.from_bytes(message[26:30]) == self._table:
                self._add(message[25:])
        elif kind == _COMMIT:
            (end,) = struct.unpack_from(">Q", message, 35)
            self._commit(end)
        elif kind == _RELATION:
            if int.from_bytes(message[26:30]) == self._table:
                self._store()
                self._relation = relation_of(message[25:])
        elif kind == _TRUNCATE:
            count = int.from_bytes(message[26:30])
            tables = struct.unpack_from(f">{count}I", message, 31)
            if self._table in tables:
                self._add(message[25:])

    def _add(self, message: bytes) -> None:
        self._messages.append(message)
        self._size += len(message)
        self._open.changes += 1
        if self._size >= _PIECE:
            self._store()

    def _store(self) -> None:
        """Stores what was collected as a piece."""
        if not self._messages:
            return
        assert self._relation is not None
        lengths = np.fromiter(map(len, self._messages), np.int64, len(self._messages))
        stored = Stored(self._relation, lengths, b"".join(self._messages))
        size, self._messages, self._size = self._size, [], 0
        if self._open.in_memory + size > LARGE:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  it goes with its transaction
            assert stored.data is not None
            stored.file, stored.at, stored.size = self._file, self._file.seek(0, 2), size
            self._file.write(stored.data)
            stored.data = None
        else:
            self._open.in_memory += size
        self._open.pieces.append(stored)

    def _commit(self, end: int) -> None:
        self._store()
        done, self._open, self._file = self._open, Transaction(), None
        done.end = end
        with self._news:
            if done.changes and end > self._flushed:
                self._waiting.append(done)
                self._in_memory += done.in_memory
                self._pending += done.changes
                self._commits += 1
        self._arrived(end)

    def _arrived(self, place: int) -> None:
        with self._news:
            self.received = max(self.received, place)
            self._news.notify_all()


def pieces(transactions: list[Transaction], size: int) -> Iterator[Piece]:
    """Groups the changes of transactions, those of one relation together as far as they are not too many."""
    together: list[Piece] = []
    gathered = 0
    for stored in (s for t in transactions for s in t.pieces):
        if together and (stored.relation != together[0].relation or gathered + len(stored.lengths) > size):
            yield Piece.joined(together)
            together, gathered = [], 0
        together.append(stored.piece())
        gathered += len(stored.lengths)
    if together:
        yield Piece.joined(together)
