"""Connects to the socket of a running app: sends statements to ``POST /sql``, and reads its responses."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.errors import CheckFailed, EngineError, Error, InvalidRecord, Place
from millpond.http.address import connect

ARROW = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True)
class Answer:
    """Contains a response. ``count`` is the number of rows that a statement changed, or None and there are ``tables``.

    The tables of a ``running`` query arrive one after another until it is closed.
    """

    count: int | None
    running: bool
    tables: Iterator[pa.Table]


class Client:
    """Represents a connection to a running app: one statement at a time. It is one session: BEGIN holds
    until COMMIT.
    """

    def __init__(self, connection: socket.socket, *, only_reads: bool = False):
        self._only_reads = only_reads
        self._http = HTTPConnection("localhost")
        self._http.auto_open = 0  # another connection would be another session
        self._http.sock = connection

    @staticmethod
    def of(state: Path, *, only_reads: bool = False) -> Client | None:
        """Returns a client of the app that runs on a state directory; None when none does. With ``only_reads`` the app
        refuses changes.
        """
        connection = connect(state)
        return Client(connection, only_reads=only_reads) if connection is not None else None

    def ask(self, sql: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Answer:
        """Sends a text and waits for the response. Raises the error that the app raised."""
        request = {"sql": sql, "params": params, "only_reads": self._only_reads}
        body = json.dumps(request, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", "Accept": f"{ARROW}, application/json"}
        # An app that refused the client may have closed before this is written; its response can still be read.
        with contextlib.suppress(OSError, HTTPException):
            self._http.request("POST", "/sql", body, headers)
        try:
            response = self._http.getresponse()
            if response.headers.get_content_type() == ARROW:
                return Answer(None, response.headers.get("X-Running") == "true", _tables(response))
            found = response.read()
        except (OSError, HTTPException):
            raise _lost() from None
        if response.status != 200:
            raise _error(found)
        return Answer(int(json.loads(found)["count"]), False, iter(()))

    def close(self) -> None:
        self._http.close()


def _tables(response: HTTPResponse) -> Iterator[pa.Table]:
    """Yields the batches of a response. An empty one with the field "error" in its metadata is the last."""
    try:
        with response, pa.ipc.open_stream(response) as reader:
            any_rows = False
            with contextlib.suppress(StopIteration):
                while True:
                    batch, metadata = reader.read_next_batch_with_custom_metadata()
                    if metadata is not None and b"error" in metadata:
                        raise load_error(json.loads(metadata[b"error"]))
                    any_rows = True
                    yield pa.Table.from_batches([batch])
            if not any_rows:
                yield reader.schema.empty_table()
            response.read()  # the end of the body: the next response begins after it
    except (OSError, HTTPException, pa.ArrowInvalid):
        raise _lost() from None


def _error(body: bytes) -> Error:
    try:
        return load_error(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return EngineError(body.decode("utf-8", "replace").strip() or "the app did not answer")


def load_error(data: dict[str, Any]) -> Error:
    """Returns the error of a response, with its class, place and hint."""
    if data.get("errors"):
        return CheckFailed([load_error(e) for e in data["errors"]])
    place = None
    if data.get("line") is not None:
        place = Place(data["line"], data["column"], data["length"], data["text"])
    kind = _classes().get(data["code"], EngineError)
    if kind is InvalidRecord:
        return InvalidRecord(
            data["message"], row=data.get("row"), field=data.get("field"), hint=data.get("hint"), place=place
        )
    if kind is CheckFailed:
        kind = Error
    return kind(data["message"], hint=data.get("hint"), place=place)


def _classes() -> dict[str, type[Error]]:
    """Returns the classes by the code that each declares; those that inherit a code are for the app itself."""
    found: dict[str, type[Error]] = {}
    todo: list[type[Error]] = [Error]
    while todo:
        kind = todo.pop()
        if "code" in vars(kind):
            found[kind.code] = kind
        todo += kind.__subclasses__()
    return found


def _lost() -> EngineError:
    return EngineError("the app went away before it had answered", hint="see what millpond run says")
