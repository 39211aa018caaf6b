"""Manages connections to web servers: through the proxies of the environment, with the trusted certificates, and closed
when nobody waits for a response any more.
"""

from __future__ import annotations

import socket
import ssl
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from millpond.errors import InvalidOption

if TYPE_CHECKING:
    from urllib3 import PoolManager


class Pools:
    """Stores the connections of one thread."""

    def __init__(self, trusted: str | None):
        self._trusted = trusted
        self._pools: dict[tuple[str, str | None], PoolManager] = {}
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()

    def pool(self, url: str) -> PoolManager:
        from urllib.request import getproxies, proxy_bypass

        parts = urlsplit(url)
        proxies = getproxies()
        proxy = proxies.get(parts.scheme) or proxies.get("all")
        if proxy is not None and proxy_bypass(parts.hostname or ""):
            proxy = None
        key = parts.scheme, proxy
        if key not in self._pools:
            self._pools[key] = self._made(proxy, tls="https" in (parts.scheme, urlsplit(proxy or "").scheme))
        return self._pools[key]

    def _made(self, proxy: str | None, *, tls: bool) -> PoolManager:
        from urllib3 import PoolManager, ProxyManager, make_headers

        trust = self._trust() if tls else None
        if proxy is None:
            made = PoolManager(ssl_context=trust)
        else:
            login = urlsplit(proxy).netloc.rpartition("@")[0]
            auth = make_headers(proxy_basic_auth=unquote(login)) if login else None
            made = ProxyManager(proxy, proxy_headers=auth, ssl_context=trust)
        made.pool_classes_by_scheme = {
            scheme: _noted(kind, self._connections) for scheme, kind in made.pool_classes_by_scheme.items()
        }
        return made

    def _trust(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._trusted)
        except (OSError, ssl.SSLError) as error:
            raise InvalidOption(
                f'option "ssl.ca": "{self._trusted}" cannot be read: {error}',
                hint="it is a file in PEM format",
            ) from None

    def end_with(self, stop: threading.Event) -> None:
        """Raises an error in all threads that wait for a response on these connections when the event is set."""
        threading.Thread(target=_end, args=(stop, self._connections), daemon=True).start()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.clear()
        self._pools.clear()


def _noted(kind: Any, connections: weakref.WeakSet[Any]) -> Any:
    """Returns the kind of pool, whose connections are recorded."""

    class Connection(kind.ConnectionCls):  # type: ignore[misc]
        def connect(self) -> None:
            super().connect()
            connections.add(self)

    return type(kind.__name__, (kind,), {"ConnectionCls": Connection})


def _end(stop: threading.Event, connections: weakref.WeakSet[Any]) -> None:
    stop.wait()
    for connection in list(connections):
        with suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)
