"""Runs the event loop that handles requests: on a listening socket, in the thread that runs it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Literal

import uvicorn

from millpond.http.application import application
from millpond.http.connection import Connection
from millpond.http.quick import Quick
from millpond.http.service import Service

PATIENCE = 5.0
"""Seconds that requests have to finish when the server is closed."""


class EventLoop:
    """Handles what comes over ``listener`` from ``run`` until ``stop``."""

    def __init__(
        self,
        listener: socket.socket,
        service: Service,
        connection: type[Connection],
        *,
        loop: Literal["auto", "asyncio"] = "auto",
        idle_seconds: int = 75,
    ):
        self._listener = listener
        self._service = service
        self._config = uvicorn.Config(
            Quick(service, application(service)),
            loop=loop,
            http=partial(connection, service),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=idle_seconds,
            timeout_graceful_shutdown=int(PATIENCE),
        )
        self._server = uvicorn.Server(self._config)

    def run(self, on_started: Callable[[], None] = lambda: None) -> None:
        """Handles requests until ``stop``, and then closes the listener. ``on_started`` is called when clients are
        accepted.
        """
        with asyncio.Runner(loop_factory=self._config.get_loop_factory()) as runner:
            runner.run(self._main(on_started))

    async def _main(self, on_started: Callable[[], None]) -> None:
        self._service.begin(asyncio.get_running_loop())
        self._config.load()
        self._server.lifespan = self._config.lifespan_class(self._config)
        await self._server.startup(sockets=[self._listener])
        on_started()
        try:
            await self._server.main_loop()
        finally:
            await self._service.end()
            await self._server.shutdown(sockets=[self._listener])

    def stop(self) -> None:
        """Accepts no more requests, and ends when the running ones have finished, or after some seconds. Any thread may
        call it.
        """
        self._server.should_exit = True
