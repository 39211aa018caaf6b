"""Runs the HTTP server of an app, in a thread of the app's process, until it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Self

import uvicorn

from millpond.errors import EngineError, InvalidOption, known
from millpond.http.application import application
from millpond.http.connection import Connection
from millpond.http.quick import Quick
from millpond.http.service import Service
from millpond.http.settings import Settings

if TYPE_CHECKING:
    from millpond.app.runtime import Runtime

_PATIENCE = 5.0
"""Seconds that requests get to end when the server is closed."""
_BACKLOG = 2048


class HttpServer:
    """Answers at ``url`` until ``close``. Also a context manager."""

    def __init__(self, app: Runtime, settings: Settings):
        self._socket = _listening(settings)
        host, self.port = settings.host, int(self._socket.getsockname()[1])
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self._service = Service(app, settings)
        config = uvicorn.Config(
            Quick(self._service, application(self._service)),
            http=partial(Connection, settings.limits),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=int(_PATIENCE),
        )
        self._server = uvicorn.Server(config)
        self._error: BaseException | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(config,), name="millpond-http", daemon=True)
        self._thread.start()
        self._started.wait(10.0)
        if self._error is not None:
            raise known(self._error) if isinstance(self._error, Exception) else self._error

    def _serve(self, config: uvicorn.Config) -> None:
        try:
            with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
                runner.run(self._main())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._service.begin(asyncio.get_running_loop())
        config = self._server.config
        config.load()
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=[self._socket])
        self._started.set()
        try:
            await self._server.main_loop()
        finally:
            await self._service.end()
            await self._server.shutdown(sockets=[self._socket])

    def close(self) -> None:
        """Takes no more requests, and ends when those that run are answered, or after some seconds."""
        self._server.should_exit = True
        self._thread.join(_PATIENCE + 5.0)
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
