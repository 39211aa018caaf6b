"""Serves a connection on the socket: one session of the owner."""

from __future__ import annotations

import asyncio
from typing import Any

from millpond.http.connection import Connection
from millpond.http.owner import SCOPE, OwnerSession
from millpond.http.service import Service


class OwnerConnection(Connection):
    """Serves a connection whose client may take as long as it likes before it sends a request."""

    def __init__(self, service: Service, *arguments: Any, **more: Any):
        super().__init__(service, *arguments, **more)
        self._session = OwnerSession(service)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._stop_waiting()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope: Any = self.scope
        scope[SCOPE] = self._session

    def connection_lost(self, exc: Exception | None) -> None:
        self._session.leave()
        super().connection_lost(exc)
