"""Handles the most frequent requests on a fast path: a row of a table in memory, by a key of one column, as JSON; and
few rows for a stream.

It returns in a few microseconds what the general path would return; anything unusual is left to that.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import pyarrow as pa
from starlette.types import ASGIApp, Receive, Scope, Send

from millpond.errors import Error, known
from millpond.http.access import role_of
from millpond.http.application import is_own_host
from millpond.http.body import read_parts
from millpond.http.failures import failed
from millpond.http.owner import SCOPE
from millpond.http.posts import SMALL_BODY
from millpond.http.responses import encode
from millpond.http.settings import Role
from millpond.sql.catalog import Relation
from millpond.tables.memory import MemoryTable

if TYPE_CHECKING:
    from millpond.http.service import Service

ROUTE = "GET /tables/{table}/rows/{key}"
POST = "POST /streams/{stream}"
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
        elif scope["type"] == "http" and scope["method"] == "POST":
            stream = self._stream(scope)
            if stream is not None:
                await self._post(stream, scope, receive, send)
                return
        await self._application(scope, receive, send)

    async def _post(self, stream: Relation, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the rows of a request to a stream."""
        service, began, status = self._service, time.perf_counter(), 200
        try:
            body = await read_parts(receive, service.limits)
            count = await service.posts.send(stream, body, ignore=False)
        except Exception as error:
            found = known(error)
            service.secrets.mask_error(found)
            response = failed(found, whole=SCOPE in scope)
            status = response.status_code
            await response(scope, receive, send)
        else:
            text = b'{"rows": %d}' % count
            headers = [*_HEADERS, (b"content-length", b"%d" % len(text))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": text})
        service.requests.note(POST, status, time.perf_counter() - began)

    def _stream(self, scope: Scope) -> Relation | None:
        """Returns the stream that a request of few bytes sends rows to; None if the general path has to find out."""
        raw, length = scope["raw_path"], b""
        name = raw[9:]
        if not raw.startswith(b"/streams/") or scope["query_string"] or len(raw) > self._longest:
            return None
        for header, value in scope["headers"]:
            if header in (b"idempotency-key", b"content-encoding"):
                return None
            if header == b"content-length":
                length = value
        if (
            not length.isdigit()
            or len(length) > 6
            or int(length) > min(SMALL_BODY, self._service.limits.body)
        ):
            return None
        if not name.replace(b"_", b"").isalnum() or not self._may(scope["headers"], Role.WRITE):
            return None
        found = self._service.catalog.find(name.decode("ascii"))
        return found if found is not None and found.kind == "stream" else None

    def _body(self, scope: Scope, raw: bytes, at: int) -> bytes | None:
        """Returns the response body, or None: then the general path has to find it, or report the error."""
        name, text = raw[8:at], raw[at + 6 :]
        if (
            not name.replace(b"_", b"").isalnum()
            or not text
            or len(raw) > self._longest
            or not self._may(scope["headers"], Role.READ, _ACCEPTED)
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

    def _may(
        self, headers: list[tuple[bytes, bytes]], role: Role, accepted: tuple[bytes, ...] | None = None
    ) -> bool:
        """Returns whether the client has the role, and accepts this form of response."""
        host, authorization = b"", None
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"authorization":
                authorization = value
            elif (name == b"accept" and accepted and value not in accepted) or name == b"origin":
                return False
        if not self._tokens:
            return _is_own_host(host)
        try:
            given = None if authorization is None else authorization.decode("latin-1")
            return role_of(self._tokens, given) >= role
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
