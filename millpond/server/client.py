"""The other end of the socket: statements to a running app, answers from it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.errors import EngineError
from millpond.server.address import connect
from millpond.server.messages import load_error, read_line, write_line


@dataclass(frozen=True)
class Answer:
    """``count`` is the number of rows a statement touched, or None and there are ``tables``.

    The tables of a ``running`` query come one after another until it is closed.
    """

    count: int | None
    running: bool
    tables: Iterator[pa.Table]


class Client:
    """A connection to a running app: one statement at a time."""

    def __init__(self, connection: socket.socket, *, only_reads: bool = False):
        self._connection = connection
        self._only_reads = only_reads
        self._file = connection.makefile("rwb")

    @staticmethod
    def of(state: Path, *, only_reads: bool = False) -> Client | None:
        """A client of the app that runs on a state directory; None when none does. With ``only_reads`` the app refuses
        what changes something."""
        connection = connect(state)
        return Client(connection, only_reads=only_reads) if connection is not None else None

    def ask(self, sql: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Answer:
        """Sends a text and waits for the answer. Raises the error that the app raised."""
        # An app that turned the client away may have closed before this is written; what it said is still there.
        with contextlib.suppress(OSError):
            write_line(self._file, {"sql": sql, "params": params, "only_reads": self._only_reads})
        try:
            head = read_line(self._file)
        except OSError:
            head = None
        if head is None:
            raise _lost()
        if "error" in head:
            raise load_error(head["error"])
        if "count" in head:
            return Answer(int(head["count"]), False, iter(()))
        return Answer(None, "running" in head, self._tables())

    def _tables(self) -> Iterator[pa.Table]:
        try:
            with pa.ipc.open_stream(self._file) as reader:
                any_rows = False
                for batch in reader:
                    any_rows = True
                    yield pa.Table.from_batches([batch])
                if not any_rows:
                    yield reader.schema.empty_table()
            tail = read_line(self._file)
        except (OSError, pa.ArrowInvalid):
            tail = None
        if tail is None:
            raise _lost()
        if "error" in tail:
            raise load_error(tail["error"])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self._connection.close()


def _lost() -> EngineError:
    return EngineError("the app went away before it had answered", hint="see what millpond run says")
