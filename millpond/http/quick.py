"""Handles the most frequent request on a fast path: a row of a table in memory, by a key of one column, as JSON.

It returns in a few microseconds what the general path would return; anything unusual is left to that.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import pyarrow as pa
from starlette.types import ASGIApp, Receive, Scope, Send

from millpond.errors import Error
from millpond.http.access import role_of
from millpond.http.application import is_own_host
from millpond.http.responses import encode
from millpond.http.settings import Role
from millpond.tables.memory import MemoryTable

if TYPE_CHECKING:
    from millpond.http.service import Service

ROUTE = "GET /tables/{table}/rows/{key}"
_ACCEPTED = (b"*/*", b"application/json")
_HEADERS = ((b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff"))
_is_own_host = lru_cache(maxsize=256)(is_own_host)


class Quick:
    """Handles requests before the application does."""

    def __init__(self, service: Service, application: ASGIApp):
        self._service = service
        self._application = application
        self._tokens = service.settings.tokens
        self._longest = service.limits.url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET":
            raw: bytes = scope["raw_path"]
            if raw.startswith(b"/tables/") and (at := raw.find(b"/rows/", 8)) > 0:
                began = time.perf_counter()
                body = self._body(scope, raw, at)
                if body is not None:
                    length = b"%d" % len(body)
                    headers = [*_HEADERS, (b"content-length", length)]
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                    await send({"type": "http.response.body", "body": body})
                    self._service.requests.note(ROUTE, 200, time.perf_counter() - began)
                    return
        await self._application(scope, receive, send)

    def _body(self, scope: Scope, raw: bytes, at: int) -> bytes | None:
        """Returns the response body, or None: then the general path has to find it, or report the error."""
        name, text = raw[8:at], raw[at + 6 :]
        if (
            not name.replace(b"_", b"").isalnum()
            or not text
            or len(raw) > self._longest
            or not self._may(scope["headers"])
        ):
            return None
        try:
            table = self._service.table(name.decode("ascii"))
            key = table.schema.key
            backend = table.backend
            if len(key) != 1 or not isinstance(backend, MemoryTable) or backend.limited:
                return None
            record = table.get_record(_key(text, backend.schema.find(key[0]).type))  # type: ignore[union-attr]
        except (Error, ValueError):
            return None
        return None if record is None else encode(record)

    def _may(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Returns whether the client may read, and accepts this form of response."""
        host, authorization = b"", None
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"authorization":
                authorization = value
            elif (name == b"accept" and value not in _ACCEPTED) or name == b"origin":
                return False
        if not self._tokens:
            return _is_own_host(host)
        try:
            given = None if authorization is None else authorization.decode("latin-1")
            return role_of(self._tokens, given) >= Role.READ
        except Error:
            return False


def _key(text: bytes, dtype: Any) -> Any:
    """Returns the value of a plain key. Raises ValueError if it is not plain."""
    if b"%" in text:
        text = unquote_to_bytes(text)
    if pa.types.is_string(dtype) and not text.startswith(b"\\"):
        return text.decode()
    if pa.types.is_integer(dtype) and text.isdigit() and len(text) < 10:
        return int(text)
    raise ValueError
