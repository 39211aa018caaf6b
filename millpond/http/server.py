"""Runs the HTTP server of an app, in a thread of the app's process, until it is closed."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

from millpond.errors import EngineError, InvalidOption, known
from millpond.http.connection import Connection
from millpond.http.event_loop import PATIENCE, EventLoop
from millpond.http.service import Service
from millpond.http.settings import Settings

if TYPE_CHECKING:
    from millpond.app.runtime import Runtime

_BACKLOG = 2048


class HttpServer:
    """Handles requests at ``url`` until ``close``. Also a context manager."""

    def __init__(self, app: Runtime, settings: Settings):
        self._socket = _listening(settings)
        host, self.port = settings.host, int(self._socket.getsockname()[1])
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self._service = Service(app, settings)
        self._loop = EventLoop(self._socket, self._service, Connection)
        self._error: BaseException | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="millpond-http", daemon=True)
        self._thread.start()
        self._started.wait(10.0)
        if self._error is not None:
            raise known(self._error) if isinstance(self._error, Exception) else self._error

    def _serve(self) -> None:
        try:
            self._loop.run(self._started.set)
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    def close(self) -> None:
        """Accepts no more requests, and ends when the running ones have finished, or after some seconds."""
        self._loop.stop()
        self._thread.join(PATIENCE + 5.0)
        with contextlib.suppress(OSError):
            self._socket.close()
        self._service.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<HttpServer {self.url}>"


def _listening(settings: Settings) -> socket.socket:
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, kind, proto, _, address = found[0]
        made = socket.socket(family, kind, proto)
    except OSError as error:
        raise InvalidOption(f'the address "{settings.host}" is not known: {error}') from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise EngineError(
            f"the HTTP server cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
            hint="another program has the port: choose another one, or 0 for any that is free",
        ) from None
    return made
