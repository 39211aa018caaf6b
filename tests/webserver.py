"""A web server in the process of the tests, whose answers are set by the tests: a real one, on 127.0.0.1."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Asked:
    """A request: its method, path, parameters, headers and body, when it came, and what is needed to answer it in an
    unusual way.
    """

    def __init__(self, handler: BaseHTTPRequestHandler):
        parts = urlsplit(handler.path)
        self.path = parts.path
        self.params = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        self.headers = {k.lower(): v for k, v in handler.headers.items()}
        self.handler = handler
        self.method = handler.command
        self.body = handler.rfile.read(int(self.headers.get("content-length", "0")))
        self.at = time.monotonic()


Reply = tuple[int, Mapping[str, str], bytes]
Route = Callable[[Asked], Reply | None]
"""An answer; None if the route has written it itself."""


class WebServer:
    """``routes`` are answers by path, ``asked`` the requests so far, ``sent`` the bytes of bodies."""

    def __init__(self, context: ssl.SSLContext | None = None):
        self.routes: dict[str, Route] = {}
        self.asked: list[Asked] = []
        self.sent = 0
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet: the client need not wait for the second

            def do_POST(self) -> None:
                self.do_GET()

            def do_PUT(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                asked = Asked(self)
                web.asked.append(asked)
                route = web.routes.get(
                    asked.path, lambda _: (404, {"Content-Type": "text/plain"}, b"nothing here")
                )
                with suppress(OSError):
                    reply = route(asked)
                    if reply is not None:
                        web.reply(self, *reply)

            def log_message(self, *_: Any) -> None:
                return

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients that leave in the middle of an answer are part of the tests."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.port = self._server.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def reply(
        self, handler: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str], body: bytes
    ) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        self.sent += len(body)  # before the client has it
        handler.wfile.write(body)
        handler.wfile.flush()

    def json(self, path: str, value: Any, *, etag: bool = False, **headers: str) -> None:
        """Answers a value, or 304 to who has it already."""
        self.body(path, json.dumps(value).encode(), "application/json", etag=etag, **headers)

    def body(self, path: str, body: bytes, kind: str = "", *, etag: bool = False, **headers: str) -> None:
        more = {k.replace("_", "-"): v for k, v in headers.items()}
        if kind:
            more["Content-Type"] = kind
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        if etag:
            more["ETag"] = tag

        def route(asked: Asked) -> Reply:
            if etag and asked.headers.get("if-none-match") == tag:
                return 304, {"ETag": tag}, b""
            return 200, more, body

        self.routes[path] = route

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
