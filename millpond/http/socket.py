"""Serves the routes of the HTTP API on the Unix socket of a running app: in its state directory, for its owner."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from millpond.http.address import NAME, address_in
from millpond.http.settings import Limits, Settings

if TYPE_CHECKING:
    from millpond.app.runtime import Runtime
    from millpond.http.event_loop import EventLoop

LIMITS = Limits(
    body=64 * 1024 * 1024, statement_body=64 * 1024 * 1024, values=sys.maxsize, connections=32
)  # fmt: skip
"""The limits of the owner's clients. Their statements have no limit of time or rows."""
SPARE_FILES = 8
"""Free files that are needed to start: packages are read, the event loop has three."""
RETRY_SECONDS = 0.1
"""Seconds until the next try."""


class SocketServer:
    """Handles requests until ``close``. The server and its packages are loaded when the first client connects, which
    waits for them: an app without clients does not load them.
    """

    def __init__(self, app: Runtime, limits: Limits = LIMITS):
        self._app = app
        self._limits = limits
        self._path = app.state.path / NAME
        self._listener = _listening(app.state.path, limits.connections)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._loop: EventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="millpond-socket", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accepts no more clients; those that follow a query are notified that the app stops."""
        with self._lock:
            self._stopping.set()
            if self._loop is not None:
                self._loop.stop()
            else:
                with contextlib.suppress(OSError):
                    self._listener.shutdown(socket.SHUT_RDWR)
        self._path.unlink(missing_ok=True)
        self._thread.join(10.0)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def _run(self) -> None:
        arrived = select.poll()
        arrived.register(self._listener, select.POLLIN)
        while not self._stopping.is_set():
            try:
                arrived.poll()
                self._check_files()
                self._answer()
                return
            except OSError:
                self._stopping.wait(RETRY_SECONDS)

    def _check_files(self) -> None:
        """Raises OSError if too few files are free."""
        with contextlib.ExitStack() as opened:
            for _ in range(SPARE_FILES):
                opened.callback(os.close, os.dup(self._listener.fileno()))

    def _answer(self) -> None:
        """Handles requests until ``close``."""
        from millpond.http.event_loop import EventLoop
        from millpond.http.owner_connection import OwnerConnection
        from millpond.http.service import Service

        service = Service(self._app, Settings(limits=self._limits))
        # The plain loop waits when no file is free for a client; uvloop rejects that client.
        loop = EventLoop(self._listener, service, OwnerConnection, loop="asyncio", idle_seconds=10**9)
        with self._lock:
            if self._stopping.is_set():
                return
            self._loop = loop
        try:
            loop.run()
        finally:
            service.close()
            with self._lock:
                self._loop = None


def _listening(home: Path, backlog: int) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The state directory is locked by this app: a socket in it is left over from an app that was killed.
    (home / NAME).unlink(missing_ok=True)
    # The mode is set before the file exists: nobody else can connect in between.
    os.fchmod(made.fileno(), 0o600)
    with address_in(home) as address:
        made.bind(address)
    os.chmod(home / NAME, 0o600)
    made.listen(backlog)
    return made
