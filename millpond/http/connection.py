"""Limits connections of clients: their number, and the time and size of the head of each request."""

from __future__ import annotations

import asyncio
import json
import resource
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from millpond.http.service import Service
from millpond.http.settings import Limits

RESERVED_FILES = 256
"""Files that are reserved for the app itself: the journal, segments, sources, the JVM."""


def most_connections(limits: Limits) -> int:
    """Returns the allowed number of connections, at most as many as leave the process the files that it needs."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return limits.connections
    return max(16, min(limits.connections, files - RESERVED_FILES))


class Connection(HttpToolsProtocol):
    """Serves one connection. It is closed if its client reads nothing for long, or if a response requires it."""

    def __init__(self, service: Service, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self._limits = service.limits
        self._waiting: asyncio.TimerHandle | None = None
        self._head: int | None = None
        """Bytes of the request head that is being read."""
        self._refused = False
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most = most_connections(self._limits)
        if len(self.connections) > most:
            self._refuse(503, "busy", f"{most:,} connections are open", "try again in a moment")
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)
        self._is_read()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self._limits.answer_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_read()

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._head is not None:
            self._head += len(data)
            if self._head > self._limits.head:
                self._refuse_head()
                return
        super().data_received(data)
        idle = self.cycle is None or self.cycle.response_complete
        if self._waiting is None and not self._refused and (self._head is not None or idle):
            self._wait()  # only a part of a request has arrived, perhaps only blank lines before it

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0
        scope: Any = self.scope
        scope["millpond.abort"] = self.transport.abort

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._head = None
        if sum(len(n) + len(v) for n, v in self.headers) + len(self.url) > self._limits.head:
            self._refuse_head()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._refused:
            super().on_message_complete()

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self._limits.head_seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _refuse_head(self) -> None:
        message = f"the head of the request is larger than {self._limits.head:,} bytes"
        self._refuse(431, "too_large", message, "send fewer or shorter headers, and values in the body")

    def _refuse(self, status: int, code: str, message: str, hint: str) -> None:
        """Sends a response without a request, and closes the connection."""
        self._refused = True
        self._stop_waiting()
        body = json.dumps({"error": {"code": code, "message": message, "hint": hint}}).encode()
        again = "retry-after: 1\r\n" if status == 503 else ""
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{again}connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
